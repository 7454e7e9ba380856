"""A world: hosts on the vertices of a graph and links on its edges. Everything that happens follows from one seed."""

import random
from collections.abc import Callable, Iterable, Sequence
from typing import Generic, TypeVar

from seedflood.protocol.origin import OriginId
from simulation.clock import Clock
from simulation.host import Host, Place
from simulation.link import Traffic
from simulation.network import Network, Weather
from simulation.notary import Notary, make_keys
from simulation.work import Pace

RESTART_SECONDS = 1.0
"""After this time a supervisor restarts a process that ended by itself."""

AnyHost = TypeVar("AnyHost", bound=Host)


class World(Generic[AnyHost]):
    """Builds the hosts of a run. `start` and `run` it, crash and restart hosts, then check it. build: makes a host from
    its place."""

    def __init__(
        self,
        clients: int,
        edges: Iterable[tuple[int, int]],
        build: Callable[[Place], AnyHost],
        *,
        seed: int,
        weather: Weather | None = None,
        pace: Pace | Sequence[Pace] | None = None,
        traffic: Traffic | None = None,
    ) -> None:
        self.seed = seed
        self.rng = random.Random(seed)
        self.clock = Clock()
        self.network = Network(edges, self.clock, self.rng, weather or Weather(), traffic)
        self.notary = Notary()
        self._build = build
        self._doubled: set[OriginId] = set()
        """Keys that two processes use."""
        self._ended: set[int] = set()
        """Processes that ended because another one has their key."""
        self.outcasts: set[OriginId] = set()
        """Hosts that the operator has removed, or that never belonged to the run."""
        paces = pace if isinstance(pace, Sequence) else [pace or Pace()] * clients
        self.hosts: list[AnyHost] = []
        for key, one in zip(make_keys(seed, clients), paces, strict=True):
            self.add_host(key, one)

    def cast_out(self, origin: OriginId) -> None:
        """The host is not judged from now on, and nothing that it says later is promised to anyone."""
        self.outcasts.add(origin)

    def welcome(self, host: AnyHost) -> None:
        """The host joins a run that has begun."""
        host.is_newcomer = True

    def add_host(self, key: bytes, pace: Pace, name: str = "") -> AnyHost:
        index = len(self.hosts)
        place = Place(
            index,
            name or f"h{index}",
            key,
            pace,
            self.clock,
            self.network,
            self.rng,
            self.notary,
            died=lambda host: self.start_later(host, RESTART_SECONDS),
            replaced=self._replaced,
        )
        host = self._build(place)
        self.hosts.append(host)
        return host

    @property
    def honest(self) -> list[AnyHost]:
        """The hosts that are judged: all but those that were ended by a newer process with their key, and those
        that the operator has removed."""
        return [host for host in self.hosts if host.index not in self._ended and host.origin not in self.outcasts]

    @property
    def has_doubles(self) -> bool:
        """Are there two processes with one key?"""
        return bool(self._doubled)

    def start(self) -> None:
        """Starts every host, within the first second."""
        for host in self.hosts:
            self.start_later(host, self.rng.random())

    def start_later(self, host: AnyHost, seconds: float, *, is_journal_damaged: bool = False) -> None:
        """Starts the host after this time, unless it is up by then."""
        self.clock.after(seconds, _start, host, is_journal_damaged)

    def run(self, seconds_max: float = 3600.0) -> bool:
        """Runs until every honest host is done, or gone for good. False if virtual time runs out before."""
        return self.clock.run(Everyone(self.honest, lambda host: host.is_done or host.is_retired), seconds_max)

    def run_until_step(self, step: int, seconds_max: float = 3600.0) -> bool:
        """Runs until some host has reached the step. False if virtual time runs out before."""
        return self.clock.run(lambda: any(h.is_up and h.node.step >= step for h in self.hosts), seconds_max)

    def run_for(self, seconds: float) -> None:
        self.clock.run(lambda: False, seconds)

    def crash(self, index: int, *, down_seconds: float) -> None:
        """Kills a host and starts it again some time later."""
        self.hosts[index].crash()
        self.start_later(self.hosts[index], down_seconds)

    def copy_key(self, host: AnyHost) -> AnyHost:
        """Makes a second process with the key of a host, on another machine with the addresses of its neighbours and
        without its journal. The caller starts it."""
        twin = self.add_host(host.public_key, host.pace, host.name)
        twin.journal.incarnation = host.journal.incarnation + 1
        twin.operator, twin.roster = host.operator, host.roster
        for index in self.network.neighbours(host.index):
            if index not in self._ended:
                self.network.add((index, twin.index), dialler=twin.index)
        self._doubled.add(host.origin)
        return twin

    def _replaced(self, host: AnyHost) -> None:
        """A process has ended because a newer one seems to have its key. If there is one, it is judged for the mistakes
        of both. If not, the process has learned of its own past life, whose incarnation it lost with its disk: its
        operator starts it again, and then it is the newest."""
        if host.origin not in self._doubled:
            host.is_retired = False
            self.start_later(host, RESTART_SECONDS)
            return
        left = [one for one in self.hosts if one.origin == host.origin and not one.is_retired]
        for one in left:
            one.mistakes += host.mistakes
            self._ended.add(host.index)
            self._unite(one)

    def _unite(self, host: AnyHost) -> None:
        """Of two processes with one key, only this one is left."""
        self._doubled.discard(host.origin)


class Everyone(Generic[AnyHost]):
    """Does something hold for all hosts? It is asked before every event, so it looks only at the host for which it did
    not hold last, and only if something has happened to that one: else it would take the cube of the hosts."""

    def __init__(self, hosts: Sequence[AnyHost], holds: Callable[[AnyHost], bool]) -> None:
        self._hosts = hosts
        self._holds = holds
        self._lagging = 0
        self._turns = -1

    def __call__(self) -> bool:
        for _ in self._hosts:
            host = self._hosts[self._lagging]
            if host.turns == self._turns:
                return False
            if not self._holds(host):
                self._turns = host.turns
                return False
            self._lagging, self._turns = (self._lagging + 1) % len(self._hosts), -1
        return True


def _start(host: Host, is_journal_damaged: bool) -> None:
    if not host.is_up and not host.is_retired:
        host.start(is_journal_damaged=is_journal_damaged)
