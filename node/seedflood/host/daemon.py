"""The daemon: one event loop, one compute thread, and the driver between them.

Every event is a callback on the loop that calls the driver. What the driver wants done, it does through the methods of
this class. A fault of this host (disk, model) ends the daemon. No peer can end it, with two exceptions: every peer that
we dial belongs to another run (in a closed run: and has proven to be on the roster), or a newer process with our key
appears.
"""

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from seedflood.config import Settings
from seedflood.errors import JournalError, PeerError, RemovedError, RunMismatchError, SeedfloodError, SupersededError
from seedflood.host.clocks import Clocks
from seedflood.host.compute import ComputeThread, Result
from seedflood.host.engine import Engine
from seedflood.host.enrolment import Enrolment, steady_seconds
from seedflood.host.status_source import StatusSource
from seedflood.identity import Identity
from seedflood.log import log
from seedflood.operations.console import Console
from seedflood.protocol.frontier import Held
from seedflood.protocol.origin import OriginId
from seedflood.protocol.swarm.messages import NEIGHBOURS_MAX, Hello, Member, Message
from seedflood.protocol.swarm.outputs import Event
from seedflood.protocol.swarm.roster import Roster
from seedflood.transport.answer import AnswerItem
from seedflood.transport.budget import Use
from seedflood.transport.credentials import Credentials
from seedflood.transport.links import Links
from seedflood.transport.owner import LinkSettings, Owner

DRAIN_SECONDS = 5.0
"""How long a draining node waits for queued frames and goodbyes to reach the neighbours."""

PASSING_SECONDS = 1.0
"""How long a host stays to inform relays that all hosts have ended: messages are gathered for a quarter second."""

STAYING_SECONDS = 0.2
"""How often it looks whether all hosts have ended."""

COMPUTE_SECONDS = 10.0
"""How long a closing daemon waits for the running compute job."""

LINKS_MIN = 64
"""A node accepts twice as many links as there are clients, and at least this many."""


