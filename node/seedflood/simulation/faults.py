"""Chaos: faults strike hosts and links at random moments, until `end` lets all of them heal.

These are faults that any node can meet. One of them destroys what is durable (`lose_disk`): it waits for a moment at
which the neighbours hold, durably, what will be destroyed, and the next one waits until this one is overcome; a swarm
that loses all copies of something cannot have it. Whether neighbours hold it only an algorithm can say.
"""

import random
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Generic

from seedflood.simulation.profiles import Profile
from seedflood.simulation.world import AnyHost, World

DOWN_SECONDS = (0.1, 4.0)
FAULT_SECONDS = (0.5, 8.0)
"""How long a fault lasts that is no crash."""
LATE_SECONDS = (2.0, 10.0)
FAREWELL_SECONDS = (0.1, 1.0)
"""Between a goodbye and the end of the process."""
WRITES_MAX = 40
"""A killed process dies within so many writes and sends."""
SOON_SECONDS = (0.05, 0.5)
SLOW_FACTOR = 10.0

Fault = Callable[[], bool]
"""Strikes; says whether it did."""


class Chaos(Generic[AnyHost]):
    """Strikes a world by the rates of a profile. faults: how often each kind happened."""

    def __init__(self, world: World[AnyHost], profile: Profile) -> None:
        self.faults: Counter[str] = Counter()
        self._world: World[AnyHost] = world
        self._profile = profile
        self._rng: random.Random = world.rng
        self._is_over = False
        self._is_divided = False
        self._patient: AnyHost | None = None
        """Who lost something durable and has not recovered yet."""
        self._paces = {host.index: host.pace for host in world.hosts}
        self._kinds = self.kinds()

    def kinds(self) -> Mapping[str, Fault]:
        """All faults that there are, by name."""
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
        }

    def holds_past_of(self, host: AnyHost, keeper: AnyHost) -> bool:
        """Does the keeper hold, durably, all that the host ever said, so that the host may lose it?"""
        return False

    def begin(self) -> None:
        """Starts all hosts, some of them late, and lets the faults come."""
        for host in self._world.hosts:
            is_late = self._rng.random() < self._profile.late
            self.faults["late_join"] += is_late
            self._world.start_later(host, self._rng.uniform(*LATE_SECONDS) if is_late else self._rng.random())
        for kind, rate in self._profile.rates.items():
            self._wait(kind, rate * len(self._world.hosts))

    def end(self) -> None:
        """No more faults; all that are there heal at once."""
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
        if not self._world.has_doubles:  # the older of two can only end if it hears of the newer one
            self.faults[kind] += self._kinds[kind]()
        self._wait(kind, per_second)

    def _later(self, span: tuple[float, float], action: Callable[..., None], *args: object) -> None:
        self._world.clock.after(self._rng.uniform(*span), self._unless_over, action, args)

    def _unless_over(self, action: Callable[..., None], args: tuple[object, ...]) -> None:
        if not self._is_over:
            action(*args)

    def _victim(self, is_meant: Callable[[AnyHost], bool] = lambda _: True) -> AnyHost | None:
        """A host that runs, if there is one."""
        hosts = [host for host in self._world.hosts if host.is_up and not host.is_paused and is_meant(host)]
        return self._rng.choice(hosts) if hosts else None

    def _restart(self, host: AnyHost, *, is_journal_damaged: bool = False) -> None:
        self._world.start_later(host, self._rng.uniform(*DOWN_SECONDS), is_journal_damaged=is_journal_damaged)

    # Hosts

    def _kill(self) -> bool:
        """SIGKILL somewhere in the midst of persisting and sending."""
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
        """It leaves, its process ends within this time, and it comes back."""
        host.leave()
        self._later(span, self._end_farewell, host)

    def _end_farewell(self, host: AnyHost) -> None:
        if host.is_up and host.has_left:
            host.crash()
            self._restart(host)

    def _copy_key(self) -> bool:
        """The same host is started on another machine, with its key alone, while it runs on."""
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
        """A host whose disk may fail now, if there is one: the promise holds while one fails at a time."""
        if self._patient is not None and not (self._patient.is_up and self._patient.node.is_ready):
            return None
        chosen = self._world.hosts if among is None else [host for host in self._world.hosts if host.index in among]
        hosts = [host for host in chosen if self._is_backed_up(host)]
        self._patient = self._rng.choice(hosts) if hosts else None
        return self._patient

    def _is_backed_up(self, host: AnyHost) -> bool:
        """Do all neighbours hold, durably, all that the host ever said?"""
        network = self._world.network
        neighbours = [self._world.hosts[index] for index in network.neighbours(host.index)]
        met = [one for one in neighbours if one.journal.incarnation and not one.is_retired]
        return (
            host.is_up
            and bool(met)
            and all(
                network.is_linked(host.index, one.index) and not one.is_paused and self.holds_past_of(host, one)
                for one in met
            )
        )

    # Links

    def _silence(self) -> bool:
        """Nothing arrives one way for a while; then all of it, or the link breaks."""
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
        """A random cut; one at a time."""
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
