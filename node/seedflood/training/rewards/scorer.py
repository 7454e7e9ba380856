"""A score: a pure function of the prompt, what a model wrote on from it, and the row that the prompt came from.

Whatever a score does, training goes on: an exception, NaN and what is out of range count as 0, and the log has a line
for each kind of them. Only a score that has given no number yet after many texts ends the run, for nothing would be
learned; and one that loops or crashes on text after text, for each costs it seconds.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from seedflood.errors import ConfigError

Scorer = Callable[[str, str, Mapping[str, object]], float]
"""score(prompt, completion, row): from 0 to 1, so that no text outweighs the others."""

LOST_MAX = 16
"""Texts in a row that may cost a score its process: two groups, by default."""

FAULTY_MAX = 128
"""Texts that may go wrong before the first one gets a number. Many a score raises where a text cannot be read, and a
model may be right in one of ten."""

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
    _logged: set[str] = field(default_factory=set)
    _lost: int = 0
    _faulty: int | None = 0
    """How many texts have gone wrong; None: one got a number."""

    def __call__(self, prompt: str, completion: str, row: Mapping[str, object]) -> float:
        try:
            value = float(self.score(prompt, completion, row))
        except Exception as error:  # of any kind: a score may be anybody's code
            fault = error if isinstance(error, ScoreError) else ScoreError(type(error).__name__, str(error))
        else:
            if 0 <= value <= 1:
                self._lost, self._faulty = 0, None
                return value
            fault = ScoreError("not a number" if value != value else "out of range", f"{value:g}")
        self._lost = self._lost + 1 if fault.is_lost else 0
        self._faulty = None if self._faulty is None else self._faulty + 1
        if (count := self._lost) == LOST_MAX or (count := self._faulty or 0) == FAULTY_MAX:
            raise ConfigError(f'score = "{self.spec}" gave no number for {count} texts in a row ({fault}): correct it.')
        if fault.kind not in self._logged:
            self._logged.add(fault.kind)
            _log.warning("score %s: %s; such a text counts as 0", self.spec, fault)
        return 0.0
