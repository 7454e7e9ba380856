"""A score: a pure function of the prompt, what a model wrote on from it, and the row that the prompt came from.

Whatever a score does, training goes on: an exception, NaN and what is out of range count as 0, and the log has a line
for each kind of them. Only a score that loops or crashes on text after text ends the run, for each costs it seconds.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from seedflood.errors import ConfigError

Scorer = Callable[[str, str, Mapping[str, object]], float]
"""score(prompt, completion, row): from 0 to 1, so that no text outweighs the others."""

LOST_MAX = 32
"""Texts in a row that may cost a score its process: as many as a host writes in a step by default, from which it would
learn nothing."""

_log = logging.getLogger(__name__)


class ScoreError(Exception):
    """What went wrong where a text was scored. kind: of one kind the log has one. is_lost: it cost a process."""

    def __init__(self, kind: str, detail: str = "", *, is_lost: bool = False) -> None:
        super().__init__(f"{kind} ({detail})" if detail else kind)
        self.kind = kind
        self.is_lost = is_lost


@dataclass
class Guarded:
    """A score that raises nothing but ConfigError, if it gives up. spec: as the run names it."""

    spec: str
    score: Scorer
    _told: set[str] = field(default_factory=set)
    _lost: int = 0

    def __call__(self, prompt: str, completion: str, row: Mapping[str, object]) -> float:
        try:
            value = float(self.score(prompt, completion, row))
        except Exception as error:  # of any kind: a score may be anybody's code
            fault = error if isinstance(error, ScoreError) else ScoreError(type(error).__name__, str(error))
        else:
            if 0 <= value <= 1:
                self._lost = 0
                return value
            fault = ScoreError("not a number" if value != value else "out of range", f"{value:g}")
        self._lost = self._lost + 1 if fault.is_lost else 0
        if self._lost == LOST_MAX:
            raise ConfigError(f'score = "{self.spec}" gave no number for {LOST_MAX} texts in a row: it {fault}.')
        if fault.kind not in self._told:
            self._told.add(fault.kind)
            _log.warning("score %s: %s; such a text counts as 0", self.spec, fault)
        return 0.0
