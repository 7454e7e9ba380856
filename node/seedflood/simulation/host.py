"""A simulated host: the production node and driver, over memory instead of disk, sockets and a model.

The journal keeps what a real disk keeps: everything that was appended as durable, and of the tail behind it as much as
a crash happens to spare. The model is a ledger that counts how often each update was applied, and sums scalars by
seed, modulo a prime: equal sums on two hosts mean equal coefficients.
"""

import hashlib
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from seedflood.driver import Driver
from seedflood.errors import PeerError
from seedflood.protocol.frontier import Frontier
from seedflood.protocol.messages import Bundle, Held, Member, Message, OriginId, Update, Updates, origin_id
from seedflood.protocol.node import Node
from seedflood.protocol.outputs import ClosedWindow, Event, Measure
from seedflood.protocol.rules import Patience, Rules
from seedflood.simulation.clock import Clock
from seedflood.simulation.network import Network

PULL_BUNDLES_MAX = 256
LEDGER_MODULUS = (1 << 61) - 1


class MemoryJournal:
    """What is on the disk of one host, over all its lives."""

    def __init__(self) -> None:
        self.incarnation = 0
        self.members: dict[OriginId, Member] = {}
        self.bundles: list[Bundle] = []
        self._durable = 0

    def append(self, bundles: Sequence[Bundle], members: Sequence[Member], *, durable: bool) -> int:
        self.bundles += bundles
        self.members |= {member.origin: member for member in members}
        if durable:
            self._durable = len(self.bundles)
        return len(bundles)

    def tear(self, rng: random.Random) -> int:
        """A crash: the unsynced tail is lost from a random record on. Returns how many records were lost."""
        kept = rng.randint(self._durable, len(self.bundles))
        lost = len(self.bundles) - kept
        del self.bundles[kept:]
        return lost

    def missing(self, held: tuple[Held, ...]) -> Iterator[Bundle]:
        frontier = Frontier(held)
        return (b for b in list(self.bundles) if not frontier.holds(b.origin, b.first_covered, b.last))


class Ledger:
    """A model of integers: applies updates by addition and knows which it applied."""

    def __init__(self) -> None:
        self.applied: Counter[tuple[OriginId, int]] = Counter()
        self.sum = 0

    def apply(self, update: Update) -> None:
        self.applied[update.origin, update.step] += 1
        weight = int.from_bytes(hashlib.sha256(update.seed.to_bytes(4, "big")).digest()[:8], "big")
        self.sum = (self.sum + weight * update.scalar) % LEDGER_MODULUS


@dataclass(frozen=True, slots=True)
class Pace:
    """How long a host measures one step: uniform between the two, in seconds."""

    seconds_min: float = 0.05
    seconds_max: float = 0.15


class Host:
    """One host: it can be started, crashed and started again; journal and key survive."""

    def __init__(
        self,
        index: int,
        rules: Rules,
        clock: Clock,
        network: Network,
        rng: random.Random,
        *,
        verify: Callable[[bytes, bytes, bytes], bool],
        sign: Callable[[bytes], bytes],
        public_key: bytes,
        pace: Pace,
        patience: Patience,
    ) -> None:
        self.index = index
        self.name = f"h{index}"
        self.rules = rules
        self.journal = MemoryJournal()
        self.ledger = Ledger()
        self.published: dict[int, tuple[int, int]] = {}
        """Everything this origin ever handed to its node: step -> (seed, scalar). Kept outside, for the checks."""
        self.events: list[Event] = []
        self.windows: list[ClosedWindow] = []
        self.is_finished = False
        self.is_up = False
        self.public_key = public_key
        self.origin = origin_id(public_key)
        self.pace = pace
        self._clock = clock
        self._network = network
        self._rng = rng
        self._verify = verify
        self._sign = sign
        self._patience = patience
        self._life = 0

    def start(self) -> None:
        self.journal.incarnation += 1
        self._life += 1
        self.is_up, self.is_finished = True, False
        self.ledger, self.windows = Ledger(), []
        member = Member(self.public_key, self.name, self.journal.incarnation)
        self.node = Node(self.rules, member, self._sign, self._verify, patience=self._patience)
        self.driver = Driver(self.node, self.journal, self, self, self, lambda: self._clock.now)
        self.driver.start(list(self.journal.bundles), list(self.journal.members.values()))
        self._schedule_tick()
        self._network.joined(self)

    def crash(self) -> None:
        """SIGKILL and power failure in one: the process is gone, and so is an unsynced tail of the journal."""
        self.is_up = False
        self._life += 1
        self.journal.tear(self._rng)
        self._network.vanished(self)

    def leave(self) -> None:
        """SIGTERM."""
        self.driver.leave()

    # The seams of the driver

    def send(self, peer: OriginId, messages: Sequence[Message]) -> None:
        for message in messages:
            self._network.carry(self, peer, message)

    def pull(self, peer: OriginId, frontier: tuple[Held, ...]) -> None:
        self._network.pull(self, peer, frontier)

    def apply(self, window: ClosedWindow) -> None:
        self.windows.append(window)
        for update in window.updates:
            self.ledger.apply(update)

    def measure(self, order: Measure) -> None:
        seconds = self._rng.uniform(self.pace.seconds_min, self.pace.seconds_max) * order.count
        self._later(seconds, lambda: self._measured(order))

    def _measured(self, order: Measure) -> None:
        steps = range(order.step, order.step + order.count)
        probes = [(self._rng.getrandbits(32), self._rng.randint(-(1 << 24), 1 << 24)) for _ in steps]
        before = self.node.frontier.last(self.origin)
        self.driver.published(order.step, probes)
        if self.node.frontier.last(self.origin) > before:
            for step, probe in zip(steps, probes, strict=True):
                if step in self.published:
                    raise AssertionError(f"{self.name} spoke twice about step {step}")
                self.published[step] = probe

    def noted(self, event: Event) -> None:
        self.events.append(event)

    def applied(self, window: ClosedWindow) -> None:
        pass

    def finished(self) -> None:
        self.is_finished = True

    # From the network

    def receive(self, peer: OriginId, message: Message) -> None:
        if peer in self.node.flood.neighbours:
            try:
                self.driver.received(peer, message)
            except PeerError:
                self._network.cut(self, peer)

    def missing(self, frontier: tuple[Held, ...]) -> list[Updates]:
        """Answers a pull."""
        bundles = list(self.journal.missing(frontier))
        return [Updates(tuple(bundles[k : k + PULL_BUNDLES_MAX])) for k in range(0, len(bundles), PULL_BUNDLES_MAX)]

    # Time

    def _later(self, seconds: float, action: Callable[[], None]) -> None:
        """Does it later, unless this life of the host has ended by then."""
        life = self._life
        self._clock.after(seconds, lambda: action() if self._life == life else None)

    def _schedule_tick(self) -> None:
        self._later(max(0.001, min(self.driver.seconds_to_tick(), 0.25)), self._tick)

    def _tick(self) -> None:
        self.driver.tick()
        self._schedule_tick()
