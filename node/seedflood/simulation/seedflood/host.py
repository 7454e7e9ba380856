"""A simulated host: the production node and driver, over memory instead of disk, sockets and a model.

Whatever happens to the process comes in through `enter`, so that a paused host can do it later, and a host that dies in
the middle of something dies there: `writing` and `send` are the instants at which the outside can be cut off from
what the core believes.
"""

import random
from collections.abc import Callable, Iterator, Sequence
from itertools import chain

from seedflood.errors import JournalError
from seedflood.host.seedflood.driver import SeedfloodDriver
from seedflood.protocol.frontier import Frontier, Held
from seedflood.protocol.origin import OriginId, origin_id
from seedflood.protocol.seedflood.messages import Bundle, ClosedEpoch, Told, Update, Updates
from seedflood.protocol.seedflood.node import Node
from seedflood.protocol.seedflood.outputs import ClosedWindow, Measure, SumEpoch, TakeDigest
from seedflood.protocol.seedflood.rules import Rules
from seedflood.protocol.swarm.messages import Member, Message
from seedflood.protocol.swarm.outputs import Event
from seedflood.protocol.swarm.rules import Patience
from seedflood.simulation.clock import Clock
from seedflood.simulation.network import Network
from seedflood.simulation.seedflood.bounds import find_ahead, find_waiting
from seedflood.simulation.seedflood.journal import MemoryJournal
from seedflood.simulation.seedflood.ledger import Chronicle, Ledger, find_outdated
from seedflood.simulation.seedflood.telling import draw_round
from seedflood.simulation.work import Pace, WorkQueue

TIMER_SECONDS_MIN = 0.001
"""A timer of a real loop is no finer, and virtual time moves on whatever the core wants."""

COMPUTE_SECONDS = (0.0005, 0.005)
"""What an order takes that is no measurement."""


class KilledError(BaseException):
    """The process ends at this instant. Nothing catches it but its host."""


