"""The jobs of a simulated model, which run one after the other, and the time that a host takes for a step."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Pace:
    """How long a host takes to measure one step: uniformly distributed between the two, in seconds."""

    seconds_min: float = 0.05
    seconds_max: float = 0.15

    def slowed(self, factor: float) -> "Pace":
        return Pace(self.seconds_min * factor, self.seconds_max * factor)


class WorkQueue:
    """A queue of jobs. later: calls an action after some seconds, unless the process has ended by then."""

    def __init__(self, later: Callable[[float, Callable[[], None]], None]) -> None:
        self._later = later
        self._jobs: deque[tuple[float, Callable[..., None], tuple[object, ...]]] = deque()

    def __bool__(self) -> bool:
        """Is a job running or waiting?"""
        return bool(self._jobs)

    def put(self, seconds: float, action: Callable[..., None], *args: object) -> None:
        self._jobs.append((seconds, action, args))
        if len(self._jobs) == 1:
            self._later(seconds, self._finish)

    def clear(self) -> None:
        """Drops all jobs, because the process has ended."""
        self._jobs.clear()

    def _finish(self) -> None:
        job = self._jobs[0]
        _, action, args = job
        action(*args)
        if self._jobs and self._jobs[0] is job:  # else the process has ended in the action
            self._jobs.popleft()
            if self._jobs:
                self._later(self._jobs[0][0], self._finish)
