"""The daemon: one event loop, one compute thread, and the driver between them.

Everything that happens is a callback on the loop that ends in the driver; everything the driver wants done leaves
through the methods it finds here. A fault of this host (disk, model) ends the daemon; nothing a peer says or does ends
it, except that every configured peer belongs to another run.
"""

import asyncio
import json
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

import structlog

from seedflood.compute import ComputeThread
from seedflood.config import Settings, is_loopback
from seedflood.driver import Driver
from seedflood.errors import DivergenceError, JournalError, PeerError, RunMismatchError, SeedfloodError
from seedflood.identity import Identity, verify
from seedflood.protocol.messages import ClosedEpoch, Held, Hello, Member, Members, Message, OriginId, Updates
from seedflood.protocol.node import Node
from seedflood.protocol.outputs import ClosedWindow, Event, Measure
from seedflood.protocol.rules import Patience, Rules
from seedflood.report import RESULT_FILE, Figures, Report
from seedflood.storage.journal import Journal
from seedflood.storage.snapshots import Snapshots
from seedflood.training.trainer import Round, Trainer
from seedflood.transport.answer import AnswerItem
from seedflood.transport.links import Links, LinkSettings
from seedflood.workbench import Workbench

DRAIN_SECONDS = 5.0
"""For queued frames and goodbyes to reach the neighbours."""

COMPUTE_SECONDS = 10.0
"""For the job that runs when the daemon closes."""

PULL_BUNDLES = 256
"""Read from the journal at once for a neighbour."""

Result = TypeVar("Result")

_log = structlog.stdlib.get_logger("seedflood")


