"""A trace: what happened to one update on one node, from its event files: when it came, from whom, and in which window
it was applied.

Lines are enough to make a trace, so it works with the files of a dead node, too. A running node adds what its frontier
says now.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from seedflood.operations.eventlog import decode

FACTS_MAX = 256
"""The most lines about one update. Each restart applies it again, and repair may send it again."""

_SPAN_FIELDS = ("updates", "late")


@dataclass(slots=True)
class Trace:
    """origin: fingerprint. facts: the lines about the update, in order, without their spans. has_log: is there any line
    at all? is_held, is_applied, at_step, run_steps: from a running node; None if only files were read."""

    node: str | None
    origin: str
    name: str | None
    step: int
    facts: list[dict[str, Any]] = field(default_factory=list)
    has_log: bool = False
    is_skipped: bool = False
    is_held: bool | None = None
    is_applied: bool | None = None
    at_step: int | None = None
    run_steps: int | None = None

    @property
    def had_at(self) -> dict[str, Any] | None:
        """The line that says how the node got the update."""
        return next((fact for fact in self.facts if fact["event"] in ("published", "kept", "adopted")), None)

    @property
    def applied(self) -> dict[str, Any] | None:
        """The line of the window in which it was applied, else the line of a start or catch-up that applied it."""
        lines = [fact for fact in self.facts if fact["event"] == "applied"]
        return next((fact for fact in lines if fact["steps"] is not None), lines[0] if lines else None)

    def as_json(self) -> dict[str, Any]:
        had, applied = self.had_at, self.applied
        return {
            "node": self.node,
            "origin": self.origin,
            "name": self.name,
            "step": self.step,
            "had": had,
            "sent": [fact for fact in self.facts if fact["event"] == "sent"],
            "applied": applied,
            "is_skipped": self.is_skipped,
            "is_held": self.is_held,
            "is_applied": self.is_applied,
            "verdict": self.verdict(),
            "facts": self.facts,
        }

    def verdict(self) -> str:
        """One sentence: what happened to the update, or why nothing did."""
        who = self.name or self.origin
        had, applied = self.had_at, self.applied
        if self.is_skipped and (had is None or had["event"] != "published"):
            return f"{who} never measured step {self.step}: its next update says so"
        if applied is not None:
            return _spell_applied(applied, self.step)
        if had is not None and had["event"] == "adopted":
            return f"applied as part of the sum of epoch {had.get('epoch')}, from {had.get('from')}"
        if self.is_applied:
            return "applied, but the event log lacks that time"
        if had is not None or self.is_held:
            return "held, not applied: its window has not closed here" + (
                f"; the node is at step {self.at_step}" if self.at_step is not None else " as far as the files tell"
            )
        if self.run_steps is not None and self.step >= self.run_steps:
            return f"there is no such step: the run has steps 0 to {self.run_steps - 1}"
        if self.is_held is not None:
            return f"never came here; the node is at step {self.at_step}"
        return "not in these files: it never came, or they lack that time" if self.has_log else "there is no event log"


def trace(lines: Iterable[bytes], origin: str, step: int, name: str | None = None) -> Trace:
    """The trace of an update. lines: all lines of one node, in order."""
    found = Trace(None, origin, name, step)
    spans = re.compile(rf'\["{origin}",(\d+),(\d+)(?:,(\d+))?\]'.encode())
    for line in lines:
        if not found.has_log:
            whole = decode(line)
            if whole is None:
                continue
            found.has_log, found.node = True, whole.get("node")
        kinds = [_kind(match, step) for match in spans.finditer(line)]
        if "skipped" in kinds and "measured" not in kinds:
            found.is_skipped = True
        if "measured" in kinds and len(found.facts) < FACTS_MAX:
            whole = decode(line)
            if whole is not None:
                found.facts.append(_without_spans(whole, origin, step))
    return found


def _kind(match: re.Match[bytes], step: int) -> str | None:
    first, last, skipped = int(match[1]), int(match[2]), int(match[3] or 0)
    if first <= step <= last:
        return "measured"
    return "skipped" if first - skipped <= step < first else None


def _without_spans(whole: dict[str, Any], origin: str, step: int) -> dict[str, Any]:
    fact = {key: value for key, value in whole.items() if key not in (*_SPAN_FIELDS, "node", "run")}
    if whole["event"] == "applied":
        late = whole.get("late") or []
        fact["is_late"] = any(span[0] == origin and span[1] <= step <= span[2] for span in late)
    return fact


def _spell_applied(applied: dict[str, Any], step: int) -> str:
    steps = applied["steps"]
    if steps is None:
        return f"applied at {applied['time']}, outside of any window: while the node caught up or started again"
    how = "late, in the window" if applied.get("is_late") else "in the window"
    where = f"of step {steps[1]}" if steps[0] == steps[1] else f"of steps {steps[0]} to {steps[1]}"
    return f"applied {how} {where}, which closed at {applied['time']} ({applied['reason']})"
