"""A simulated host: the production node and driver of any algorithm, over memory instead of disk and sockets.

Every event reaches the process through `enter`, so a paused host can handle it later. A host that is to die dies inside
`writing` or `send`: only there can the core believe something that the outside does not see.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from seedflood.errors import JournalError
from seedflood.host.driver import Driver
from seedflood.protocol.frontier import Held
from seedflood.protocol.origin import OriginId, origin_id
from seedflood.protocol.swarm.access import AccessList
from seedflood.protocol.swarm.messages import Member, Message
from seedflood.protocol.swarm.outputs import Event
from seedflood.protocol.swarm.roster import Roster
from seedflood.protocol.swarm.swarm import Swarm
from simulation.clock import Clock
from simulation.journal import MemoryJournal
from simulation.network import Network
from simulation.notary import Notary
from simulation.work import Pace, WorkQueue

TIMER_SECONDS_MIN = 0.001
"""Timers are no finer than this, like those of a real loop. So virtual time always moves on."""


NOTED_MAX = 1 << 14
_noted: dict[str, Event] = {}
"""Events that hosts noted last, by what they say. Equal ones are one object: each host notes who comes and goes."""


ENDED = "ended by itself"
"""How the mistake of a host begins that an exception has ended."""


class KilledError(BaseException):
    """The process ends at this moment. Only its host catches this."""


@dataclass(frozen=True, slots=True)
class Place:
    """What a host gets from its world: its own index, name, key and pace, and what it shares with the others.

    died: called when its process ends by itself. replaced: called when a newer process with its key ends it.
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
"""Makes the node and the driver of a process. Called with the host, which owns the journal and serves as links and
observer. Orders for a model may go to `Host.work`."""