@dataclass(eq=False, repr=False)
class Daemon(Owner):
    """One node of one run. `start` it, await `ended`, `close` it.

    ended: done when the run is over or `drain` was called. It holds the exception if a fault ended the daemon.
    """

    settings: Settings
    identity: Identity
    engine: Engine
    _compute: ComputeThread
    _console: Console
    loop: asyncio.AbstractEventLoop
    enrolment: Enrolment
    result: dict[str, Any] | None = None
    port: int = 0
    _timer: asyncio.TimerHandle | None = None
    _dialled: set[str] = field(default_factory=set)
    _mismatches: set[str] = field(default_factory=set)
    _was_linked: bool = False
    _is_removed: bool = False
    is_compute_idle: bool = True

    def __post_init__(self) -> None:
        self.hub = self._console.hub
        self.access = self.enrolment.access
        self.ended: asyncio.Future[None] = self.loop.create_future()
        self.credentials = Credentials(self.identity, proxy_of=self.settings.node.proxy_of)
        settings = LinkSettings(
            self.settings.node.listen,
            links_max=min(max(LINKS_MIN, 2 * self.settings.run.clients), NEIGHBOURS_MAX),
            epoch_bytes_max=self.engine.frame_bytes_max,
            has_contents=self.engine.has_contents,
        )
        self.links = Links(settings, self, credentials=self.credentials)
        incarnation = self.engine.journal.next_incarnation(at_least=int(time.time()))
        self.engine.daemon = self
        self.engine.assemble(Member(self.identity.public_key, self.settings.node.name, incarnation))
        self.node, self._driver = self.engine.node, self.engine.driver
        assert self.node.access is self.access or not self.access.is_closed, (
            "an engine that asks nobody who belongs to the run"
        )
        self._driver.keep_roster = self.enrolment.keep
        self.clocks = Clocks(self.access, steady_seconds)
        self.status_source = StatusSource(self.engine, self.links, self.loop.time, self.clocks, incarnation=incarnation)
        self.hub.subject = self.status_source
        self.hub.take_roster = self.take_roster

    @property
    def address(self) -> str | None:
        """The address at which HTTP is served; None if it is not."""
        return self._console.address

    async def start(self) -> None:
        """Listens, resumes from the journal, then dials. Raises SeedfloodError."""
        addresses = [peer.address for peer in self.settings.peers]
        if self.settings.node.listen:
            self.port = await self.links.start()
        self.drive(self.engine.start)
        self.dial(addresses, self.settings.pins)
        if not self.access.is_closed:
            log.info("the run is open: whoever knows its settings may take part; [run] operator closes it")
        sizes: dict[str, Any] = {f"journal_{kind}": count for kind, count in self.engine.journal.size().items()}
        self.hub.log(
            "started",
            origin=self.identity.fingerprint,
            port=self.port,
            incarnation=self.status_source.incarnation,
            peers=len(addresses),
            proxy=self.settings.node.proxy or None,
            step=self.node.step,
            roster=self.access.roster.serial if self.access.roster is not None else None,
            **sizes,
        )

    def dial(self, addresses: Iterable[str], pins: Mapping[str, bytes] = MappingProxyType({})) -> None:
        """Sets the addresses that are dialled from now on, and the keys that are expected at some of them."""
        self._dialled = set(addresses)
        self._mismatches &= self._dialled
        self.links.dial(self._dialled, pins)

    def enrol(self, roster: Roster) -> None:
        """The operator has put a roster here that is signed for this run."""
        self.drive(lambda: self._driver.enrol(roster))

    async def take_roster(self, data: bytes) -> int:
        """The operator has sent a roster file. Returns the serial that counts here now. Raises ConfigError."""
        self.enrol(await asyncio.to_thread(self.enrolment.parse, data))
        assert self.access.roster is not None, "it was adopted, or there was a newer one"
        return self.access.roster.serial

    def drain(self) -> None:
        """Leaves the run: publishes nothing more, says goodbye to the neighbours, and sets `ended`. `close` then
        flushes.

        If the run is over already, `ended` waits for its result.
        """
        self.status_source.is_draining = True
        if not self.status_source.is_finished:
            self.drive(self._driver.leave)
            self._end()
        elif self.result is not None:
            self._end()
        self.status_source.log_changes(self.hub)

    async def close(self) -> None:
        """Flushes, says goodbye, closes links, journal, compute thread and console. A compute job that takes too long
        is left running; then `is_compute_idle` is False."""
        self._end()
        is_faulty = self._driver.is_halted and not self._is_removed
        await self.links.drain(0.0 if is_faulty else DRAIN_SECONDS)  # the others may know of a removal by us alone
        await self.links.close()
        if self._timer is not None:
            self._timer.cancel()
        await self.engine.close()
        try:
            self.engine.journal.close()
        except JournalError as error:
            log.error("closing the journal failed; the next start pulls what is missing", reason=str(error))
        self.is_compute_idle = await asyncio.to_thread(self._compute.close, COMPUTE_SECONDS)
        await self._console.close()

    def wait_for_compute(self) -> None:
        """After `close`: waits for a compute job that was left running. Blocks."""
        self._compute.close(None)
        self.is_compute_idle = True

    # What the links report (transport.links.Owner)

    def hello(self) -> Hello:
        return replace(self._driver.hello(), clock=max(0, int(self.access.calendar())))

    def is_welcome(self, hello: Hello) -> None:
        self.clocks.compare(hello)
        self.drive(lambda: self._driver.check_hello(hello))

    def connected(self, peer: OriginId, hello: Hello) -> None:
        self._was_linked = True
        self.hub.connected(peer, hello.member.name, is_dialled=self.links.open[peer].is_dialled)
        self.drive(lambda: self._driver.connected(peer, hello))

    def received(self, peer: OriginId, message: Message) -> Use:
        before = self.engine.used()
        self.drive(lambda: self._driver.received(peer, message))
        return self.engine.used().since(before)

    def pulled(self, peer: OriginId, is_complete: bool) -> None:
        self.drive(lambda: self._driver.pulled(peer))

    def progressed(self, peer: OriginId) -> None:
        self._driver.progressed(peer)

    def disconnected(self, peer: OriginId, reason: str) -> None:
        self.hub.disconnected(peer, reason)
        self.drive(lambda: self._driver.disconnected(peer, reason))

    def next_content(self, peer: OriginId) -> bytes | None:
        return self._driver.next_content(peer)

    def pull_answer(self, frontier: tuple[Held, ...]) -> Iterator[AnswerItem]:
        return self._driver.answer(frontier)

    def refused(self, address: str, error: SeedfloodError) -> None:
        """Ends the daemon if all peers that we dial belong to another run, and we never had a link. In a closed run
        only the word of hosts counts that have proven to be on the roster."""
        if isinstance(error, RunMismatchError) and self.access.may_link(error.public_key or b""):
            self._mismatches.add(address)
            if not self._was_linked and self._mismatches >= self._dialled:
                self.failed(error)

    def failed(self, error: BaseException) -> None:
        """A fault of this host: halts the driver and ends the daemon with this error."""
        self._driver.halt()
        if not self.ended.done():
            self.ended.set_exception(error)

    # What the driver reports (seams.Observer)

    def noted(self, event: Event) -> None:
        self.hub.noted(event)

    def sent(self, peer: OriginId, message: Message) -> None:
        """Nobody counts messages here, but of bundles (`operations/seedflood/observer`)."""

    def finished(self) -> None:
        """The run is over: final figures, export, the result on stdout. Then ends the daemon, or keeps serving."""
        self.status_source.is_finished = True
        self.engine.conclude(self._conclude)

    def superseded(self) -> None:
        self.failed(SupersededError(self.settings.node.name, self.identity.fingerprint))

    def removed(self) -> None:
        serial = self.access.roster.serial if self.access.roster is not None else 0
        self._is_removed = True
        self.failed(
            RemovedError(f"the operator has removed this host from the run (roster {serial}); the others refuse it")
        )

    # The end

    def _conclude(self) -> None:
        run, node, report = self.settings.run, self.settings.node, self.engine.report
        result = {
            "name": node.name,
            "run_id": run.run_id().hex(),
            "run": run.name,
            "mode": run.mode,
            "origin": self.identity.fingerprint,
            "steps": self.node.step,
            "spent_seconds": round(self.hub.spent_seconds() or 0.0, 3),
            **self.engine.result(),
            "seconds_since_start": round(time.monotonic() - report.began, 3),
            "links": [
                {
                    "peer": name,
                    "bytes_sent": counters.bytes_sent,
                    "bytes_received": counters.bytes_received,
                    "pull_bytes_received": counters.pull_bytes_received,
                }
                for name, counters in self.links.totals.stats().items()
            ],
        }
        self.result = report.end(result)
        self.hub.log("finished", digest=str(self.result.get("digest", ""))[:16], steps=self.node.step)
        report.publish(self.result)
        if (fault := self.engine.fault()) is not None:
            self.failed(fault)
        elif self.status_source.is_draining:
            self._end()  # who asked us to stop has waited for the result alone
        elif node.then == "serve":
            self.hub.log("the run is over; serving nodes that join late until stopped")
        elif any(member.is_relay for member in self.status_source.view().members):
            self.hub.log(
                "the run is over; staying until all hosts have ended or left it, so that every relay learns of that"
            )
            self._stay(self.loop.time() + node.patience_seconds)
        else:
            self._end()

    def _stay(self, until: float) -> None:
        """Ends the daemon when all hosts have ended or left and it has passed that on, at the latest at this time of
        the loop. A relay waits for all of them, and may learn it from us alone."""
        now = self.loop.time()
        if self.node.is_everyone_gone():
            until = min(until, now + PASSING_SECONDS)
        if now >= until:
            self._end()
        elif not self.ended.done():
            self.loop.call_later(STAYING_SECONDS, self._stay, until)

    def _end(self) -> None:
        if not self.ended.done():
            self.ended.set_result(None)

    # Small things

    def run(self, job: Callable[[], Result], then: Callable[[Result], None]) -> None:
        """See `compute.Run`: an exception is a fault of this host."""

        def deliver(future: "asyncio.Future[Result]") -> None:
            if future.cancelled():
                return
            future.exception()  # else asyncio would log it, though nobody cares any more
            if self._driver.is_halted:
                return
            try:
                then(future.result())
            except BaseException as error:
                self.failed(error)

        if not self.ended.done():
            self._compute.run(job).add_done_callback(deliver)

    def drive(self, action: Callable[[], None]) -> None:
        """Runs an action that calls the driver, then sets the timer for the core's next tick. Raises PeerError; any
        other exception is a fault of this host."""
        try:
            action()
        except PeerError:
            raise
        except Exception as error:
            self.failed(error)
        finally:
            self._set_timer()
            self.status_source.log_changes(self.hub)

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if not self.ended.done():
            self._timer = self.loop.call_later(self._driver.seconds_to_tick(), self.drive, self._driver.tick)
