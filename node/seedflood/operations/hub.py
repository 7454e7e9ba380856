"""The hub: hears of everything that happens on a node, counts it, remembers it, and writes it down.

It stands behind the driver's observer seam and is called on the hot path, so its methods only count and queue; what is
costly happens when somebody looks (`status`, `metrics`) or on the event log's own thread.
"""

import asyncio
import logging
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import structlog

from seedflood.config import Settings
from seedflood.operations.advice import advise
from seedflood.operations.eventlog import EventLog, Line, event_files, now_microseconds, read_lines, spell_time
from seedflood.operations.history import EVENTS_MAX, SPEED_SECONDS, History
from seedflood.operations.spans import BundleSpans, spell_frontier, spell_updates
from seedflood.operations.subject import Subject
from seedflood.operations.tally import Tally, percentile
from seedflood.protocol.origin import OriginId, fingerprint
from seedflood.protocol.seedflood.messages import Bundle, ClosedEpoch, Update, Updates, count_updates
from seedflood.protocol.seedflood.outputs import ClosedWindow
from seedflood.protocol.swarm.messages import Message
from seedflood.protocol.swarm.outputs import Event

Curves = Callable[[int, Mapping[str, float | None]], None]
"""Takes points of several curves at one step: TensorBoard."""

ADVICE_WINDOWS = 32
"""After so many it is told what the hops call for."""

SPEED_WINDOWS = 200
SPEED_WINDOW_SECONDS = 30.0
"""Steps per second are those of so many windows and seconds."""

MEGABYTE = 1_000_000

LOG_SECONDS_MAX = 5.0
"""A trace waits so long for a slow disk, then reads what is there."""

_log = structlog.stdlib.get_logger("seedflood")


