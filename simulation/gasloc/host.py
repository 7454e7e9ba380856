"""A simulated host that trains by GASLoC, with a few exact numbers as its model."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from fractions import Fraction

from seedflood.errors import DiskFullError, PeerError
from seedflood.host.driver import Driver
from seedflood.protocol.gasloc.messages import Kind, Offer, decode
from seedflood.protocol.gasloc.node import GaslocNode
from seedflood.protocol.gasloc.rules import GaslocRules, Habits
from seedflood.protocol.origin import OriginId
from seedflood.protocol.swarm.messages import Message, Opaque
from seedflood.protocol.swarm.outputs import Event
from simulation.gasloc.compute import Compute
from simulation.gasloc.disk import ReplicaDisk
from simulation.gasloc.replica import Pair, Replica, Values
from simulation.host import TIMER_SECONDS_MIN, Host, Place

DISTRUSTED = "a neighbour exchanges no parameters of this run"
SAYING_BYTES_MAX = 128
"""The longest message that is checked. Parameters are longer."""
SLACK_SECONDS = 0.1
"""How much longer than promised a wait may be: timers and the compute thread are not exact."""
SKIPPED = "exchange skipped"
DRIFT: Values = (Fraction(0), Fraction(1))
"""What a local step adds to a replica. The first of its two numbers is only changed by mixing."""


@dataclass
class Chronicle:
    """What happened in a world. written: digests of all contents of each origin; of a liar, those of its offers.
    liars: hosts that lie."""

    written: dict[OriginId, set[bytes]] = field(default_factory=dict)
    liars: set[OriginId] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class Manner:
    """What differs between the hosts of a world. padding: how many bytes longer the contents of a host are."""

    habits: Habits
    padding: int = 0


class GaslocHost(Host):
    """One host and its model, with checks of what it does."""

    journal: ReplicaDisk
    node: GaslocNode
    driver: Driver
    compute: Compute

    def __init__(self, place: Place, rules: GaslocRules, manner: Manner, chronicle: Chronicle) -> None:
        self.rules = rules
        self.chronicle = chronicle
        self.habits = manner.habits
        self.padding = manner.padding
        self.base: Values = (Fraction(2**place.index), Fraction(place.index))
        """The numbers of its base model. In a real run all hosts have the same."""
        self.skipped: set[Pair] = set()
        """Pairs that it has not mixed, and knows why."""
        self.lost: set[Pair] = set()
        """Pairs that it had mixed when it was started again."""
        self.died_in: set[int] = set()
        """Rounds that it exchanged last before it was started again."""
        super().__init__(place, lambda _: self._make_process())
        self.offered_round = -1
        """The last round for which it offered anything, in all its lives."""
        self.replaced_before = 0
        """Its replica has nothing of rounds before this one: a copy has replaced it, or its disk was lost."""
        self.kept_out_since = 0.0
        """Since when it joins, and an honest neighbour has a copy."""
        self.copies = 0
        """How many copies it took, in all its lives."""
        self._paused_at = 0.0
        self._paused_seconds = 0.0
        self._began_at = self._bound = self._paused_before = self._stepped_at = 0.0

    def _make_process(self) -> tuple[GaslocNode, Driver]:
        if hasattr(self, "compute"):
            self.lost |= set(self.replica.mixed)
            gasloc = self.node.gasloc
            self.died_in.add(gasloc.exchange.round)
        node = GaslocNode(self.rules, self.member, self.sign, self.verify, self.journal, self.habits, self.access())
        self.compute = Compute(self, Replica(self.rules, self.base, DRIFT, self._reach))
        return node, Driver(node, self.journal, self, self.compute.put, self, lambda: self.clock.now)

    def _new_disk(self) -> ReplicaDisk:
        return ReplicaDisk(self, self.rules.copy_bytes_max)

    @property
    def replica(self) -> Replica:
        return self.compute.replica

    @property
    def _reach(self) -> int:
        """Honest hosts are apart by their base models, and by their local steps."""
        return (1 << self.rules.clients) + self.rules.steps

    @property
    def has_left(self) -> bool:
        return self.node.phase == "left"

    def lose_disk(self) -> None:
        super().lose_disk()
        self.replaced_before = self.offered_round + 1

    def pause(self) -> None:
        self._paused_at = self.clock.now
        super().pause()

    def resume(self) -> None:
        if self.is_paused:
            self._paused_seconds += self.clock.now - self._paused_at
        super().resume()

    def enter(self, action: Callable[..., None], *args: object) -> None:
        super().enter(self._do, action, args)

    def _do(self, action: Callable[..., None], args: tuple[object, ...]) -> None:
        """Runs an action. A full disk must not end the process."""
        try:
            action(*args)
        except DiskFullError as error:
            raise AssertionError(str(error)) from error
        exchange = self.node.gasloc.exchange
        if exchange.is_open:  # a wait follows from what was measured when it began
            self._bound = max(self._bound, self.patience_seconds())

    # What the model did

    def wrote(self, digest: bytes) -> None:
        """It has made a content, for a round or as a copy."""
        self.chronicle.written.setdefault(self.origin, set()).add(digest)

    def took(self, partner: OriginId, digest: bytes) -> None:
        """It has kept something of a partner."""
        if digest not in self.chronicle.written.get(partner, ()):
            self.mistakes.append("kept parameters that its partner never offered")

    def refused(self, giver: OriginId) -> None:
        """What it was given is not what it asked for."""
        if giver not in self.chronicle.liars:
            self.mistakes.append(f"takes {self.node.membership.name(giver)} for a liar")

    def adopted(self, donor: OriginId, digest: bytes) -> None:
        fetch = self.node.gasloc.fetch
        self.copies += 1
        self.replaced_before = max(self.replaced_before, fetch.round, self.offered_round + 1)
        if digest not in self.chronicle.written.get(donor, ()):
            self.mistakes.append("took a copy that its donor never offered")

    def noted(self, event: Event) -> None:
        super().noted(event)
        membership = self.node.membership
        if event.name == SKIPPED:
            partner = next(one for one in membership.origins() if membership.name(one) == event.facts["partner"])
            self.skipped.add((int(str(event.facts["round"])), partner))
        if event.name == DISTRUSTED:
            name = event.facts["peer"]
            if name not in {membership.name(origin) for origin in self.chronicle.liars}:
                self.mistakes.append(f"takes {name} for a liar")

    def check_checkpoint(self, round_: int) -> None:
        later = [pair for pair in self.replica.mixed if pair[0] >= round_]
        if later:
            self.mistakes.append(f"writes a checkpoint for round {round_} that holds round {later[0][0]}")

    # How long it waits

    def stepped(self) -> None:
        self._stepped_at = self.clock.now

    def exchange_began(self) -> None:
        self._began_at, self._bound = self.clock.now, self.patience_seconds()
        self._paused_before = self._paused_seconds

    def exchange_ended(self, round_: int) -> None:
        exchange = self.node.gasloc.exchange
        is_ahead = self._stepped_at > self._began_at and self.clock.now - self._stepped_at < TIMER_SECONDS_MIN
        paused = self._paused_seconds - self._paused_before
        allowed = max(self._bound, self.patience_seconds()) + paused + SLACK_SECONDS
        if exchange.seconds > allowed and not is_ahead:
            self.mistakes.append(f"waited {exchange.seconds:.2f} s in round {round_}, and {allowed:.2f} are allowed")

    def patience_seconds(self) -> float:
        """The longest exchange that the rules allow on any link, from the present measurements."""
        bounds, pace = self.habits.bounds, self.node.gasloc.pace
        transfer = bounds.transfer_seconds(2 * self.rules.content_bytes_max, None, pace.hop_seconds)
        return bounds.wait_seconds(pace.local_seconds, pace.hop_seconds) + transfer

    # The links

    def send(self, peer: OriginId, messages: Sequence[Message]) -> None:
        super().send(peer, messages)
        for message in messages:
            if isinstance(message, Opaque) and len(message.data) <= SAYING_BYTES_MAX:
                self._look_at(message.data)

    def _look_at(self, data: bytes) -> None:
        """Looks at a message that it sends. A liar may send anything; its offers are noted, so that others may take
        them."""
        with suppress(PeerError):
            saying = decode(data)
            if isinstance(saying, Offer):
                self._look_at_offer(saying)

    def _look_at_offer(self, offer: Offer) -> None:
        if self.origin in self.chronicle.liars:
            self.wrote(offer.digest)
        elif offer.kind is Kind.ROUND:
            self.offered_round = max(self.offered_round, offer.round)
