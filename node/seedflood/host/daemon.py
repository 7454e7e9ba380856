"""The daemon: one event loop, one compute thread, and the driver between them.

Everything that happens is a callback on the loop that ends in the driver; everything the driver wants done leaves
through the methods it finds here. A fault of this host (disk, model) ends the daemon; nothing a peer says or does ends
it, except that every configured peer belongs to another run.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import structlog

from seedflood.config import Settings, is_loopback
from seedflood.errors import DivergenceError, JournalError, PeerError, RunMismatchError, SeedfloodError, SupersededError
from seedflood.host.compute_thread import ComputeThread, Result
from seedflood.host.seedflood.compute_adapter import ComputeAdapter
from seedflood.host.seedflood.driver import SeedfloodDriver
from seedflood.host.seedflood.results import Results
from seedflood.host.status_source import StatusSource
from seedflood.identity import Identity, verify
from seedflood.operations.console import Console
from seedflood.operations.seedflood.observer import SeedfloodObserver
from seedflood.protocol.frontier import Held
from seedflood.protocol.origin import OriginId
from seedflood.protocol.packing import packed_bytes_max
from seedflood.protocol.seedflood.messages import Bundle, ClosedEpoch
from seedflood.protocol.seedflood.node import Node
from seedflood.protocol.seedflood.outputs import ClosedWindow, Measure
from seedflood.protocol.seedflood.rules import Rules
from seedflood.protocol.swarm.messages import NEIGHBOURS_MAX, Hello, Member, Message
from seedflood.protocol.swarm.outputs import Event
from seedflood.protocol.swarm.rules import Patience
from seedflood.storage.journal import Journal
from seedflood.storage.snapshots import Snapshots
from seedflood.training.seedflood.optimiser import STEP_MAX
from seedflood.training.seedflood.trainer import Round, Trainer
from seedflood.transport.answer import AnswerItem
from seedflood.transport.budget import Use
from seedflood.transport.health import Health
from seedflood.transport.links import Links
from seedflood.transport.owner import LinkSettings

DRAIN_SECONDS = 5.0
"""For queued frames and goodbyes to reach the neighbours."""

COMPUTE_SECONDS = 10.0
"""For the job that runs when the daemon closes."""

LINKS_MIN = 64
"""A node takes twice as many links as there are clients, and so many in a small run."""

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
        console: Console,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        run, node, seedflood = settings.run, settings.node, settings.run.seedflood
        self.settings = settings
        self.hub = hub = console.hub
        self._console = console
        self.ended: asyncio.Future[None] = loop.create_future()
        self.result: dict[str, Any] | None = None
        self.port = 0
        self._loop = loop
        self._identity = identity
        self._trainer = trainer
        self._journal = journal
        self._compute = compute
        self._timer: asyncio.TimerHandle | None = None
        self._dialled: set[str] = set()
        self._mismatches: set[str] = set()
        self._was_linked = False
        self._news = 0
        self._was_ready = False
        self._oddities: Counter[str] = Counter()
        self.is_compute_idle = True
        incarnation = journal.next_incarnation(at_least=int(time.time()))
        rules = Rules(
            run_id=run.run_id(),
            base_digest=trainer.base_digest,
            clients=run.clients,
            steps=run.steps,
            window=seedflood.window,
            local_steps=seedflood.local_steps,
            refresh_period=seedflood.refresh_period,
            epoch_bytes=trainer.epoch_bytes,
            telling=trainer.telling,
            delay=seedflood.delay,
            step_reach=None if seedflood.optimizer == "sgd" else int(STEP_MAX),
            run_seed=run.seed,
        )
        member = Member(identity.public_key, node.name, incarnation)
        patience = Patience(start_seconds=node.start_seconds, linger_seconds=node.linger_seconds)
        self.node = Node(rules, member, identity.sign, verify, patience=patience)
        links_max = min(max(LINKS_MIN, 2 * run.clients), NEIGHBOURS_MAX)
        self._health = Health(has_reflection=node.reflection)
        link_settings = LinkSettings(node.listen, links_max, packed_bytes_max(trainer.epoch_bytes))
        self.links = Links(link_settings, self, add_services=self._health.add_to)
        self._results = Results(settings, trainer, hub, self._run)
        self._adapter = ComputeAdapter(
            identity.origin, trainer, self._run, self._drive, measured=self._measured, snapshots=snapshots
        )
        self._adapter.answers = self._driver = SeedfloodDriver(self.node, journal, self, self._adapter, self, loop.time)
        shown = (settings, self.node, self._driver, self.links, journal, loop.time)
        self.status_source = StatusSource(*shown, parameters=trainer.parameters, incarnation=incarnation)
        hub.subject = self.status_source
        self._observer = SeedfloodObserver(hub, seedflood, self.status_source.find_update)

    @property
    def address(self) -> str | None:
        """Where HTTP is served."""
        return self._console.address

    async def start(self) -> None:
        """Goes on with what the journal holds, then listens and dials. Raises SeedfloodError."""
        addresses = [peer.address for peer in self.settings.peers]
        listen = self.settings.node.listen
        if listen:
            self.port = await self.links.start()
        self._results.evaluate_before()
        members = self._journal.members()
        past = (self._journal.damage is not None, self._identity.is_fresh)
        self._drive(lambda: self._driver.start(members, is_journal_damaged=past[0], is_key_fresh=past[1]))
        self.dial(addresses)
        if not all(is_loopback(address) for address in (*addresses, listen) if address):
            _log.warning("links are not encrypted: [tls] insecure = true")
        self.hub.tell(
            "started",
            origin=self._identity.fingerprint,
            port=self.port,
            incarnation=self.status_source.incarnation,
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
        self.status_source.is_draining = True
        if not self.status_source.is_finished:
            self._drive(self._driver.leave)
            self._end()
        elif self.result is not None:
            self._end()
        self._tell_ready()

    async def close(self) -> None:
        """Flushes, says goodbye, closes links, journal, thread, console. Nothing is left, unless a job runs on for so
        long that it is not waited for; then `is_compute_idle` is False."""
        self._end()
        await self.links.drain(0.0 if self._driver.is_halted else DRAIN_SECONDS)
        await self.links.close()
        if self._timer is not None:
            self._timer.cancel()
        await self._adapter.close()
        self._close_journal()
        self.is_compute_idle = await asyncio.to_thread(self._compute.close, COMPUTE_SECONDS)
        await self._console.close()

    # What the links tell (transport.links.Owner)

    def hello(self) -> Hello:
        return self._driver.hello()

    def is_welcome(self, hello: Hello) -> None:
        self.node.admission.check_hello(hello)

    def connected(self, peer: OriginId, hello: Hello) -> None:
        self._was_linked = True
        self.hub.connected(peer, hello.member.name, is_dialled=self.links.open[peer].is_dialled)
        self._drive(lambda: self._driver.connected(peer, hello))

    def received(self, peer: OriginId, message: Message) -> Use:
        node, refused = self.node, self.node.admission.refused
        news, repeats, vain, useless = self._news, node.duplicates, node.admission.in_vain, sum(refused.values())
        self._drive(lambda: self._driver.received(peer, message))
        vain = node.admission.in_vain - vain
        useless = sum(refused.values()) - useless - vain
        return Use(self._news - news, node.duplicates - repeats + useless, vain)

    def pulled(self, peer: OriginId, is_complete: bool) -> None:
        self._drive(lambda: self._driver.pulled(peer))

    def progressed(self, peer: OriginId) -> None:
        self._driver.progressed(peer)

    def disconnected(self, peer: OriginId, reason: str) -> None:
        self.hub.disconnected(peer, reason)
        self._drive(lambda: self._driver.disconnected(peer, reason))

    def pull_answer(self, frontier: tuple[Held, ...]) -> Iterator[AnswerItem]:
        return self._driver.answer(frontier)

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

    # What the driver asks (seams.Links, seams.Observer)

    def send(self, peer: OriginId, messages: Sequence[Message]) -> None:
        self.links.send(peer, messages)

    def pull(self, peer: OriginId, frontier: tuple[Held, ...]) -> None:
        self.links.pull(peer, frontier)

    def noted(self, event: Event) -> None:
        self._observer.noted(event)

    def adopted(self, closed: ClosedEpoch, source: OriginId | None) -> None:
        self._observer.adopted(closed, source)

    def learned(self, bundles: Sequence[Bundle], source: OriginId | None) -> None:
        self._news += len(bundles)
        self._observer.learned(bundles, source)

    def sent(self, peer: OriginId, message: Message) -> None:
        self._observer.sent(peer, message)

    def applied(self, window: ClosedWindow) -> None:
        self._observer.applied(window)
        node, steps = self.settings.node, self.settings.run.steps
        step = window.steps[1] + 1
        self._results.evaluate_on_the_way(step)
        if window.steps[0] <= window.steps[1] and self._results.report.is_due(
            self._loop.time(), 0.0 if step >= steps else node.progress_seconds
        ):
            hub = self.hub
            _log.info(
                "progress",
                step=step,
                steps=steps,
                loss=hub.loss,
                step_seconds=round(hub.step_seconds or 0.0, 4),
                spent_seconds=round(hub.spent_seconds() or 0.0, 3),
                sent_bytes=sum(counters.bytes_sent for counters in self.links.stats().values()),
                waited_seconds=round(window.waited_seconds, 4),
                heard=window.heard,
                late=hub.tally.late,
                refused=sum(self.node.admission.refused.values()),
                dropped=sum(counters.updates_dropped for counters in self.links.stats().values()),
                peers=len(self.links.peers),
            )

    def finished(self) -> None:
        """The run is over: final figures, export, the result on stdout; then go, or stay to serve."""
        self.status_source.is_finished = True
        self._results.conclude(self._conclude)

    def superseded(self) -> None:
        self.failed(SupersededError(self.settings.node.name, self._identity.fingerprint))

    def _measured(self, order: Measure, measured: Round) -> None:
        self._identity.use()
        loss = round(measured.loss, 4) if measured.is_finite else None
        self.hub.measured(order.step, order.count, loss, measured.seconds)
        if not measured.is_finite:
            self._warn("the loss is not finite; the update counts as zero", order.step)
        if measured.is_clipped:
            self._warn("a scalar was clipped; the learning rate may be too high", order.step)

    def _warn(self, sentence: str, step: int) -> None:
        """The first time, and whenever it has happened twice as often: a run that went wrong says so at every step."""
        self._oddities[sentence] += 1
        times = self._oddities[sentence]
        if times & (times - 1) == 0:
            self.hub.tell(sentence, "warning", step=step, times=times)

    # The end

    def _conclude(self, digest: bytes) -> None:
        node = self.settings.node
        report = self._results.report
        self.result = {
            "name": node.name,
            "run_id": self.settings.run.run_id().hex(),
            "origin": self._identity.fingerprint,
            "steps": self.node.step,
            **report.figures(),
            "digest": digest.hex(),
            "updates": self.node.frontier.count(),
            "late_updates": self.hub.tally.late,
            "duplicates": self.node.duplicates,
            "spent_seconds": round(self.hub.spent_seconds() or 0.0, 3),
            "seconds_since_start": round(time.monotonic() - report.began, 3),
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
        self._results.publish(self.result)
        if self.node.is_doubted:
            self.failed(
                DivergenceError(
                    "the run is over, but a neighbour's replica differs; compare `seedflood replay` on both hosts."
                )
            )
        elif node.when_finished == "exit":
            self._end()
        else:
            self.hub.tell("serving late comers until stopped")

    def _end(self) -> None:
        if not self.ended.done():
            self.ended.set_result(None)

    # Small things

    def _close_journal(self) -> None:
        try:
            self._journal.close()
        except JournalError as error:
            _log.error("the journal was not closed well; what neighbours have of it is pulled again", reason=str(error))

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
        is_ready = self.node.is_ready and not self.status_source.is_draining
        if is_ready != self._was_ready:
            self._was_ready = is_ready
            self._health.tell(is_serving=is_ready)
            pulled = sum(counters.pull_bytes_received for counters in self.links.stats().values())
            self.hub.tell("ready" if is_ready else "not ready", step=self.node.step, pull_bytes=pulled)
