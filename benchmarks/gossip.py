"""A node that trains by GASLoC without a daemon around it: node, driver, journal, links, files and trainer are the real
ones, on one loop and a compute thread. It notes when what happened, and what memory an exchange takes.

A frame of another kind goes to the neighbour every few milliseconds while parameters travel, through the same queue
and over the same link. Both ends read one clock, so it shows how long other traffic waits: in the queue of the link,
in both loops, and behind chunks on their way.
"""

import asyncio
import struct
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.shell import Shell
from seedflood.host.compute import Compute, ComputeThread, Result
from seedflood.host.driver import Driver
from seedflood.host.gasloc.files import Incoming
from seedflood.host.gasloc.work import Resumed, Trouble, Work
from seedflood.identity import Identity, verify
from seedflood.protocol.gasloc.node import GaslocNode
from seedflood.protocol.gasloc.orders import Encode, Mix, Order
from seedflood.protocol.gasloc.rules import GaslocRules, Habits
from seedflood.protocol.origin import OriginId
from seedflood.protocol.swarm.messages import Member, Message, Opaque
from seedflood.protocol.swarm.outputs import Event
from seedflood.storage.journal import Journal
from seedflood.storage.snapshots import Snapshots
from seedflood.training.gasloc.outer import Mixed
from seedflood.training.gasloc.trainer import Trainer
from seedflood.training.gasloc.worker import LocalSteps
from seedflood.transport.budget import Use
from seedflood.transport.credentials import Credentials
from seedflood.transport.links import Links
from seedflood.transport.owner import LinkSettings

PROBE_SECONDS = 0.005
_PROBE = struct.Struct(">Bd")
_PROBE_KIND = 0xFF
"""No message of GASLoC begins so."""


@dataclass(slots=True)
class Round:
    """Moments of the clock of the machine. stepped_at: local steps are done. offered_at: the parameters are encoded.
    arrived_at: all bytes of the partner are here. mixed_at: the outer step is done; 0.0 if that never was.
    number: under which it was exchanged; a host that is behind takes the number of its partner. -1 before that.

    extra_bytes: the peak of resident memory from stepped_at to mixed_at, less what was there at stepped_at.
    """

    stepped_at: float
    offered_at: float = 0.0
    arrived_at: float = 0.0
    mixed_at: float = 0.0
    extra_bytes: int = 0
    number: int = -1


@dataclass(slots=True)
class Notes:
    """waits: (when it came, seconds that it took) of each frame of other traffic."""

    rounds: list[Round] = field(default_factory=list)
    waits: list[tuple[float, float]] = field(default_factory=list)


class GossipHost(Shell):
    """One host. `start`, await `done`, `close`.

    done: the run is over, or something has failed (`error`).
    """

    node: GaslocNode
    driver: Driver

    def __init__(
        self,
        folder: Path,
        trainer: Trainer,
        rules: GaslocRules,
        habits: Habits,
        identity: Identity,
        listen: str = "127.0.0.1:0",
    ) -> None:
        self.notes = Notes()
        self.done = asyncio.Event()
        self.error: BaseException | None = None
        self._loop = asyncio.get_running_loop()
        self._journal = Journal.open(folder / "journal.sqlite", rules.run_id, rules.base_digest)
        incarnation = self._journal.next_incarnation(at_least=int(time.time()))
        member = Member(identity.public_key, folder.name, incarnation)
        incoming, snapshots = Incoming(folder / "incoming"), Snapshots(folder / "snapshots", 1)
        self.node = GaslocNode(rules, member, identity.sign, verify, incoming, habits)
        self._compute = ComputeThread()
        work = Work(trainer, incoming, snapshots, rules.run_id)
        work.node = self.node
        self._orders = Compute(self.run, self.drive, work.begin, self._note)
        self.driver = Driver(self.node, self._journal, self, self.put, self, self._loop.time)
        self._orders.driver = self.driver
        self.links = Links(LinkSettings(listen, has_contents=True), self, credentials=Credentials(identity))
        self._resident_before = 0
        self._mixing = -1
        self._probing = asyncio.create_task(self._probe())

    async def start(self, addresses: Sequence[str] = ()) -> int:
        port = await self.links.start()
        self.drive(lambda: self.driver.recall(self._journal.members(), self._journal.records()))
        self.links.dial(addresses)
        return port

    async def close(self) -> None:
        self.driver.halt()
        self._probing.cancel()
        await self.links.drain(1.0)
        await self.links.close()
        self.rest()
        self._compute.close(10.0)
        self._journal.close()

    # What the links tell

    def received(self, peer: OriginId, message: Message) -> Use:
        if isinstance(message, Opaque) and message.data[0] == _PROBE_KIND:
            now = self._loop.time()
            self.notes.waits.append((now, now - _PROBE.unpack(message.data)[1]))
            return Use(1)
        before = self.node.news
        self.drive(lambda: self.driver.received(peer, message))
        return Use(self.node.news - before)

    def failed(self, error: BaseException) -> None:
        self.driver.halt()
        self.error = self.error or error
        self.done.set()

    # What the driver asks

    def send(self, peer: OriginId, messages: Sequence[Message]) -> None:
        self.links.send(peer, messages)

    def noted(self, event: Event) -> None:
        if event.name == "matched":
            number, last = event.facts["round"], self.notes.rounds[-1]
            assert isinstance(number, int), "rounds are numbers"
            last.number, last.offered_at = number, self._loop.time()

    def finished(self) -> None:
        self.done.set()

    def put(self, order: Order) -> None:
        """Notes when it was given, and has it carried out."""
        match order:
            case Encode():
                self._resident_before = _reset_peak()
                self.notes.rounds.append(Round(self._loop.time()))
            case Mix():
                self._mixing = order.round
                self._find_round(order.round).arrived_at = self._loop.time()
        self._orders.put(order)

    # What the model did

    def _note(self, fact: Resumed | LocalSteps | Mixed | Trouble) -> None:
        match fact:
            case Mixed():
                one = self._find_round(self._mixing)
                one.mixed_at = self._loop.time()
                one.extra_bytes = _resident("VmHWM") - self._resident_before
            case Trouble(sentence, reason):
                self.failed(RuntimeError(f"{sentence}: {reason}"))

    # Small things

    def _find_round(self, number: int) -> Round:
        return next(one for one in reversed(self.notes.rounds) if one.number == number)

    def run(self, job: Callable[[], Result], then: Callable[[Result], None]) -> None:
        def deliver(future: "asyncio.Future[Result]") -> None:
            try:
                then(future.result())
            except BaseException as error:
                self.failed(error)

        self._compute.run(job).add_done_callback(deliver)

    async def _probe(self) -> None:
        while True:
            await asyncio.sleep(PROBE_SECONDS)
            for peer in self.links.open:
                self.links.send(peer, [Opaque(_PROBE.pack(_PROBE_KIND, self._loop.time()))])


def _reset_peak() -> int:
    """The peak of this process begins anew. Returns its resident bytes now."""
    Path("/proc/self/clear_refs").write_text("5")
    return _resident("VmRSS")


def _resident(name: str) -> int:
    status = Path("/proc/self/status").read_text()
    return int(status.partition(f"{name}:")[2].split()[0]) * 1024
