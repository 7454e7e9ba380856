"""A simulated host: the production node and driver of any algorithm, over memory instead of disk and sockets.

Whatever happens to the process comes in through `enter`, so that a paused host can do it later, and a host that dies in
the middle of something dies there: `writing` and `send` are the instants at which the outside can be cut off from
what the core believes.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from seedflood.errors import JournalError
from seedflood.host.driver import Driver
from seedflood.protocol.frontier import Held
from seedflood.protocol.origin import OriginId, origin_id
from seedflood.protocol.swarm.messages import Member, Message
from seedflood.protocol.swarm.outputs import Event
from seedflood.protocol.swarm.swarm import Swarm
from seedflood.simulation.clock import Clock
from seedflood.simulation.journal import MemoryJournal
from seedflood.simulation.network import Network
from seedflood.simulation.notary import Notary
from seedflood.simulation.work import Pace, WorkQueue

TIMER_SECONDS_MIN = 0.001
"""A timer of a real loop is no finer, and virtual time moves on whatever the core wants."""


class KilledError(BaseException):
    """The process ends at this instant. Nothing catches it but its host."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a host stands in its world: what is its own, and what it shares with the others.

    died: what is told of a process that ends by itself. replaced: of one that a newer one with its key ends.
    """

    index: int
    name: str
    public_key: bytes
    pace: Pace
    clock: Clock
    network: Network
    rng: random.Random
    notary: Notary
    died: Callable[[Any], None]
    replaced: Callable[[Any], None]


Maker = Callable[[Any], tuple[Swarm[Any], Driver]]
"""What a process is made of when a host starts it: its node and driver. The host is journal owner, links and observer.
Orders for a model may go to `Host.work`."""


class Host:
    """One host: it can be started, crashed and started again; journal and key survive."""

    node: Swarm[Any]
    driver: Driver

    def __init__(self, place: Place, make: Maker) -> None:
        self.index = place.index
        self.name = place.name
        self.public_key = place.public_key
        self.origin = origin_id(place.public_key)
        self.pace = place.pace
        self.clock = place.clock
        self.rng = place.rng
        self.journal = self._new_disk()
        self.events: list[Event] = []
        self.mistakes: list[str] = []
        """What no host may ever do, of all its lives."""
        self.is_finished = False
        self.is_retired = False
        """Will it never be started again?"""
        self.is_up = False
        self.is_paused = False
        self.sign = place.notary.signer(place.public_key)
        self.verify = place.notary.verify
        self._make = make
        self._network = place.network
        self._died = place.died
        self._replaced = place.replaced
        self._life = 0
        self._timer = 0.0
        """When the next tick comes; 0: never."""
        self._wanted = 0.0
        """When the core wants it."""
        self._writes_left: int | None = None
        """See `die_within`."""
        self._is_leaving = False
        self._deferred: list[tuple[Callable[..., None], tuple[object, ...]]] = []
        self.work = WorkQueue(self.later)

    @property
    def member(self) -> Member:
        """Who this process is."""
        return Member(self.public_key, self.name, self.journal.incarnation)

    @property
    def is_done(self) -> bool:
        """Has it finished, its model too?"""
        return self.is_up and self.is_finished and not self.work

    # What the simulation of an algorithm may know better

    @property
    def has_left(self) -> bool:
        """Was it told to go, in this life?"""
        return self._is_leaving

    def judge(self) -> list[str]:
        """What this life did wrong so far. It is forgotten with it, so `_end` asks, too."""
        return []

    def _new_disk(self) -> MemoryJournal:
        return MemoryJournal(self)

    def _recall(self, *, is_journal_damaged: bool) -> None:
        """The process reads its journal, and goes on from there."""
        members, records = self.journal.members(), self.journal.records()
        self.enter(lambda: self.driver.recall(members, records))

    def _entered(self) -> None:
        """Something has happened."""

    # Its lives

    def start(self, *, is_journal_damaged: bool = False) -> None:
        self.journal.incarnation += 1
        self._life += 1
        self.is_up, self.is_finished, self.is_paused, self._is_leaving = True, False, False, False
        self._writes_left, self._timer = None, 0.0
        self.node, self.driver = self._make(self)
        self._recall(is_journal_damaged=is_journal_damaged)
        self._network.joined(self)

    def crash(self) -> None:
        """SIGKILL: the process is gone, and so is what its journal had not committed."""
        self._end()
        self.journal.crash(self.rng)

    def superseded(self) -> None:
        """It ends with 75, and no supervisor starts it again: its key is in use elsewhere, or seems to be."""
        self.is_retired = True
        self.crash()
        self._replaced(self)

    def lose_power(self) -> int:
        """Also takes the end of what was committed but is not durable. Returns how much was lost."""
        self._end()
        return self.journal.tear(self.rng)

    def lose_disk(self) -> None:
        """The process dies with its disk. The key is kept elsewhere."""
        self._end()
        self.journal = self._new_disk()

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
        self._is_leaving = True
        self.enter(self.driver.leave)

    def _end(self) -> None:
        self.mistakes += self.judge() if self.is_up else []
        self.is_up = self.is_paused = False
        self._life += 1
        self._deferred.clear()
        self.work.clear()
        self._network.vanished(self)

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
        self._entered()

    def _instant(self) -> None:
        if self._writes_left is not None:
            self._writes_left -= 1
            if self._writes_left < 0:
                raise KilledError

    # The disk

    def writing(self) -> None:
        self._instant()

    # The links

    def send(self, peer: OriginId, messages: Sequence[Message]) -> None:
        self._instant()
        for message in messages:
            self._network.send(self, peer, message)

    def pull(self, peer: OriginId, frontier: tuple[Held, ...]) -> bool:
        return self._network.pull(self, peer, frontier)

    # Whoever wants to know

    def noted(self, event: Event) -> None:
        self.events.append(event)

    def sent(self, peer: OriginId, message: Message) -> None:
        pass

    def finished(self) -> None:
        self.is_finished = True

    # Time

    def later(self, seconds: float, action: Callable[..., None], *args: object) -> None:
        """Lets it happen later, unless this life of the host has ended by then."""
        self.clock.after(seconds, self._if_alive, self._life, action, args)

    def _if_alive(self, life: int, action: Callable[..., None], args: tuple[object, ...]) -> None:
        if self._life == life:
            self.enter(action, *args)

    def _set_timer(self) -> None:
        """The next tick comes when the core wants it, and never before: as the daemon does."""
        if not self.is_up:
            return
        moment = self.clock.now + self.driver.seconds_to_tick()
        if abs(moment - self._wanted) < TIMER_SECONDS_MIN / 1000 and self._timer:
            return
        self._wanted, self._timer = moment, max(moment, self.clock.now + TIMER_SECONDS_MIN)
        self.clock.at(self._timer, self._ring, self._life, self._timer)

    def _ring(self, life: int, moment: float) -> None:
        if self._life == life and moment == self._timer:
            self._timer = 0.0
            self.enter(self.driver.tick)
