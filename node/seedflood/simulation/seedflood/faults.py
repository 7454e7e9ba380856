"""Chaos: faults strike hosts and links at random moments, until `end` lets all of them heal.

Every fault stays within what is promised. Two of them destroy what is durable (`damage`, `lose_disk`): they wait for a
moment at which the neighbours hold, durably, what will be destroyed, and the next one waits until this one is overcome;
a swarm that loses all copies of a bundle cannot have it.
"""

import random
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import replace

from seedflood.protocol.seedflood.messages import Bundle
from seedflood.protocol.seedflood.phase import Phase
from seedflood.simulation.seedflood.host import Host
from seedflood.simulation.seedflood.profiles import Profile
from seedflood.simulation.seedflood.world import World

DOWN_SECONDS = (0.1, 4.0)
FAULT_SECONDS = (0.5, 8.0)
"""How long a fault lasts that is no crash."""
LATE_SECONDS = (2.0, 10.0)
FAREWELL_SECONDS = (0.1, 1.0)
"""Between a goodbye and the end of the process."""
WRITES_MAX = 40
"""A killed process dies within so many writes and sends."""
INTERRUPT_SECONDS = (0.05, 1.5)
"""Between the start of a host and a SIGTERM that it gets while it catches up."""
MEETING_SECONDS = (2.0, 4.5)
"""How long a host without its disk meets nobody but a newcomer."""
BRIEF_SECONDS = (0.1, 1.5)
SOON_SECONDS = (0.05, 0.5)
SLOW_FACTOR = 10.0
DAMAGED_SHARE = 0.3


RUNNING = (Phase.MEASURING, Phase.COLLECTING)


