"""Chaos: faults strike hosts and links at random moments, until `end` heals all of them.

These faults can strike nodes of any algorithm. One of them destroys durable data (`lose_disk`). A swarm that loses all
copies of something cannot bring it back. So this fault waits until the neighbours hold copies durably, and until the
last host that it struck has recovered. Only an algorithm can say whether neighbours hold copies (`holds_past_of`).
"""

import random
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Generic

from simulation.liars import is_connected
from simulation.operator import DOORS, Operator
from simulation.profiles import ROSTER, Profile
from simulation.world import AnyHost, World

DOWN_SECONDS = (0.1, 4.0)
FAULT_SECONDS = (0.5, 8.0)
"""How long a fault lasts, other than a crash."""
FAREWELL_SECONDS = (0.1, 1.0)
"""Between a goodbye and the end of the process."""
WRITES_MAX = 40
"""A killed process dies within this many writes and sends."""
SOON_SECONDS = (0.05, 0.5)
SLOW_FACTOR = 10.0

Fault = Callable[[], bool]
"""Strikes, if it can. Returns whether it did."""


class Chaos(Generic[AnyHost]):
    """Strikes a world at the rates of a profile. faults: how often each kind has struck."""

    def __init__(self, world: World[AnyHost], profile: Profile, operator: Operator | None = None) -> None:
        """operator: of a closed run. It changes the roster while faults strike."""
        self.faults: Counter[str] = Counter()
        self._world: World[AnyHost] = world
        self._rates = profile.rates if operator is None else {**profile.rates, **ROSTER}
        self._late, self._late_seconds = profile.late, profile.late_seconds
        self._operator = operator
        self._rng: random.Random = world.rng
        self._is_over = False
        self._is_divided = False
        self._patient: AnyHost | None = None
        """The host that lost durable data last. No other may lose any before it has recovered."""
        self._paces = {host.index: host.pace for host in world.hosts}
        self._kinds = self.kinds()

    def kinds(self) -> Mapping[str, Fault]:
        """All faults by name."""
        return {
            "kill": self._kill,
            "lose_power": self._lose_power,
            "black_out": self._black_out,
            "pause": self._pause,
            "slow_down": self._slow_down,
            "leave": self._leave,
            "fill_disk": self._fill_disk,
            "lose_disk": self._lose_disk,
            "silence": self._silence,
            "partition": self._partition,
            "copy_key": self._copy_key,
            "remove": self._remove,
            "run_out": self._run_out,
            "admit": self._admit,
        }

    def holds_past_of(self, host: AnyHost, keeper: AnyHost) -> bool:
        """Does the keeper hold durably all that the host ever published, so that the host may lose it?"""
        return False

    def begin(self) -> None:
        """Starts all hosts, some of them late, and the faults."""
        for host in self._world.hosts:
            is_late = self._rng.random() < self._late
            self.faults["late_join"] += is_late
            self._world.start_later(host, self._rng.uniform(*self._late_seconds) if is_late else self._rng.random())
        for kind, rate in self._rates.items():
            self._wait(kind, rate * len(self._world.hosts))

    def end(self) -> None:
        """Stops all faults, and heals those that are there."""
        self._is_over = True
        network = self._world.network
        network.weather = replace(network.weather, duplicate=0.0, reorder=0.0, lose=0.0, break_per_second=0.0)
        network.heal()
        for host in self._world.honest:
            self._restore(host)
        self.faults += network.faults

    def _restore(self, host: AnyHost) -> None:
        host.journal.is_full = False
        host.pace = self._paces[host.index]
        host.die_within(None)
        host.resume()
        if host.is_up and host.has_left:
            host.crash()
        self._world.start_later(host, self._rng.uniform(*DOWN_SECONDS))

    # When

    def _wait(self, kind: str, per_second: float) -> None:
        self._world.clock.after(self._rng.expovariate(per_second), self._strike, kind, per_second)

    def _strike(self, kind: str, per_second: float) -> None:
        if self._is_over:
            return
        if not self._world.has_doubles:  # else no fault may keep the older process from hearing of the newer one
            self.faults[kind] += self._kinds[kind]()
        self._wait(kind, per_second)

    def _later(self, span: tuple[float, float], action: Callable[..., None], *args: object) -> None:
        self._world.clock.after(self._rng.uniform(*span), self._unless_over, action, args)

    def _unless_over(self, action: Callable[..., None], args: tuple[object, ...]) -> None:
        if not self._is_over:
            action(*args)

    def _victim(self, is_meant: Callable[[AnyHost], bool] = lambda _: True) -> AnyHost | None:
        """A random host that runs, if there is one. is_meant: which hosts to choose from."""
        hosts = [host for host in self._world.hosts if host.is_up and not host.is_paused and is_meant(host)]
        return self._rng.choice(hosts) if hosts else None

    def _restart(self, host: AnyHost, *, is_journal_damaged: bool = False) -> None:
        self._world.start_later(host, self._rng.uniform(*DOWN_SECONDS), is_journal_damaged=is_journal_damaged)

    # Hosts

    def _kill(self) -> bool:
        """SIGKILL at some point while it persists and sends."""
        host = self._victim()
        if host is not None:
            host.die_within(self._rng.randrange(WRITES_MAX))
        return host is not None

    def _lose_power(self) -> bool:
        host = self._victim()
        if host is not None:
            self.faults["torn_records"] += host.lose_power()
            self._restart(host)
        return host is not None

    def _black_out(self) -> bool:
        """Half of all hosts lose power at once, or all of them."""
        share = self._rng.choice((0.5, 1.0))
        for host in self._world.hosts:
            if host.is_up and self._rng.random() < share:
                self.faults["torn_records"] += host.lose_power()
                self._restart(host)
        return True

    def _pause(self) -> bool:
        host = self._victim()
        if host is not None:
            host.pause()
            self._later(FAULT_SECONDS, host.resume)
        return host is not None

    def _slow_down(self) -> bool:
        host = self._victim()
        if host is None:
            return False
        pace = self._paces[host.index]
        host.pace = pace.slowed(SLOW_FACTOR)
        self._later(FAULT_SECONDS, setattr, host, "pace", pace)
        return True

    def _leave(self) -> bool:
        host = self._victim()
        if host is None or host.has_left:
            return False
        self._bid_farewell(host, FAREWELL_SECONDS)
        return True

    def _bid_farewell(self, host: AnyHost, span: tuple[float, float]) -> None:
        """The host leaves, its process ends within this time, and starts again later."""
        host.leave()
        self._later(span, self._end_farewell, host)

    def _end_farewell(self, host: AnyHost) -> None:
        if host.is_up and host.has_left:
            host.crash()
            self._restart(host)

    def _copy_key(self) -> bool:
        """The host is started a second time on another machine, with its key but without its journal, while it runs
        on."""
        network = self._world.network
        host = None if self._is_divided else self._patient_to_be()
        if host is None or network.is_silent(host.index):
            return False
        twin = self._world.copy_key(host)
        self._paces[twin.index] = self._paces[host.index]
        host.die_within(None)
        self._world.start_later(twin, self._rng.uniform(*SOON_SECONDS))
        return True

    # Disks

    def _fill_disk(self) -> bool:
        host = self._victim()
        if host is not None:
            self._fill(host, FAULT_SECONDS)
        return host is not None

    def _fill(self, host: AnyHost, span: tuple[float, float]) -> None:
        host.journal.is_full = True
        self._later(span, setattr, host.journal, "is_full", False)

    def _lose_disk(self) -> bool:
        host = self._patient_to_be()
        if host is None:
            return False
        host.lose_disk()
        self._restart(host)
        return True

    def _patient_to_be(self, among: Collection[int] | None = None) -> AnyHost | None:
        """A host whose disk may fail now, if there is one. What is promised holds only if one disk fails at a time."""
        if self._is_mending:
            return None
        chosen = self._world.hosts if among is None else [host for host in self._world.hosts if host.index in among]
        hosts = [host for host in chosen if self._is_backed_up(host)]
        self._patient = self._rng.choice(hosts) if hosts else None
        return self._patient

    @property
    def _is_mending(self) -> bool:
        """Has the host that lost durable data last not recovered yet?"""
        return self._patient is not None and not (self._patient.is_up and self._patient.node.is_ready)

    def _is_backed_up(self, host: AnyHost) -> bool:
        """Do all its neighbours hold durably all that the host ever published?"""
        network = self._world.network
        neighbours = [self._world.hosts[index] for index in network.neighbours(host.index)]
        outcasts = self._world.outcasts
        met = [
            one for one in neighbours if one.journal.incarnation and not one.is_retired and one.origin not in outcasts
        ]
        return (
            host.is_up
            and bool(met)
            and all(
                network.is_linked(host.index, one.index) and not one.is_paused and self.holds_past_of(host, one)
                for one in met
            )
        )

    # The roster of a closed run

    def _remove(self) -> bool:
        """The operator takes a host off the roster, be it up or down, and sends it to one of the others."""
        host = self._dispensable()
        if host is not None:
            self._office.remove(host.index, at=self._messenger(host))
        return host is not None

    def _run_out(self) -> bool:
        """The operator puts an end to the entry of a host."""
        host = self._dispensable()
        if host is not None:
            self._office.limit(host.index, self._rng.uniform(*FAULT_SECONDS), at=self._messenger(host))
        return host is not None

    def _admit(self) -> bool:
        """A host that was not in the run from the beginning joins."""
        doors = self._rng.sample([host.index for host in self._world.honest], DOORS)
        newcomer = self._world.hosts[self._office.admit(doors, at=self._messenger()).index]
        self._paces[newcomer.index] = newcomer.pace
        self._world.start_later(newcomer, self._rng.uniform(*SOON_SECONDS))
        return True

    @property
    def _office(self) -> Operator:
        assert self._operator is not None, "an open run has no roster"
        return self._operator

    def _messenger(self, removed: AnyHost | None = None) -> int:
        """One of those who stay learns of a new roster first."""
        return self._rng.choice([host for host in self._world.honest if host is not removed]).index

    def _dispensable(self) -> AnyHost | None:
        """A host without which the others stay connected, and are more than half of those at the beginning. Nobody
        recovers from it what its own disk has lost."""
        network, honest = self._world.network, {host.index for host in self._world.honest}
        listed = [host for host in self._world.hosts if host.origin not in self._world.outcasts and not host.is_retired]
        if self._is_mending or 2 * len(honest) <= len(self._office.first.entries) + 2:
            return None
        links = {host.index: network.neighbours(host.index) for host in self._world.hosts}
        hosts = [host for host in listed if is_connected(links, honest - {host.index})]
        return self._rng.choice(hosts) if hosts else None

    # Links

    def _silence(self) -> bool:
        """In one direction nothing arrives for a while. Then all of it arrives, or the link breaks."""
        pairs = self._world.network.linked_pairs()
        if not pairs:
            return False
        one, other = self._rng.choice(pairs)
        if self._rng.random() < 0.5:
            one, other = other, one
        seconds = self._rng.uniform(*FAULT_SECONDS)
        self._world.network.silence(one, other, seconds)
        if self._rng.random() < 0.5:
            self._later((seconds, seconds), self._world.network.break_link, one, other)
        return True

    def _partition(self) -> bool:
        """Divides the hosts at random. There is one partition at a time."""
        if self._is_divided:
            return False
        self._is_divided = True
        group = {host.index for host in self._world.hosts if self._rng.random() < 0.5}
        self._world.network.partition(group)
        self._later(FAULT_SECONDS, self._unite)
        return True

    def _unite(self) -> None:
        self._is_divided = False
        self._world.network.unite()
