"""When a model is evaluated on the way: at the steps that the operator names, else about twenty times in a run.

A host that evaluates while the others do not would hold them up in strict windows. So all hosts evaluate at the same
steps. One that comes before the host has computed for long enough is left out.
"""

COUNT = 20
"""How often a run is evaluated on the way, unless that takes too long."""

SHARE_MAX = 0.05
"""Evaluations that nobody asked for take at most this share of the time in which steps are computed."""


class EvaluationSchedule:
    """every: steps between two evaluations; 0: none; None: as many as are good. steps: of the run."""

    def __init__(self, every: int | None, steps: int) -> None:
        self._steps = steps
        self._every = -(-steps // COUNT) if every is None else every
        self._is_thrifty = every is None
        self._passed = 0
        """The last evaluation that was made or left out. A new process evaluates at the next step, whatever earlier
        processes have found."""
        self._seconds = self._computed_seconds = 0.0
        """What the last evaluation took, and for how long steps had been computed then."""

    def is_due(self, step: int, computed_seconds: float) -> bool:
        """Is the model to be evaluated after `step` steps? computed_seconds: for which this process has computed."""
        if not self._every or step >= self._steps or step // self._every == self._passed:
            return False
        self._passed = step // self._every
        return not self._is_thrifty or computed_seconds - self._computed_seconds >= self._seconds / SHARE_MAX

    def took(self, seconds: float, computed_seconds: float) -> None:
        """An evaluation was made."""
        self._seconds, self._computed_seconds = seconds, computed_seconds
