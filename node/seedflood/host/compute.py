"""What the driver orders is carried out on the compute thread, job by job, and answered on the loop.

So what a job finds is exactly what was ordered before it: a digest covers those windows, a checkpoint those rounds.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from seedflood.host.compute_thread import Run
from seedflood.host.driver import Driver


class Done(NamedTuple):
    """What came of a job. answer: for the node, if it waits for one. facts: for the log. rest: what is left of the job,
    for later."""

    answer: Any = None
    facts: Sequence[Any] = ()
    rest: Any = None


@dataclass(eq=False, repr=False)
class Compute:
    """The seam of a driver to its model. driver: must be set before the first job.

    begin: is called with a job on the loop; what it returns is called on the compute thread. heard: is told each fact
    on the loop, before the node has the answer. drive: runs an action that calls the driver.
    """

    _run: Run
    _drive: Callable[[Callable[[], None]], None]
    _begin: Callable[[Any], Callable[[], Done]]
    _heard: Callable[[Any], None]
    driver: Driver = field(init=False)

    def put(self, job: Any) -> None:
        self._run(self._begin(job), self._end)

    def _end(self, done: Done) -> None:
        for fact in done.facts:
            self._heard(fact)
        if done.answer is not None:
            self._drive(lambda: self.driver.answered(done.answer))
        if done.rest is not None:
            self.put(done.rest)