class TelemetryHub:
    """subject: None until the node is loaded. events: the last ones for people, the newest last."""

    def __init__(
        self, settings: Settings, origin: OriginId, loop: asyncio.AbstractEventLoop, curves: Curves | None = None
    ) -> None:
        self.settings = settings
        self.origin = origin
        self.subject: Subject | None = None
        self.tally = Tally()
        self.history = History()
        self.events: deque[dict[str, Any]] = deque(maxlen=EVENTS_MAX)
        self.started_at = time.time()
        self.loss: float | None = None
        self.figures: Mapping[str, float] = {}
        """Those of the last evaluation, by name."""
        self.step_seconds: float | None = None
        self.measuring_since: float | None = None
        """When the first measurement of this life began, Unix time."""
        self.last_close: ClosedWindow | None = None
        self._spell_bundles = BundleSpans()
        """Used by the event log's thread alone."""
        self._curves = curves
        self._loop = loop
        self._linked: dict[OriginId, str] = {}
        """Names of the neighbours."""
        self._progress: deque[tuple[float, int]] = deque(maxlen=SPEED_WINDOWS)
        self._windows_to_advice = ADVICE_WINDOWS
        self._speed_at = 0.0
        self._log = self._open_log() if settings.node.events_megabytes else None

    def _open_log(self) -> EventLog:
        node = self.settings.node
        return EventLog(
            node.state,
            node=node.name,
            run=self.settings.run.run_id().hex()[:16],
            bytes_max=node.events_megabytes * MEGABYTE,
            names=self.names,
            call_soon=self._loop.call_soon,
        )

    @property
    def lines_lost(self) -> int:
        return self._log.lost if self._log is not None else 0

    def recall(self) -> None:
        """Curves and events of earlier lives. Reads files: not on the loop, and before anything is told."""
        if self._log is not None:
            self.events.extend(self.history.recall(read_lines(event_files(self.settings.node.state))))

    def wait_for_log(self) -> Callable[[], object]:
        """Call what it returns away from the loop: it blocks until all that was told by now can be read."""
        return partial(self._log.flush().wait, LOG_SECONDS_MAX) if self._log is not None else _nothing

    def close(self) -> None:
        if self._log is not None:
            self._log.close()

    # For people: the log on stderr, the event log and the page tell the same

    def tell(self, event: str, level: str = "info", **facts: Any) -> None:
        _log.log(logging.getLevelNamesMapping()[level.upper()], event, **facts)
        microseconds = self._write(event, level, facts)
        if level != "debug":
            self.events.append({"time": spell_time(microseconds), "event": event, "level": level, **facts})

    def noted(self, event: Event) -> None:
        self.tally.mismatches += event.name == "replicas differ"
        self.tell(event.name, event.level, **event.facts)

    # What the driver did

    def learned(self, bundles: Sequence[Bundle], source: OriginId | None) -> None:
        spell = self._spell_bundles
        if source is None:
            self.tally.originated += count_updates(bundles)
            self._write("published", "debug", lambda: {"updates": spell(bundles)})
        else:
            name = self._name(source)
            self._write("kept", "debug", lambda: {"from": name, "updates": spell(bundles)})

    def adopted(self, closed: ClosedEpoch, source: OriginId | None) -> None:
        name = self._name(source)
        self._write(
            "adopted",
            "info",
            lambda: {"from": name, "epoch": closed.epoch, "updates": spell_frontier(closed.frontier)},
        )

    def sent(self, peer: OriginId, message: Message) -> None:
        match message:
            case Updates(bundles):
                name, spell = self._name(peer), self._spell_bundles
                self._write("sent", "debug", lambda: {"to": name, "updates": spell(bundles)})

    def applied(self, window: ClosedWindow) -> None:
        tally, now = self.tally, time.time()
        tally.applied += len(window.updates)
        tally.late += window.late
        if window.steps[0] <= window.steps[1]:
            self.last_close = window
            tally.last_step_at = now
            tally.closed(window.reason, window.waited_seconds)
            self._count_step(window.steps[1] + 1, window.steps[1] - window.steps[0] + 1, now)
            self._advise()
        self._write("applied", "debug", lambda: _spell_window(window))

    def connected(self, peer: OriginId, name: str, *, is_dialled: bool) -> None:
        self._linked[peer] = name
        self._write("connected", "debug", {"peer": name, "origin": fingerprint(peer), "is_dialled": is_dialled})

    def disconnected(self, peer: OriginId, reason: str) -> None:
        self._write("disconnected", "debug", {"peer": self._name(peer), "reason": reason})
        self._linked.pop(peer, None)

    # What the model did

    def measured(self, step: int, count: int, loss: float | None, seconds: float) -> None:
        """seconds: of all `count` steps."""
        self.loss, self.step_seconds = loss, seconds / count
        if self.measuring_since is None:
            self.measuring_since = time.time() - seconds
        self.history.measured(step, loss)
        for _ in range(count):
            self.tally.steps.observe(seconds / count)
        self._write("measured", "debug", {"step": step, "count": count, "loss": loss, "seconds": round(seconds, 6)})
        if self._curves is not None:
            self._curves(step, {"loss/train": loss, "seconds/step": seconds / count})

    def spent_seconds(self) -> float | None:
        """Wall clock of this life from the first measurement to the last window: what the present loss has taken."""
        if self.measuring_since is None:
            return None
        return max(0.0, (self.tally.last_step_at or time.time()) - self.measuring_since)

    def evaluated(self, step: int, figures: Mapping[str, float | None], rows: int) -> None:
        """None: a figure that is no number."""
        self.figures = {name: value for name, value in figures.items() if value is not None}
        self.history.evaluated(step, figures)
        facts: dict[str, Any] = {"step": step, **figures, "rows": rows}
        self.tell("evaluated", **facts)
        if self._curves is not None:
            self._curves(step, {f"{name}/validation": value for name, value in figures.items()})

    # Speed

    def steps_per_second(self) -> float | None:
        """Of the last seconds; it falls while a window stands open."""
        now = time.time()
        while self._progress and now - self._progress[0][0] > SPEED_WINDOW_SECONDS and len(self._progress) > 2:
            self._progress.popleft()
        if len(self._progress) < 2:
            return None
        (began, first), (_, last) = self._progress[0], self._progress[-1]
        return (last - first) / max(now - began, 1e-6)

    def _count_step(self, step: int, count: int, now: float) -> None:
        if self.subject is not None:
            self.tally.gossip_bytes += 2 * len(self._linked) * count * self.subject.parameters[1]
        self._progress.append((now, step))
        if now - self._speed_at >= SPEED_SECONDS and (speed := self.steps_per_second()) is not None:
            self._speed_at = now
            self.history.speed.add(round(now, 3), round(speed, 4))
        if self._curves is not None and self.last_close is not None:
            self._curves(step - 1, {"seconds/window": self.last_close.waited_seconds})

    def _advise(self) -> None:
        """Once, when hops and steps have been measured for a while: what delay and rounds they call for."""
        self._windows_to_advice -= 1
        if self._windows_to_advice > 0 or self.subject is None or not self.step_seconds:
            return
        view = self.subject.view()
        hop_seconds = percentile(view.hops.recent, 0.5)
        if hop_seconds is None:
            return
        self._windows_to_advice = sys.maxsize
        run, diameter = self.settings.run, view.diameter
        advice = advise(
            hop_seconds=hop_seconds,
            diameter=diameter,
            step_seconds=self.step_seconds,
            local_steps=run.seedflood.local_steps,
            delay=run.seedflood.delay,
            optimizer=run.seedflood.optimizer,
        )
        if advice is not None:
            self.tell(
                "rounds wait for the network",
                hop_seconds=round(hop_seconds, 4),
                diameter=diameter,
                step_seconds=round(self.step_seconds, 4),
                utilisation=advice.utilisation,
                enough=advice.sentence(),
            )

    # Small things

    def _write(self, event: str, level: str, facts: Mapping[str, Any] | Callable[[], Mapping[str, Any]]) -> int:
        line = Line(now_microseconds(), event, level, facts)
        if self._log is not None:
            self._log.write(line)
        return line.microseconds

    def names(self) -> dict[str, str]:
        """Of all known origins, by fingerprint; for any thread."""
        known = self.subject.names() if self.subject is not None else {}
        return {fingerprint(origin): name for origin, name in ({self.origin: self.settings.node.name} | known).items()}

    def _name(self, origin: OriginId | None) -> str | None:
        """Of a neighbour."""
        return self._linked.get(origin) or fingerprint(origin) if origin is not None else None


def _spell_window(window: ClosedWindow) -> dict[str, Any]:
    first, last = window.steps
    is_outside = first > last
    on_time: tuple[Update, ...] = window.updates
    late: tuple[Update, ...] = ()
    if is_outside:
        on_time = tuple(sorted(on_time))  # what a catch-up or a start brings, origin by origin
    elif window.late:
        on_time = tuple(update for update in window.updates if update.step >= first)
        late = tuple(update for update in window.updates if update.step < first)
    return {
        "steps": None if is_outside else [first, last],
        "reason": window.reason,
        "waited_seconds": round(window.waited_seconds, 6),
        "missing": [fingerprint(origin) for origin in window.missing],
        "updates": spell_updates(on_time),
        "late": spell_updates(late),
    }


def _nothing() -> None:
    """There is no log to wait for."""
