"""The operator of a simulated closed run: signs rosters, and gives them to hosts."""

import random
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from seedflood.protocol.swarm.roster import Cut, Entry, Role, Roster
from simulation.host import Host
from simulation.work import Pace
from simulation.world import World

NAME = ""
DOORS = 2
"""How many hosts a newcomer or a stranger dials."""


class Operator:
    """Closes the run of a world before it starts. key: the public key. roster: the newest one."""

    def __init__(self, world: World[Any], *, removed: Collection[int] = ()) -> None:
        """removed: hosts that are removed from the beginning."""
        self.key = world.rng.randbytes(32)
        self._world = world
        entries = [Entry(h.name, h.public_key, () if h.index in removed else _roles(h)) for h in world.hosts]
        self.roster = self.first = self.sign(Roster(1, tuple(entries)))
        for host in world.hosts:
            host.operator, host.roster = self.key, self.roster
        for index in removed:
            world.cast_out(world.hosts[index].origin)

    def sign(self, roster: Roster) -> Roster:
        return roster.signed(self._world.notary.signer(self.key), self.key, NAME)

    def give(self, roster: Roster, index: int) -> None:
        """Puts a roster on the disk of a host, which reads it at once, or when it starts."""
        host = self._world.hosts[index]
        host.roster = roster
        host.enter(lambda: host.driver.enrol(roster))

    def remove(self, index: int, *, at: int) -> None:
        """Takes a host off the roster, and sends it only to the host `at`."""
        host = self._world.hosts[index]
        self._world.cast_out(host.origin)
        self._send(self.roster.removing([host.name]), at)

    def limit(self, index: int, seconds: float, *, at: int) -> None:
        """Lets the entry of a host run out after about this time, and sends it only to the host `at`."""
        host = self._world.hosts[index]
        self._world.cast_out(host.origin)
        end = round(self._world.clock.now + seconds)
        self._send(self.roster.adding(Entry(host.name, host.public_key, _roles(host), not_after=end)), at)

    def admit(self, neighbours: Sequence[int], *, at: int) -> Host:
        """Puts a new host, which knows the addresses of these hosts, onto the roster. It and the host `at` have the
        new edition. The caller starts it."""
        host = self._add_host(neighbours, f"late{len(self._world.hosts)}")
        self._send(self.roster.adding(Entry(host.name, host.public_key)), at)
        host.operator, host.roster = self.key, self.roster
        self._world.welcome(host)
        return host

    def cut(self, index: int, *, as_held_by: int, at: int) -> Roster:
        """Signs that of a removed host exactly that counts which another one holds, and sends it only to the host
        `at`."""
        self.roster = self.sign(self.cutting(index, as_held_by=as_held_by))
        self.give(self.roster, at)
        return self.roster

    def cutting(self, index: int, *, as_held_by: int) -> Roster:
        """The next edition, with such a cut; not signed."""
        view = self._world.hosts[as_held_by].node.view(self._world.clock.now)
        assert view.roster is not None, "the run is closed"
        name = self._world.hosts[index].name
        removal = next(one for one in view.roster.removals if one.name == name)
        return self.roster.cutting(name, Cut.keeping(removal.held, removal.since, removal.content))

    def add_stranger(self, neighbours: Iterable[int], name: str = "stranger") -> Host:
        """A host with the settings of the run and the addresses of these hosts, but not on the roster. The caller
        starts it. It heeds no roster itself."""
        host = self._add_host(neighbours, name)
        self._world.cast_out(host.origin)
        return host

    def find_unheeded(self, hosts: Iterable[Host]) -> list[str]:
        """What is wrong at the end of the run: hosts with another roster than the newest, or that know of others."""
        others = [f"{host.name} ends with an older roster" for host in hosts if host.roster != self.roster]
        return [*others, *find_strangers(hosts, self.roster)]

    def _send(self, roster: Roster, at: int) -> None:
        self.roster = self.sign(roster)
        self.give(self.roster, at)

    def _add_host(self, neighbours: Iterable[int], name: str) -> Host:
        world = self._world
        host: Host = world.add_host(world.rng.randbytes(32), Pace(), name)
        for index in neighbours:
            world.network.add((index, host.index), dialler=host.index)
        return host


def _roles(host: Host) -> tuple[Role, ...]:
    return ("relay",) if host.is_relay else ("train",)


def close(world: World[Any], draws: random.Random) -> Operator:
    """Closes the run of a world. A stranger knows the addresses of some hosts."""
    operator = Operator(world)
    operator.add_stranger(draws.sample(range(len(world.hosts)), min(DOORS, len(world.hosts))))
    return operator


def find_strangers(hosts: Iterable[Host], roster: Roster) -> list[str]:
    """What hosts know of others that are not on the roster: nothing, in a closed run."""
    found = []
    for host in hosts:
        known = [*host.node.membership.all(), *host.journal.members()]
        names = {member.name for member in known if roster.of_key(member.public_key) is None}
        found += [f"{host.name} knows {name}, which is not on the roster" for name in sorted(names)]
    return found