class Host:
    """One host. It can be started, crashed and started again; journal and key survive."""

    node: Swarm[Any]
    driver: Driver
    is_relay = False
    """Does it take part in nothing?"""
    turns = 0
    """How many events its processes have handled."""
    writes = 0
    """How often it has written to a disk, in all its lives."""
    _full_at = (0, 0.0)
    """See `fill_at`."""

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
        """What it did that no host may ever do, in all its lives."""
        self.is_finished = False
        self.is_retired = False
        """Will it never be started again?"""
        self.is_up = False
        self.is_paused = False
        self.operator: bytes | None = None
        """The operator of a closed run."""
        self.roster: Roster | None = None
        """The roster on its disk."""
        self.is_removed = False
        """Did it hear that it does not belong to the run any more?"""
        self.is_newcomer = False
        """Was it admitted after the run had begun?"""
        self.sign = place.notary.signer(place.public_key)
        self.verify = place.notary.verify
        self._make = make
        self._network = place.network
        self._died = place.died
        self._replaced = place.replaced
        self._life = 0
        self._timer = 0.0
        """The time of the next tick; 0 if none is set."""
        self._wanted = 0.0
        """The time at which the core wants the next tick."""
        self._writes_left: int | None = None
        """See `die_within`."""
        self._is_leaving = False
        self._deferred: list[tuple[Callable[..., None], tuple[object, ...]]] = []
        self.work = WorkQueue(self.later)

    @property
    def member(self) -> Member:
        """This process as a member."""
        return Member(self.public_key, self.name, self.journal.incarnation)

    @property
    def is_done(self) -> bool:
        """Has it finished the run, and its model all jobs?"""
        return self.is_up and self.is_finished and not self.work

    def access(self) -> AccessList:
        """The access of a process that starts now."""
        return AccessList(self.verify, self.operator, roster=self.roster, calendar=lambda: self.clock.now)

    # What the host of an algorithm may override

    @property
    def has_left(self) -> bool:
        """Was this process asked to leave?"""
        return self._is_leaving

    def judge(self) -> list[str]:
        """What the present process did wrong so far. This is lost when it ends, so `_end` calls it, too."""
        return []

    def _new_disk(self) -> MemoryJournal:
        return MemoryJournal(self)

    def _recall(self, *, is_journal_damaged: bool) -> None:
        """The process resumes from its journal."""
        members, records = self.journal.members(), self.journal.records()
        self.enter(lambda: self.driver.recall(members, records))

    def _entered(self) -> None:
        """Called after every event."""

    # Its lives

    def start(self, *, is_journal_damaged: bool = False) -> None:
        self.journal.incarnation += 1
        self._life += 1
        self.is_up, self.is_finished, self.is_paused, self._is_leaving = True, False, False, False
        self._writes_left, self._timer = None, 0.0
        self.node, self.driver = self._make(self)
        self.driver.keep_roster = self._keep_roster
        self._recall(is_journal_damaged=is_journal_damaged)
        self._network.joined(self)

    def crash(self) -> None:
        """SIGKILL: the process is gone, and so is what its journal had not committed."""
        self._end()
        self.journal.crash(self.rng)

    def superseded(self) -> None:
        """The process ends with exit code 75, and no supervisor restarts it, because its key seems to be in use
        elsewhere."""
        self.is_retired = True
        self.crash()
        self._replaced(self)

    def removed(self) -> None:
        """The process ends with exit code 77: the operator has taken it off the roster."""
        self.is_removed = self.is_retired = True
        self.crash()

    def lose_power(self) -> int:
        """Crashes, and also loses the last of what was committed but is not durable. Returns how much was lost."""
        self._end()
        return self.journal.tear(self.rng)

    def lose_disk(self) -> None:
        """Crashes and loses the disk. The key was stored elsewhere."""
        self._end()
        self.journal = self._new_disk()

    def die_within(self, writes: int | None) -> None:
        """SIGKILL after this many more writes and sends, at the next one. None: it lives on."""
        self._writes_left = writes

    def fill_at(self, write: int, seconds: float) -> None:
        """The disk becomes full at this write, the first being 1, and has space again after some seconds."""
        self._full_at = write, seconds

    def pause(self) -> None:
        """SIGSTOP."""
        self.is_paused = True

    def resume(self) -> None:
        """SIGCONT: events that came meanwhile are handled now, in order."""
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

    # Events

    def enter(self, action: Callable[..., None], *args: object) -> None:
        if self.is_paused:
            self._deferred.append((action, args))
            return
        if not self.is_up:
            return
        self.turns += 1
        try:
            action(*args)
        except (KilledError, JournalError):
            self.crash()
            self._died(self)
            return
        except Exception as error:
            self.mistakes.append(f"{ENDED}: {error!r}")
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
        self.writes += 1
        write, seconds = self._full_at
        if self.writes == write:
            self.journal.is_full = True
            self.clock.after(seconds, self._empty, self.journal)

    @staticmethod
    def _empty(disk: MemoryJournal) -> None:
        disk.is_full = False

    def _keep_roster(self, roster: Roster) -> bool:
        self.writing()
        if not self.journal.is_full:  # else an older one is known after a restart
            self.roster = roster
        return self.roster == roster

    # The links

    def drop(self, peer: OriginId, reason: str) -> None:
        self._network.drop(self, peer, reason)

    def send(self, peer: OriginId, messages: Sequence[Message]) -> None:
        self._instant()
        for message in messages:
            self._network.send(self, peer, message)

    def carry(self, peer: OriginId) -> None:
        self._network.carry(self, peer)

    def next_content(self, peer: OriginId) -> bytes | None:
        return self.driver.next_content(peer)

    def pull(self, peer: OriginId, frontier: tuple[Held, ...]) -> bool:
        return self._network.pull(self, peer, frontier)

    # The observer

    def noted(self, event: Event) -> None:
        if len(_noted) > NOTED_MAX:
            _noted.clear()
        self.events.append(_noted.setdefault(repr(event), event))

    def sent(self, peer: OriginId, message: Message) -> None:
        pass

    def finished(self) -> None:
        self.is_finished = True

    # Time

    def later(self, seconds: float, action: Callable[..., None], *args: object) -> None:
        """Calls the action after some seconds, unless this process has ended by then."""
        self.clock.after(seconds, self._if_alive, self._life, action, args)

    def _if_alive(self, life: int, action: Callable[..., None], args: tuple[object, ...]) -> None:
        if self._life == life:
            self.enter(action, *args)

    def _set_timer(self) -> None:
        """Sets the next tick to when the core wants it, never earlier, as the daemon does."""
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