class Daemon:
    """One node of one run. `start` it, await `ended`, `close` it.

    ended: done when the run is over or `drain` was called; holds the SeedfloodError if a fault ended the daemon.
    """

    def __init__(
        self,
        settings: Settings,
        identity: Identity,
        trainer: Trainer,
        journal: Journal,
        snapshots: Snapshots | None,
        compute: ComputeThread,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        run, node = settings.run, settings.node
        self.settings = settings
        self.ended: asyncio.Future[None] = loop.create_future()
        self.result: dict[str, Any] | None = None
        self.port = 0
        self._loop = loop
        self._identity = identity
        self._trainer = trainer
        self._journal = journal
        self._compute = compute
        self._report = Report(node.state / RESULT_FILE)
        self._timer: asyncio.TimerHandle | None = None
        self._dialled: set[str] = set()
        self._mismatches: set[str] = set()
        self._was_linked = False
        self._is_over = False
        self._was_ready = False
        self.is_compute_idle = True
        self._incarnation = journal.next_incarnation(at_least=int(time.time()))
        rules = Rules(
            run_id=run.run_id(),
            base_digest=trainer.base_digest,
            clients=run.clients,
            steps=run.steps,
            window=run.window,
            local_steps=run.local_steps,
            refresh_period=run.refresh_period,
            epoch_bytes=trainer.epoch_bytes,
        )
        member = Member(identity.public_key, node.name, self._incarnation)
        patience = Patience(start_seconds=node.start_seconds, linger_seconds=node.linger_seconds)
        self.node = Node(rules, member, identity.sign, verify, patience=patience)
        self.links = Links(LinkSettings(node.listen, run.canonical()), self)
        self._workbench = Workbench(
            identity.origin, trainer, self._run, self._drive, measured=self._measured, snapshots=snapshots
        )
        self._workbench.answers = self._driver = Driver(self.node, journal, self, self._workbench, self, loop.time)

    async def start(self) -> None:
        """Goes on with what the journal holds, then listens and dials. Raises SeedfloodError."""
        addresses = [peer.address for peer in self.settings.peers]
        listen = self.settings.node.listen
        if listen:
            self.port = await self.links.start()
        self._evaluate_before()
        members = self._journal.members()
        self._drive(lambda: self._driver.start(members, is_journal_damaged=self._journal.damage is not None))
        self.dial(addresses)
        if not all(is_loopback(address) for address in (*addresses, listen) if address):
            _log.warning("links are not encrypted: [tls] insecure = true")
        _log.info(
            "started",
            origin=self._identity.fingerprint,
            port=self.port,
            incarnation=self._incarnation,
            peers=len(addresses),
            journal_bundles=self._journal.count(),
            step=self.node.step,
        )

    def dial(self, addresses: Iterable[str]) -> None:
        """These peers, and no others, are dialled from now on."""
        self._dialled = set(addresses)
        self._mismatches &= self._dialled
        self.links.dial(self._dialled)

    def drain(self) -> None:
        """Goes in peace: nothing is published any more, the neighbours are told, `close` flushes.

        When the run is over already, its result comes first.
        """
        if not self._is_over:
            self._drive(self._driver.leave)
            self._end()
        elif self.result is not None:
            self._end()

    async def close(self) -> None:
        """Flushes, says goodbye, closes links, journal and thread. Nothing is left, unless a job runs on for so long
        that it is not waited for; then `is_compute_idle` is False."""
        self._end()
        await self.links.drain(0.0 if self._driver.is_halted else DRAIN_SECONDS)
        await self.links.close()
        if self._timer is not None:
            self._timer.cancel()
        await self._workbench.close()
        self._close_journal()
        self.is_compute_idle = await asyncio.to_thread(self._compute.close, COMPUTE_SECONDS)

    # What the links tell (transport.links.Owner)

    def hello(self) -> Hello:
        return self._driver.hello()

    def is_welcome(self, hello: Hello) -> None:
        self.node.admission.check_hello(hello)

    def connected(self, peer: OriginId, hello: Hello) -> None:
        self._was_linked = True
        self._drive(lambda: self._driver.connected(peer, hello))

    def received(self, peer: OriginId, message: Message) -> None:
        self._drive(lambda: self._driver.received(peer, message))

    def pulled(self, peer: OriginId, is_complete: bool) -> None:
        self._drive(lambda: self._driver.pulled(peer))

    def disconnected(self, peer: OriginId, reason: str) -> None:
        self._drive(lambda: self._driver.disconnected(peer, reason))

    def pull_answer(self, frontier: tuple[Held, ...]) -> Iterator[AnswerItem]:
        yield Members(self.node.membership.all())
        for found in self._journal.read_missing(frontier, limit=PULL_BUNDLES):
            yield found if isinstance(found, ClosedEpoch) else Updates(tuple(found))
        if self.node.standing is not None:
            yield self.node.standing

    def refused(self, address: str, error: SeedfloodError) -> None:
        """If nobody we dial is of our run, and nobody ever was, then it is we who are wrong."""
        if isinstance(error, RunMismatchError):
            self._mismatches.add(address)
            if not self._was_linked and self._mismatches >= self._dialled:
                self.failed(error)

    def failed(self, error: BaseException) -> None:
        """A fault of this host: from here on it says and does nothing more."""
        self._driver.halt()
        if not self.ended.done():
            self.ended.set_exception(error)

    # What the driver asks (driver.Links, driver.Observer)

    def send(self, peer: OriginId, messages: Sequence[Message]) -> None:
        self.links.send(peer, messages)

    def pull(self, peer: OriginId, frontier: tuple[Held, ...]) -> None:
        self.links.pull(peer, frontier)

    def noted(self, event: Event) -> None:
        _log.log(logging.getLevelNamesMapping()[event.level.upper()], event.name, **event.facts)

    def applied(self, window: ClosedWindow) -> None:
        report, node, steps = self._report, self.settings.node, self.settings.run.steps
        step = window.steps[1] + 1
        report.late += window.late
        if node.evaluate_every and step - report.evaluated_at >= node.evaluate_every and step < steps:
            report.evaluated_at = step
            self._evaluate(step, _nothing)
        if window.steps[0] <= window.steps[1] and report.is_due(
            self._loop.time(), 0.0 if step >= steps else node.progress_seconds
        ):
            _log.info(
                "progress",
                step=step,
                steps=steps,
                loss=report.loss,
                step_seconds=round(report.step_seconds, 4),
                waited_seconds=round(window.waited_seconds, 4),
                heard=window.heard,
                late=report.late,
                refused=sum(self.node.admission.refused.values()),
                dropped=sum(counters.updates_dropped for counters in self.links.stats().values()),
                peers=len(self.links.peers),
            )

    def finished(self) -> None:
        """The run is over: final figures, export, the result on stdout; then go, or stay to serve."""
        self._is_over = True
        self._run(self._trainer.complete, _nothing)
        if self.settings.node.evaluate:
            self._evaluate(self.settings.run.steps, self._report.after.update)
        folder = self.settings.node.export
        if folder is not None:
            self._run(lambda: self._trainer.export(folder), lambda path: _log.info("exported", folder=str(path)))
        self._run(self._trainer.digest, self._conclude)

    def _measured(self, order: Measure, measured: Round) -> None:
        self._report.loss = round(measured.loss, 4) if measured.is_finite else None
        self._report.step_seconds = measured.seconds / order.count
        if not measured.is_finite:
            _log.warning("the loss is not finite; the update counts as zero", step=order.step)
        if measured.is_clipped:
            _log.warning("a scalar was clipped; the learning rate may be too high", step=order.step)

    # The end

    def _conclude(self, digest: bytes) -> None:
        node = self.settings.node
        self.result = {
            "name": node.name,
            "run_id": self.settings.run.run_id().hex(),
            "origin": self._identity.fingerprint,
            "steps": self.node.step,
            **self._report.figures(),
            "digest": digest.hex(),
            "updates": self.node.frontier.count(),
            "late_updates": self._report.late,
            "duplicates": self.node.duplicates,
            "seconds_since_start": round(time.monotonic() - self._report.began, 3),
            "links": [
                {
                    "peer": name,
                    "bytes_sent": counters.bytes_sent,
                    "bytes_received": counters.bytes_received,
                    "pull_bytes_received": counters.pull_bytes_received,
                }
                for name, counters in sorted(self.links.stats().items())
            ],
        }
        self._keep_report(self.result)
        _log.info("finished", digest=digest.hex()[:16], steps=self.node.step)
        try:
            print(json.dumps(self.result), flush=True)
        except OSError as error:
            _log.warning("nobody reads stdout; the result is in the state folder", reason=str(error))
        if self.node.is_doubted:
            self.failed(
                DivergenceError(
                    "the run is over, but a neighbour's replica differs; compare `seedflood replay` on both hosts."
                )
            )
        elif node.when_finished == "exit":
            self._end()
        else:
            _log.info("serving late comers until stopped")

    def _end(self) -> None:
        if not self.ended.done():
            self.ended.set_result(None)

    # Small things

    def _keep_report(self, result: dict[str, Any] | None = None) -> None:
        try:
            self._report.keep(result)
        except JournalError as error:  # figures are no reason to end: a full disk may have space again
            _log.warning("figures were not kept", reason=str(error))

    def _close_journal(self) -> None:
        try:
            self._journal.close()
        except JournalError as error:
            _log.error("the journal was not closed well; what neighbours have of it is pulled again", reason=str(error))

    def _evaluate_before(self) -> None:
        """Figures of the base model: measured in the first life of a node, remembered in all later ones."""
        if self.settings.node.evaluate and not self._report.recall():

            def remember(figures: Figures) -> None:
                self._report.before = figures
                self._keep_report()

            self._evaluate(0, remember)

    def _evaluate(self, step: int, then: Callable[[Figures], None]) -> None:
        def evaluate() -> Figures:
            result = self._trainer.evaluate()
            return {"accuracy": round(result.accuracy, 6), "loss": round(result.loss, 6), "rows": result.rows}

        def tell(figures: Figures) -> None:
            _log.info("evaluated", step=step, **figures)
            then(figures)

        self._run(evaluate, tell)

    def _run(self, job: Callable[[], Result], then: Callable[[Result], None]) -> None:
        """A job for the compute thread; `then` on the loop. Any exception of either is a fault of this host."""

        def deliver(future: "asyncio.Future[Result]") -> None:
            if future.cancelled() or self._driver.is_halted:
                return
            try:
                then(future.result())
            except BaseException as error:
                self.failed(error)

        if not self.ended.done():
            self._compute.run(job).add_done_callback(deliver)

    def _drive(self, action: Callable[[], None]) -> None:
        """Every entry into the driver: afterwards the timer stands where the core wants it next. Raises PeerError."""
        try:
            action()
        except PeerError:
            raise
        except Exception as error:
            self.failed(error)
        finally:
            self._set_timer()
            self._tell_ready()

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if not self.ended.done():
            self._timer = self._loop.call_later(self._driver.seconds_to_tick(), self._drive, self._driver.tick)

    def _tell_ready(self) -> None:
        if self.node.is_ready != self._was_ready:
            self._was_ready = self.node.is_ready
            pulled = sum(counters.pull_bytes_received for counters in self.links.stats().values())
            _log.info("ready" if self._was_ready else "not ready", step=self.node.step, pull_bytes=pulled)


def _nothing(_: object) -> None:
    """For jobs whose result nobody needs."""
