"""The report of a node: progress while it runs and a result at the end, for people and machines.

`result.json` in the state folder survives restarts, so the base model is evaluated only once, in the first life.
"""

import contextlib
import json
import math
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seedflood import durable
from seedflood.host.outlets import RESULT_LOST
from seedflood.host.places import read_result
from seedflood.log import log
from seedflood.operations.rise import Best

if TYPE_CHECKING:
    from seedflood.training.generation import Sample


Figures = dict[str, float | None]
"""Figures by name, as `Evaluation.rounded` returns them, and `rows`."""


@dataclass(slots=True)
class Report:
    """The figures of one node. names: of its objective's figures. before, after: evaluations of the base model and of
    the result. best: the best one in all lives. samples: by number, a `prompt` of a row, what
    follows it (`wanted`), and what the model has written `before` and `after` the run."""

    path: Path
    names: Sequence[str]
    began: float = field(default_factory=time.monotonic)
    before: Figures = field(default_factory=dict)
    after: Figures = field(default_factory=dict)
    best: Best | None = None
    samples: dict[str, dict[str, str]] = field(default_factory=dict)
    result: dict[str, Any] = field(default_factory=dict)
    """Of the run; empty if no life has reached its end."""
    is_quiet: bool = False
    """Is stdout not ours?"""

    def __post_init__(self) -> None:
        self.result = read_result(self.path.parent)

    def recall(self) -> bool:
        """Reads the figures of the base model and the best loss that an earlier life kept. False if it kept none of
        the base model."""
        try:
            known = json.loads(self.path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return False
        if isinstance(known, dict) and isinstance(known.get("before"), dict):
            self.before, self.samples = known["before"], known.get("samples", {})
            with contextlib.suppress(LookupError, TypeError):  # an earlier version kept none
                self.best = Best(**known["best"])
        return bool(self.before)

    def sampled(self, number: int, when: str, sample: "Sample") -> None:
        known = self.samples.setdefault(str(number), {"prompt": sample.prompt, "wanted": sample.wanted})
        known[when] = sample.written
        self.keep()

    def end(self, result: dict[str, Any]) -> dict[str, Any]:
        """The result of the run, which is kept. If this life only served, it is that of an earlier one, with what was
        evaluated since."""
        is_known = bool(self.result) and result.get("digest") == self.result.get("digest")
        if result.get("spent_seconds") or not is_known:
            self.result = result
        else:
            self.result |= {name: figure for name, figure in self.figures().items() if figure is not None}
        self.keep()
        return self.result

    def keep(self) -> None:
        """Writes the file. If that fails it only logs a warning: figures are no reason to end."""
        best = asdict(self.best) if self.best is not None else None
        fields = {"before": self.before, "best": best, "samples": self.samples, "result": self.result or None}
        data = json.dumps(_finite(fields), indent=1, allow_nan=False).encode()
        try:
            durable.write(self.path, data, mode=0o644)
        except OSError as error:  # a full disk may have space again
            log.warning("figures were not kept", path=str(self.path), reason=error.strerror)

    def publish(self, result: dict[str, Any]) -> None:
        """Prints the result on stdout, as one line of JSON."""
        if self.is_quiet:
            return
        if sys.stdout is None:
            log.warning(RESULT_LOST)
            return
        try:
            print(json.dumps(_finite(result), allow_nan=False), flush=True)
        except OSError as error:
            log.warning(RESULT_LOST, reason=str(error))

    def figures(self) -> dict[str, float | None]:
        """The figures as `NAME_before` and `NAME_after`; None if one was not evaluated or is no finite number."""
        ends = (("before", self.before), ("after", self.after))
        return {f"{name}_{when}": figures.get(name) for name in self.names for when, figures in ends}


def _finite(value: Any) -> Any:
    """The same with None for each number that JSON cannot hold."""
    match value:
        case dict():
            return {key: _finite(one) for key, one in value.items()}
        case list() | tuple():
            return [_finite(one) for one in value]
        case float():
            return value if math.isfinite(value) else None
        case _:
            return value