class Host:
    """One host: it can be started, crashed and started again; journal and key survive."""

    def __init__(
        self,
        index: int,
        rules: Rules,
        clock: Clock,
        network: Network,
        chronicle: Chronicle,
        rng: random.Random,
        *,
        verify: Callable[[bytes, bytes, bytes], bool],
        sign: Callable[[bytes], bytes],
        public_key: bytes,
        pace: Pace,
        patience: Patience,
        died: Callable[["Host"], None],
        replaced: Callable[["Host"], None],
        name: str = "",
    ) -> None:
        """died: what is told of a process that ends by itself; replaced: of one that a newer one with its key ends."""
        self.index = index
        self.name = name or f"h{index}"
        self.rules = rules
        self.chronicle = chronicle
        self.journal = MemoryJournal(rules.refresh_period, self)
        self.ledger = Ledger(chronicle)
        self.events: list[Event] = []
        self.windows: list[ClosedWindow] = []
        self.mistakes: list[str] = []
        """What no host may ever do, of all its lives."""
        self.is_finished = False
        self.has_ended_in_doubt = False
        """A daemon would have ended with 70."""
        self.is_retired = False
        """Will it never be started again?"""
        self.named: set[OriginId] = set()
        """Whom it saw contradict themselves, in all its lives."""
        self.is_up = False
        self.is_paused = False
        self.is_key_fresh = True
        self.is_corrupt = False
        """Were coefficients changed behind its back that it has not made again since?"""
        self.public_key = public_key
        self.origin = origin_id(public_key)
        self.pace = pace
        self._clock = clock
        self._network = network
        self._rng = rng
        self._verify = verify
        self._sign = sign
        self._patience = patience
        self._died = died
        self._replaced = replaced
        self._life = 0
        self._timer = 0.0
        """When the next tick comes; 0: never."""
        self._wanted = 0.0
        """When the core wants it."""
        self._was_ready = False
        self._writes_left: int | None = None
        """See `die_within`."""
        self._deferred: list[tuple[Callable[..., None], tuple[object, ...]]] = []
        self._work = WorkQueue(self._later)

    @property
    def published(self) -> dict[int, Told]:
        """Everything that this origin ever said: step -> what it told of it."""
        return {step: u.told for (origin, step), u in self.chronicle.updates.items() if origin == self.origin}

    @property
    def is_done(self) -> bool:
        """Has it finished, its model too?"""
        return self.is_up and self.is_finished and not self._work

    # Its lives

    def start(self, *, is_journal_damaged: bool = False) -> None:
        self.journal.incarnation += 1
        self._life += 1
        self.is_up, self.is_finished, self.is_paused, self.is_corrupt = True, False, False, False
        self._was_ready, self._writes_left, self._timer = False, None, 0.0
        self.ledger, self.windows = Ledger(self.chronicle), []
        member = Member(self.public_key, self.name, self.journal.incarnation)
        self.node = Node(self.rules, member, self._sign, self._verify, patience=self._patience)
        self.driver = SeedfloodDriver(self.node, self.journal, self, self, self, lambda: self._clock.now)
        self._put_back_coefficients()
        members, facts = list(self.journal.members.values()), (is_journal_damaged, self.is_key_fresh)
        self.enter(lambda: self.driver.start(members, is_journal_damaged=facts[0], is_key_fresh=facts[1]))
        self._network.joined(self)

    def crash(self) -> None:
        """SIGKILL: the process is gone, and so is what its journal had not committed."""
        self._end()
        self.journal.crash(self._rng)

    def superseded(self) -> None:
        """It ends with 75, and no supervisor starts it again: its key is in use elsewhere, or seems to be."""
        self.is_retired = True
        self.crash()
        self._replaced(self)

    def lose_power(self) -> int:
        """Also takes the end of what was committed but is not durable. Returns how many records were lost."""
        self._end()
        return self.journal.tear(self._rng)

    def lose_disk(self) -> None:
        """The process dies with its disk. The key is kept elsewhere."""
        self._end()
        self.journal = MemoryJournal(self.rules.refresh_period, self)

    def die_within(self, writes: int | None) -> None:
        """SIGKILL when the process has begun so many more writes and sends: between any two of them. None: live on."""
        self._writes_left = writes

    def pause(self) -> None:
        """SIGSTOP."""
        self.is_paused = True

    def resume(self) -> None:
        """SIGCONT: what came meanwhile happens now, in order."""
        self.is_paused = False
        deferred, self._deferred = self._deferred, []
        life = self._life
        for action, args in deferred:
            if self._life == life:
                self.enter(action, *args)

    def leave(self) -> None:
        """SIGTERM."""
        self.chronicle.has_anyone_left = True
        self.enter(self.driver.leave)

    def corrupt(self) -> bool:
        """A bit of some coefficient flips. False if there is none yet."""
        epochs = sorted(self.ledger.sums)
        if epochs:
            self.ledger.sums[self._rng.choice(epochs)] ^= 1 << self._rng.randrange(40)
            self.is_corrupt = self.chronicle.is_tainted = True
        return bool(epochs)

    def _end(self) -> None:
        self.mistakes += self.judge() if self.is_up else []
        self.is_up = self.is_paused = False
        self._life += 1
        self._deferred.clear()
        self._work.clear()
        self._network.vanished(self)

    def judge(self) -> list[str]:
        """What this life did wrong so far. It is forgotten with it, so `_end` asks, too."""
        liars, updates, is_kept = self.chronicle.liars, self.chronicle.updates, self.chronicle.is_kept
        trusted = {*liars, self.origin} if self._life and self._is_untold else liars
        unknown = [one for one in self.ledger.applied if one not in updates and one[0] not in trusted]
        others = [b for b in self.journal.bundles.values() if not is_kept(b) and b.origin not in liars]
        mistakes = self.ledger.mistakes + [f"applied ({o:016x}, {step}), which nobody published" for o, step in unknown]
        mistakes += [f"holds another ({one.origin:016x}, {one.step}) than was published" for one in others]
        mistakes += [f"named {origin:016x}, which told no two things" for origin in sorted(self.named - liars)]
        return mistakes

    @property
    def _is_untold(self) -> bool:
        """May it have applied what it measured and told nobody? While its disk is full, and forgets it with everything
        else when it dies; or if another process has its key, and it ends with it."""
        return self.driver.is_disk_full or self.origin in self.chronicle.doubles

    # Whatever happens

    def enter(self, action: Callable[..., None], *args: object) -> None:
        if self.is_paused:
            self._deferred.append((action, args))
            return
        if not self.is_up:
            return
        try:
            action(*args)
        except (KilledError, JournalError):
            self.crash()
            self._died(self)
            return
        except Exception as error:
            self.mistakes.append(f"ended by itself: {error!r}")
            self.crash()
            self._died(self)
            return
        finally:
            self._set_timer()
        if self.node.is_ready != self._was_ready:
            self._was_ready = self.node.is_ready
            if self._was_ready:
                self._work.put(0.0, self._check_ready, Frontier(self.node.applied.held()))

    def _check_ready(self, applied: Frontier) -> None:
        """Runs behind all that was ordered before the node said that it is ready."""
        is_known = not (self.chronicle.is_tainted or self._is_untold)
        if is_known and self.ledger.digest() != self.chronicle.digest(applied):
            self.mistakes.append("said it is ready with other coefficients than its updates add up to")

    def _check_finished(self) -> None:
        """Runs behind all that was ordered before the run was over."""
        if not (self.is_corrupt or self.driver.is_disk_full):
            self._complain(find_outdated(self.node, self.journal, self.ledger))

    def _complain(self, mistake: str | None) -> None:
        if mistake is not None:
            self.mistakes.append(mistake)

    def _instant(self) -> None:
        if self._writes_left is not None:
            self._writes_left -= 1
            if self._writes_left < 0:
                raise KilledError

    # The disk

    def writing(self) -> None:
        self._instant()

    def kept(self, bundles: Sequence[Bundle]) -> None:
        for bundle in bundles:
            if bundle.origin == self.origin:
                self.chronicle.keep(bundle, self.index)

    # The links

    def send(self, peer: OriginId, messages: Sequence[Message]) -> None:
        self._instant()
        for message in messages:
            if isinstance(message, Updates):
                self._check_said(message)
            self._network.send(self, peer, message)

    def pull(self, peer: OriginId, frontier: tuple[Held, ...]) -> bool:
        return self._network.pull(self, peer, frontier)

    def _check_said(self, message: Updates) -> None:
        for bundle in message.bundles:
            if bundle.origin == self.origin and not self.chronicle.is_kept(bundle):
                self.mistakes.append(f"sent step {bundle.step} before it was durable")

    # The model: one thing after the other, each takes its time

    def apply(self, window: ClosedWindow) -> None:
        if window.steps[0] <= window.steps[1]:
            if self.windows and window.steps[0] <= self.windows[-1].steps[1]:
                self.mistakes.append(f"closed the window of step {window.steps[0]} after that of a later one")
            self.windows.append(window)
            self._complain(find_waiting(self.node, window))
        self._order(self.ledger.apply, window.updates)

    def measure(self, order: Measure) -> None:
        if not self.chronicle.has_anyone_left:  # else others went on, and it may follow
            self._complain(find_ahead(self.node, order, lambda origin: origin not in self.chronicle.liars))
        seconds = self._rng.uniform(self.pace.seconds_min, self.pace.seconds_max) * order.count
        self._work.put(seconds, self._measured, order)

    def digest(self, order: TakeDigest) -> None:
        self._order(lambda: self.driver.digested(order.frontier_digest, self.ledger.digest()))

    def sum_epoch(self, order: SumEpoch) -> None:
        self._order(lambda: self._summed(order))

    def keep_snapshot(self) -> None:
        """Snapshots only save time, and there is nothing to fold here."""

    def adopt(self, closed: ClosedEpoch, others: Sequence[Bundle]) -> None:
        self._order(self.ledger.adopt, closed, others)

    def replay(self, pages: Iterator[Sequence[Update]]) -> None:
        self._order(self._replayed, pages)

    def rebuild(self, closed: Iterator[ClosedEpoch], pages: Iterator[Sequence[Update]]) -> None:
        self._order(self._rebuilt, closed, pages)

    def _replayed(self, pages: Iterator[Sequence[Update]]) -> None:
        for page in pages:
            self.ledger.apply(page)

    def _rebuilt(self, closed: Iterator[ClosedEpoch], pages: Iterator[Sequence[Update]]) -> None:
        before = self.ledger.digest()
        self.ledger.rebuild(list(closed), list(chain.from_iterable(pages)))
        self.is_corrupt = False
        is_changed = self.ledger.digest() != before
        if is_changed and not self.chronicle.is_tainted:
            self.mistakes.append("had wrong coefficients, though nothing had changed them")
        self.driver.rebuilt(is_changed)

    def _measured(self, order: Measure) -> None:
        self.is_key_fresh = False
        self.driver.published(order.step, draw_round(self.rules, self.origin, order.step, self._rng))

    def _summed(self, order: SumEpoch) -> None:
        self.driver.summed(ClosedEpoch(order.epoch, order.frontier, self.ledger.coefficients(order.epoch)))

    def _put_back_coefficients(self) -> None:
        """What the shell does before it starts the core: the sums that the journal keeps."""
        self.ledger.rebuild(list(self.journal.closed_epochs()), ())

    def _order(self, action: Callable[..., None], *args: object) -> None:
        self._work.put(self._rng.uniform(*COMPUTE_SECONDS), action, *args)

    # Whoever wants to know

    def noted(self, event: Event) -> None:
        self.events.append(event)
        self.named.update(self.node.inquiry.counts)

    def adopted(self, closed: ClosedEpoch, source: OriginId | None) -> None:
        pass

    def learned(self, bundles: Sequence[Bundle], source: OriginId | None) -> None:
        if self.origin not in self.chronicle.liars:
            for bundle in bundles:
                if bundle.origin != self.origin:
                    self.chronicle.take(bundle)

    def sent(self, peer: OriginId, message: Message) -> None:
        pass

    def applied(self, window: ClosedWindow) -> None:
        pass

    def finished(self) -> None:
        self.is_finished, self.has_ended_in_doubt = True, self.node.is_doubted
        self._work.put(0.0, self._check_finished)

    # Time

    def _later(self, seconds: float, action: Callable[..., None], *args: object) -> None:
        """Lets it happen later, unless this life of the host has ended by then."""
        self._clock.after(seconds, self._if_alive, self._life, action, args)

    def _if_alive(self, life: int, action: Callable[..., None], args: tuple[object, ...]) -> None:
        if self._life == life:
            self.enter(action, *args)

    def _set_timer(self) -> None:
        """The next tick comes when the core wants it, and never before: as the daemon does."""
        if not self.is_up:
            return
        moment = self._clock.now + self.driver.seconds_to_tick()
        if abs(moment - self._wanted) < TIMER_SECONDS_MIN / 1000 and self._timer:
            return
        self._wanted, self._timer = moment, max(moment, self._clock.now + TIMER_SECONDS_MIN)
        self._clock.at(self._timer, self._ring, self._life, self._timer)

    def _ring(self, life: int, moment: float) -> None:
        if self._life == life and moment == self._timer:
            self._timer = 0.0
            self.enter(self.driver.tick)
