"""What the jobs of SeedFlood's driver mean to a trainer."""

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import NamedTuple, TypeVar

from seedflood.host.compute import Done
from seedflood.host.seedflood.seams import Adopt, Job, Refill, Replay, Seal
from seedflood.protocol.origin import OriginId
from seedflood.protocol.seedflood.messages import ClosedEpoch, ReplicaDigest
from seedflood.protocol.seedflood.outputs import ClosedWindow, Measure, Measured, Remade, Stopped, SumEpoch, TakeDigest
from seedflood.training.seedflood.reputation import Reputations
from seedflood.training.seedflood.trainer import Trainer

Item = TypeVar("Item")


class Applied(NamedTuple):
    """A window that ends with this step was applied. halvings: of the learning rate, since the run began. reputations:
    of the hosts, in the open epoch."""

    step: int
    halvings: int
    reputations: Reputations


class WriteAhead(NamedTuple):
    """Write the texts of a step behind this one, which was measured last."""

    after: int


class Work:
    """Carries out jobs, and has texts written ahead where there is nothing else to do: those of one step are a job, and
    the next ones come behind all that was ordered meanwhile.

    Facts of jobs: `Applied`, and the `Round` that was measured. is_closed: the node is going, and reads nothing more
    for jobs.
    """

    def __init__(self, origin: OriginId, trainer: Trainer) -> None:
        """Called on the loop."""
        self.is_closed = False
        self._origin = origin
        self._trainer = trainer
        self._loop = asyncio.get_running_loop()
        self._measured = -1
        """The last step."""

    def begin(self, job: Job | WriteAhead) -> Callable[[], Done]:
        """What the compute thread is to do."""
        return lambda: self._carry_out(job)

    def _carry_out(self, job: Job | WriteAhead) -> Done:
        trainer = self._trainer
        match job:
            case ClosedWindow():
                replica = trainer.replica
                replica.apply(job.updates)
                return Done(None, [Applied(job.steps[1], replica.halvings, replica.reputations)])
            case Measure(step) if trainer.replica.is_over(step):
                return Done(Stopped(step))
            case Measure(step, count):
                measured = trainer.measure(self._origin, step, count)
                self._measured = step + count - 1
                more = WriteAhead(self._measured) if trainer.run.objective.ahead else None
                return Done(Measured(step, measured.probes), [measured], more)
            case WriteAhead(after):
                is_wanted = after == self._measured and not self.is_closed
                return Done(rest=job if is_wanted and trainer.write_ahead(self._origin, after) else None)
            case TakeDigest(frontier_digest):
                return Done(ReplicaDigest(frontier_digest, trainer.digest()))
            case SumEpoch(epoch, frontier):
                return Done(ClosedEpoch(epoch, frontier, trainer.replica.sum_epoch(epoch)))
            case Adopt() | Seal() | Replay():
                self._take_from_journal(job)
            case Refill(sums, pages):
                before = trainer.digest()
                trainer.rebuild(self._elsewhere(sums), self._elsewhere(pages))
                return Done(Remade(trainer.digest() != before))
        return Done()

    def _take_from_journal(self, job: Adopt | Seal | Replay) -> None:
        replica = self._trainer.replica
        match job:
            case Adopt(closed, others):
                updates = [update for bundle in others for update in bundle.updates()]
                replica.adopt(closed.epoch, closed.coefficients, updates)
            case Seal(epoch):
                replica.seal(epoch)
            case Replay(pages):
                replica.replay(self._elsewhere(pages))

    def _elsewhere(self, items: Iterator[Item]) -> Iterator[Item]:
        """Each item is made on the loop, where the journal is, while the job waits."""

        def give(answer: "Future[Item | None]") -> None:
            try:
                if self.is_closed:
                    raise RuntimeError("the node is going")
                answer.set_result(next(items, None))
            except BaseException as error:
                answer.set_exception(error)

        while True:
            answer: Future[Item | None] = Future()
            self._loop.call_soon_threadsafe(give, answer)
            if (item := answer.result()) is None:
                return
            yield item
