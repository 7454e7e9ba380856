"""A score: a pure function of the prompt, what a model wrote on from it, and the row that the prompt came from.

Whatever a score does, training goes on: an exception, NaN and what is out of range count as 0, and the log has a line
for each kind of them.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

Scorer = Callable[[str, str, Mapping[str, object]], float]
"""score(prompt, completion, row): from 0 to 1, so that no text outweighs the others."""

_log = logging.getLogger(__name__)


class ScoreError(Exception):
    """What went wrong where a text was scored. kind: of one kind the log has one."""

    def __init__(self, kind: str, detail: str = "") -> None:
        super().__init__(f"{kind} ({detail})" if detail else kind)
        self.kind = kind


@dataclass
class Guarded:
    """A score that never raises. spec: as the run names it."""

    spec: str
    score: Scorer
    _told: set[str] = field(default_factory=set)

    def __call__(self, prompt: str, completion: str, row: Mapping[str, object]) -> float:
        try:
            value = float(self.score(prompt, completion, row))
        except Exception as error:  # of any kind: a score may be anybody's code
            fault = error if isinstance(error, ScoreError) else ScoreError(type(error).__name__, str(error))
        else:
            if 0 <= value <= 1:
                return value
            fault = ScoreError("not a number" if value != value else "out of range", f"{value:g}")
        if fault.kind not in self._told:
            self._told.add(fault.kind)
            _log.warning("score %s: %s; such a text counts as 0", self.spec, fault)
        return 0.0