class Chaos:
    """Strikes a world by the rates of a profile. faults: how often each kind happened."""

    def __init__(self, world: World, profile: Profile) -> None:
        self.faults: Counter[str] = Counter()
        self._world = world
        self._profile = profile
        self._rng: random.Random = world.rng
        self._is_over = False
        self._is_divided = False
        self._patient: Host | None = None
        """Who lost something durable and has not recovered yet."""
        self._paces = {host.index: host.pace for host in world.hosts}
        self._kinds: dict[str, Callable[[], bool]] = {
            "kill": self._kill,
            "lose_power": self._lose_power,
            "black_out": self._black_out,
            "pause": self._pause,
            "slow_down": self._slow_down,
            "leave": self._leave,
            "fill_disk": self._fill_disk,
            "damage": self._damage,
            "lose_disk": self._lose_disk,
            "corrupt": self._corrupt,
            "silence": self._silence,
            "partition": self._partition,
            "meet_amnesiac": self._meet_amnesiac,
            "interrupt": self._interrupt,
            "leave_at_epoch_end": self._leave_at_epoch_end,
            "fill_joining": self._fill_joining,
            "copy_key": self._copy_key,
        }

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
        self.faults["corruptions_found"] += sum(
            event.name == "replica rebuilt" and event.facts["was_wrong"] is True
            for host in self._world.honest
            for event in host.events
        )

    def _restore(self, host: Host) -> None:
        host.journal.is_full = False
        host.pace = self._paces[host.index]
        host.die_within(None)
        host.resume()
        if host.is_up and host.node.phase is Phase.LEFT:
            host.crash()
        self._world.start_later(host, self._rng.uniform(*DOWN_SECONDS))

    # When

    def _wait(self, kind: str, per_second: float) -> None:
        self._world.clock.after(self._rng.expovariate(per_second), self._strike, kind, per_second)

    def _strike(self, kind: str, per_second: float) -> None:
        if self._is_over:
            return
        if not self._world.chronicle.doubles:  # the older of two can only end if it hears of the newer one
            self.faults[kind] += self._kinds[kind]()
        self._wait(kind, per_second)

    def _later(self, span: tuple[float, float], action: Callable[..., None], *args: object) -> None:
        self._world.clock.after(self._rng.uniform(*span), self._unless_over, action, args)

    def _unless_over(self, action: Callable[..., None], args: tuple[object, ...]) -> None:
        if not self._is_over:
            action(*args)

    def _victim(self, is_meant: Callable[[Host], bool] = lambda _: True) -> Host | None:
        """A host that runs, if there is one."""
        hosts = [host for host in self._world.hosts if host.is_up and not host.is_paused and is_meant(host)]
        return self._rng.choice(hosts) if hosts else None

    def _restart(self, host: Host, *, is_journal_damaged: bool = False) -> None:
        self._world.start_later(host, self._rng.uniform(*DOWN_SECONDS), is_journal_damaged=is_journal_damaged)

    # Hosts. Each fault says whether it struck.

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
        if host is None or host.node.phase is Phase.LEFT:
            return False
        host.leave()
        self._later(FAREWELL_SECONDS, self._end_farewell, host)
        return True

    def _leave_at_epoch_end(self) -> bool:
        """It returns before all others have heard that it left, if hops are long."""
        period = self._world.rules.refresh_period
        host = self._victim(lambda host: host.node.phase in RUNNING and (host.node.step + 1) % period <= 1)
        if host is None:
            return False
        host.leave()
        self._later(BRIEF_SECONDS, self._end_farewell, host)
        return True

    def _interrupt(self) -> bool:
        """A lost disk, and SIGTERM while the host catches up."""
        host = self._patient_to_be()
        if host is None:
            return False
        host.lose_disk()
        down = self._rng.uniform(*DOWN_SECONDS)
        self._world.start_later(host, down)
        self._world.clock.after(down, self._later, INTERRUPT_SECONDS, self._leave_joining, host)
        return True

    def _leave_joining(self, host: Host) -> None:
        if host.is_up and host.node.phase is Phase.JOINING:
            self.faults["left_joining"] += 1
            host.leave()
            self._later(FAREWELL_SECONDS, self._end_farewell, host)

    def _end_farewell(self, host: Host) -> None:
        if host.is_up and host.node.phase is Phase.LEFT:
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
            host.journal.is_full = True
            self._later(FAULT_SECONDS, setattr, host.journal, "is_full", False)
        return host is not None

    def _damage(self) -> bool:
        """Records of others get lost, sometimes own ones, too."""
        host = self._patient_to_be()
        if host is None:
            return False
        host.crash()
        spared = None if self._rng.random() < 0.3 else host.origin
        self.faults["damaged_records"] += host.journal.damage(self._rng, share=DAMAGED_SHARE, spare=spared)
        self._restart(host, is_journal_damaged=True)
        return True

    def _lose_disk(self) -> bool:
        host = self._patient_to_be()
        if host is None:
            return False
        host.lose_disk()
        self._restart(host)
        return True

    def _meet_amnesiac(self) -> bool:
        """A host loses its disk, and the first that it meets is one that never ran before."""
        newcomers = [host for host in self._world.hosts if not host.journal.incarnation]
        doors = {one for new in newcomers for one in self._world.network.neighbours(new.index)}
        host = self._patient_to_be(doors)
        if host is None:
            return False
        near = set(self._world.network.neighbours(host.index))
        newcomer = self._rng.choice([new for new in newcomers if new.index in near])
        host.lose_disk()
        self._world.network.isolate(host.index, but=newcomer.index)
        for one in (host, newcomer):
            self._world.start_later(one, self._rng.uniform(*SOON_SECONDS))
        self._later(MEETING_SECONDS, self._unite)
        return True

    def _fill_joining(self) -> bool:
        """For a moment there is no space on the disk of a host that catches up."""
        host = self._victim(lambda host: host.node.phase is Phase.JOINING)
        if host is not None:
            host.journal.is_full = True
            self._later(BRIEF_SECONDS, setattr, host.journal, "is_full", False)
        return host is not None

    def _patient_to_be(self, among: Collection[int] | None = None) -> Host | None:
        """A host whose disk may fail now, if there is one: the promise holds while one fails at a time."""
        if self._patient is not None and not (self._patient.is_up and self._patient.node.is_ready):
            return None
        chosen = self._world.hosts if among is None else [host for host in self._world.hosts if host.index in among]
        hosts = [host for host in chosen if self._is_backed_up(host)]
        self._patient = self._rng.choice(hosts) if hosts else None
        return self._patient

    def _is_backed_up(self, host: Host) -> bool:
        """Do all neighbours hold, durably, all that the host ever said?"""
        last = self._world.chronicle.last(host.origin)
        neighbours = [self._world.hosts[index] for index in self._world.network.neighbours(host.index)]
        met = [one for one in neighbours if one.journal.incarnation and not one.is_retired]
        return (
            host.is_up
            and bool(met)
            and all(
                self._world.network.is_linked(host.index, one.index)
                and not one.is_paused
                and (last is None or self._holds_durably(one, last))
                for one in met
            )
        )

    @staticmethod
    def _holds_durably(host: Host, last: Bundle) -> bool:
        return host.node.frontier.holds(last.origin, 0, last.last) and host.journal.is_durable(last)

    def _corrupt(self) -> bool:
        host = self._victim()
        return host is not None and not host.is_corrupt and host.node.is_ready and host.corrupt()

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
