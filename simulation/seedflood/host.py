"""A simulated host that trains by SeedFlood, with a ledger as its model."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

from seedflood.host.seedflood.driver import SeedfloodDriver
from seedflood.host.seedflood.seams import Adopt, Job, Refill, Replay, Seal
from seedflood.protocol.frontier import Frontier
from seedflood.protocol.origin import OriginId
from seedflood.protocol.seedflood.bundles import Bundle, Update, Updates, UpdateValue
from seedflood.protocol.seedflood.messages import ClosedEpoch, ReplicaDigest
from seedflood.protocol.seedflood.node import Node
from seedflood.protocol.seedflood.outputs import ClosedWindow, Measure, Measured, Remade, SumEpoch, TakeDigest
from seedflood.protocol.seedflood.phase import Phase
from seedflood.protocol.seedflood.rules import Rules
from seedflood.protocol.swarm.messages import Message
from seedflood.protocol.swarm.outputs import Event
from seedflood.protocol.swarm.rules import Patience
from simulation.host import Host, Place
from simulation.seedflood.bounds import find_ahead, find_waiting
from simulation.seedflood.compression import draw_round
from simulation.seedflood.journal import MemoryBundleJournal
from simulation.seedflood.ledger import Chronicle, Ledger, find_outdated

COMPUTE_SECONDS = (0.0005, 0.005)
"""How long an order takes that is not a measurement."""


class SeedfloodHost(Host):
    """One host and its model, with checks of what it does."""

    journal: MemoryBundleJournal
    node: Node
    driver: SeedfloodDriver

    def __init__(
        self, place: Place, rules: Rules, chronicle: Chronicle, patience: Patience, *, is_relay: bool = False
    ) -> None:
        """is_relay: it measures nothing. Its ledger adds up what it holds all the same: so it is judged as all are."""
        self.rules = rules
        self.chronicle = chronicle
        super().__init__(place, lambda _: self._make_process(patience))
        self.is_relay = is_relay
        self.ledger = Ledger(chronicle)
        self.windows: list[ClosedWindow] = []
        self.has_ended_in_doubt = False
        """Would a daemon have ended with exit code 70?"""
        self.named: set[OriginId] = set()
        """Origins that it saw contradict themselves, in all its lives."""
        self.is_key_fresh = True
        self.is_corrupt = self.was_corrupt = False
        """Did `corrupt` change coefficients that it has not rebuilt since? Did it ever?"""
        self._was_ready = False

    def _make_process(self, patience: Patience) -> tuple[Node, SeedfloodDriver]:
        facts: dict[str, Any] = {"patience": patience, "access": self.access(), "is_relay": self.is_relay}
        node = Node(self.rules, self.member, self.sign, self.verify, **facts)
        return node, SeedfloodDriver(node, self.journal, self, self.compute, self, lambda: self.clock.now)

    def _new_disk(self) -> MemoryBundleJournal:
        return MemoryBundleJournal(self.rules.refresh_period, self)

    @property
    def published(self) -> dict[int, UpdateValue]:
        """Everything that this origin ever published, by step."""
        return {step: u.value for (origin, step), u in self.chronicle.updates.items() if origin == self.origin}

    def own_bundles(self) -> list[Bundle]:
        """The bundles of this host in its own journal."""
        return [bundle for bundle in self.journal.bundles.values() if bundle.origin == self.origin]

    @property
    def has_left(self) -> bool:
        return self.node.phase is Phase.LEFT

    @property
    def is_current(self) -> bool:
        """Do its coefficients need no rebuild?"""
        exchange = self.node.seedflood.exchange
        return exchange.divergence.is_current

    @property
    def is_done(self) -> bool:
        """A relay stays up as long as one that lies does not say that its run is over."""
        return self.is_up if self.is_relay and self.chronicle.liars else super().is_done

    # Its lives

    def start(self, *, is_journal_damaged: bool = False) -> None:
        self.ledger, self.windows = Ledger(self.chronicle), []
        self.is_corrupt = self._was_ready = False
        super().start(is_journal_damaged=is_journal_damaged)

    def _recall(self, *, is_journal_damaged: bool) -> None:
        """Restores the sums of the journal before the core starts, as the shell does."""
        self.ledger.rebuild(list(self.journal.closed_epochs()), ())
        members, facts = self.journal.members(), (is_journal_damaged, self.is_key_fresh)
        self.enter(lambda: self.driver.start(members, is_journal_damaged=facts[0], is_key_fresh=facts[1]))

    def leave(self) -> None:
        self.chronicle.has_anyone_left = True
        super().leave()

    def read_journal(self) -> None:
        """Makes the ledger of a relay from its journal, which is all that it has: nobody orders a relay to rebuild."""
        updates = [update for bundle in self.journal.replay() for update in bundle.updates()]
        self.ledger.rebuild(list(self.journal.closed_epochs()), updates)

    def corrupt(self) -> bool:
        """Flips a bit of some coefficient. False if there is none yet."""
        epochs = [] if self.is_relay else sorted(self.ledger.sums)
        if epochs:
            self.ledger.sums[self.rng.choice(epochs)] ^= 1 << self.rng.randrange(40)
            self.is_corrupt = self.was_corrupt = self.chronicle.is_tainted = True
        return bool(epochs)

    def judge(self) -> list[str]:
        liars, updates, is_kept = self.chronicle.liars, self.chronicle.updates, self.chronicle.is_kept
        trusted = {*liars, self.origin} if self._life and self._is_untold else liars
        unknown = [one for one in self.ledger.applied if one not in updates and one[0] not in trusted]
        others = [b for b in self.journal.bundles.values() if not is_kept(b) and b.origin not in liars]
        mistakes = self.ledger.mistakes + [f"applied ({o:016x}, {step}), which nobody published" for o, step in unknown]
        mistakes += [f"holds another ({one.origin:016x}, {one.step}) than was published" for one in others]
        mistakes += [f"named {origin:016x}, which sent no two things" for origin in sorted(self.named - liars)]
        return mistakes

    @property
    def _is_untold(self) -> bool:
        """May it have applied updates of its own that it has not published? It may while its disk is full, or while
        another process has its key. It forgets them when it ends."""
        return self.driver.is_disk_full or self.origin in self.chronicle.doubles

    # Events

    def _entered(self) -> None:
        if self.node.is_ready != self._was_ready:
            self._was_ready = self.node.is_ready
            if self._was_ready and not self.node.divergence.is_outdated:  # else it is to be rebuilt
                applied, sums = Frontier(self.node.applied.held()), dict(self.journal.covered)
                self.work.put(0.0, self._check_ready, applied, sums)

    def _check_ready(self, applied: Frontier, sums: Mapping[int, Frontier]) -> None:
        """Runs after all orders that came before the node reported that it is ready. sums: of the journal at that
        time."""
        is_known = not (self.chronicle.is_tainted or self._is_untold)
        if is_known and self.ledger.digest() != self.chronicle.digest(applied, sums):
            self.mistakes.append("reported ready with other coefficients than its updates add up to")

    def _check_finished(self, finished_at: float) -> None:
        """Runs after all orders that came before the end of the run."""
        if not (self.is_corrupt or self.is_relay or self.driver.is_disk_full):
            self._complain(find_outdated(self.node, self.journal, self.ledger, finished_at))

    def _complain(self, mistake: str | None) -> None:
        if mistake is not None:
            self.mistakes.append(mistake)

    def kept(self, bundles: Sequence[Bundle]) -> None:
        for bundle in bundles:
            if bundle.origin == self.origin:
                self.chronicle.keep(bundle, self.index)

    # The links

    def send(self, peer: OriginId, messages: Sequence[Message]) -> None:
        super().send(peer, messages)
        for message in messages:
            if isinstance(message, Updates):
                self._check_sent(message)

    def _check_sent(self, message: Updates) -> None:
        for bundle in message.bundles:
            if bundle.origin == self.origin and not self.chronicle.is_kept(bundle):
                self.mistakes.append(f"sent step {bundle.step} before it was durable")

    # The model: jobs run one after the other, and take time

    def compute(self, job: Job) -> None:
        match job:
            case ClosedWindow():
                self._apply(job)
            case Measure():
                self._measure(job)
            case TakeDigest(frontier_digest):
                self._order(self._digested, frontier_digest)
            case SumEpoch():
                self._order(self._summed, job)
            case Adopt(closed, others):
                self._order(self.ledger.adopt, closed, others)
            case Seal(epoch):
                self.work.put(0.0, self.ledger.seal, epoch)  # it computes nothing
            case Replay(pages):
                self._order(self._replayed, pages)
            case Refill(closed, pages):
                self._order(self._rebuilt, closed, pages)

    def _apply(self, window: ClosedWindow) -> None:
        if window.steps[0] <= window.steps[1]:
            if self.windows and window.steps[0] <= self.windows[-1].steps[1]:
                self.mistakes.append(f"closed the window of step {window.steps[0]} after that of a later one")
            self.windows.append(window)
            self.chronicle.has_begun = True
            self._complain(find_waiting(self.node, window))
        self._order(self.ledger.apply, window.updates)

    def _measure(self, order: Measure) -> None:
        if self.chronicle.has_begun and self.chronicle.last(self.origin) is None:
            self.is_newcomer = True  # others took part in its place, whom the operator has admitted
        if not self.chronicle.has_anyone_left:  # else others may be further ahead
            self._complain(find_ahead(self.node, order, self._is_in_time, is_newcomer=self.is_newcomer))
        seconds = self.rng.uniform(self.pace.seconds_min, self.pace.seconds_max) * order.count
        self.work.put(seconds, self._measured, order)

    def _is_in_time(self, origin: OriginId) -> bool:
        """Does it measure no round before its time? To a newcomer liars may tell of later ones (`first_round`)."""
        misled = self.chronicle.newcomers if self.chronicle.is_lied_to else ()
        return origin not in self.chronicle.liars and origin not in misled

    def _replayed(self, pages: Iterator[Sequence[Update]]) -> None:
        for page in pages:
            self.ledger.apply(page)

    def _rebuilt(self, closed: Iterator[ClosedEpoch], pages: Iterator[Sequence[Update]]) -> None:
        before = dict(self.ledger.sums)
        self.ledger.rebuild(list(closed), list(chain.from_iterable(pages)))
        self.is_corrupt = False
        changed = {one for one in before | self.ledger.sums if before.get(one, 0) != self.ledger.sums.get(one, 0)}
        # What came before our own sum took the place of the bundles, but too late for it, stood among its steps.
        if not (self.chronicle.is_tainted or changed <= self.journal.find_beside()):
            self.mistakes.append("had wrong coefficients, though nothing had changed them")
        self.driver.answered(Remade(bool(changed)))

    def _measured(self, order: Measure) -> None:
        self.is_key_fresh = False
        self.driver.answered(Measured(order.step, draw_round(self.rules, self.origin, order.step, self.rng)))

    def _summed(self, order: SumEpoch) -> None:
        self.driver.answered(ClosedEpoch(order.epoch, order.frontier, self.ledger.coefficients(order.epoch)))

    def _digested(self, frontier_digest: bytes) -> None:
        self.driver.answered(ReplicaDigest(frontier_digest, self.ledger.digest()))

    def _order(self, action: Callable[..., None], *args: object) -> None:
        self.work.put(self.rng.uniform(*COMPUTE_SECONDS), action, *args)

    # The observer

    def noted(self, event: Event) -> None:
        super().noted(event)
        self.named.update(self.node.ends.proofs)

    def adopted(self, closed: ClosedEpoch, source: OriginId | None) -> None:
        pass

    def removed(self) -> None:
        super().removed()
        self.chronicle.removed[self.origin] = self.clock.now

    def learned(self, bundles: Sequence[Bundle], source: OriginId | None) -> None:
        if self.origin not in self.chronicle.liars:
            for bundle in bundles:
                if bundle.origin != self.origin:
                    self.chronicle.take(bundle, self.origin, self.clock.now)

    def applied(self, window: ClosedWindow) -> None:
        pass

    def finished(self) -> None:
        super().finished()
        self.has_ended_in_doubt = self.node.is_doubted
        self.work.put(0.0, self._check_finished, self.clock.now)
