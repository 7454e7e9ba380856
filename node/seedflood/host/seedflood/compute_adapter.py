"""The compute adapter: carries out the driver's orders on the compute thread, and answers on the loop.

It implements the seam `seams.Compute` in the daemon. Jobs run in the order in which they were ordered. So a digest
covers exactly what was ordered before it, and the sum of an epoch has exactly the frontier of its order.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from typing import TypeVar

from seedflood.host.compute_thread import Run, nothing
from seedflood.host.seedflood.auditing import Auditor
from seedflood.host.seedflood.driver import SeedfloodDriver
from seedflood.protocol.origin import OriginId
from seedflood.protocol.seedflood.messages import Bundle, ClosedEpoch, Update
from seedflood.protocol.seedflood.outputs import ClosedWindow, Measure, SumEpoch, TakeDigest
from seedflood.training.seedflood.trainer import Round, Trainer

Item = TypeVar("Item")


class ComputeAdapter:
    """driver: must be set before the first order. measured: called with every measured round, for the log. halved:
    called with how often the learning rate has been halved, after each window. auditor: measures rounds of other
    hosts, too; None: nobody does."""

    driver: SeedfloodDriver
    auditor: Auditor | None = None

    def __init__(
        self,
        origin: OriginId,
        trainer: Trainer,
        run: Run,
        drive: Callable[[Callable[[], None]], None],
        measured: Callable[[Measure, Round], None],
        halved: Callable[[int, int], None],
    ) -> None:
        """drive: runs an action that calls the driver."""
        self._origin = origin
        self._trainer = trainer
        self._run = run
        self._drive = drive
        self._measured = measured
        self._halved = halved
        self._is_closed = False

    def apply(self, window: ClosedWindow) -> None:
        def apply() -> int:
            self._trainer.replica.apply(window.updates)
            return self._trainer.replica.halvings

        self._run(apply, lambda halvings: self._halved(window.steps[1], halvings))

    def measure(self, order: Measure) -> None:
        def publish(measured: Round) -> None:
            self._measured(order, measured)
            self._drive(lambda: self.driver.published(order.step, measured.probes))

        self._run(lambda: self._trainer.measure(self._origin, order.step, order.count), publish)
        if self.auditor is not None:
            self.auditor.accompany(order)

    def digest(self, order: TakeDigest) -> None:
        def tell(digest: bytes) -> None:
            self._answer(lambda now: self.driver.node.digested(order.frontier_digest, digest, now))

        self._run(self._trainer.digest, tell)

    def sum_epoch(self, order: SumEpoch) -> None:
        def tell(packed: bytes) -> None:
            closed = ClosedEpoch(order.epoch, order.frontier, packed)
            self._answer(lambda now: self.driver.node.summed(closed, now))

        self._run(lambda: self._trainer.replica.sum_epoch(order.epoch), tell)

    def adopt(self, closed: ClosedEpoch, others: Sequence[Bundle]) -> None:
        updates = [update for bundle in others for update in bundle.updates()]
        self._run(lambda: self._trainer.replica.adopt(closed.epoch, closed.coefficients, updates), nothing)

    def replay(self, pages: Iterator[Sequence[Update]]) -> None:
        read = self._elsewhere(pages)
        self._run(lambda: self._trainer.replica.replay(read), nothing)

    def rebuild(self, closed: Iterator[ClosedEpoch], pages: Iterator[Sequence[Update]]) -> None:
        def rebuild() -> bool:
            before = self._trainer.digest()
            self._trainer.rebuild(read_closed, read_pages)
            return self._trainer.digest() != before

        read_closed, read_pages = self._elsewhere(closed), self._elsewhere(pages)

        def tell(is_changed: bool) -> None:
            self._answer(lambda now: self.driver.node.rebuilt(is_changed, now))

        self._run(rebuild, tell)

    def _answer(self, action: Callable[[float], None]) -> None:
        """Tells the node what an order asked for. action: called with the time."""
        self._drive(lambda: self.driver.do(action))

    def _elsewhere(self, items: Iterator[Item]) -> Iterator[Item]:
        """An iterator for a job on the compute thread. Each item is made on the loop, where the journal is, while the
        job waits."""
        loop = asyncio.get_running_loop()

        def give(answer: "Future[Item | None]") -> None:
            try:
                if self._is_closed:
                    raise RuntimeError("the node is going")
                answer.set_result(next(items, None))
            except BaseException as error:
                answer.set_exception(error)

        def take() -> Iterator[Item]:
            while True:
                answer: Future[Item | None] = Future()
                loop.call_soon_threadsafe(give, answer)
                item = answer.result()
                if item is None:
                    return
                yield item

        return take()

    def close(self) -> None:
        """Stops reading for jobs."""
        self._is_closed = True
