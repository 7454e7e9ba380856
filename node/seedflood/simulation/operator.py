"""The operator of a simulated closed run: signs rosters, and gives them to hosts."""

from collections.abc import Collection, Iterable
from typing import Any

from seedflood.protocol.swarm.roster import Cut, Entry, Roster
from seedflood.simulation.host import Host
from seedflood.simulation.work import Pace
from seedflood.simulation.world import World

NONCE = ""


class Operator:
    """Closes the run of a world before it starts. key: the public key. roster: the newest one."""

    def __init__(self, world: World[Any], *, removed: Collection[int] = ()) -> None:
        """removed: hosts that are removed from the beginning."""
        self.key = world.rng.randbytes(32)
        self._world = world
        entries = [Entry(h.name, h.public_key, () if h.index in removed else ("train",)) for h in world.hosts]
        self.roster = self.first = self.sign(Roster(1, tuple(entries)))
        for host in world.hosts:
            host.operator, host.roster = self.key, self.roster
        world.outcasts |= {world.hosts[index].origin for index in removed}

    def sign(self, roster: Roster) -> Roster:
        return roster.signed(self._world.notary.signer(self.key), self.key, NONCE)

    def give(self, roster: Roster, index: int) -> None:
        """Puts a roster on a host, which reads it at once."""
        host = self._world.hosts[index]
        host.enter(host.driver.enrol, roster)

    def remove(self, index: int, *, at: int) -> None:
        """Takes a host off the roster, and tells only the host `at`."""
        host = self._world.hosts[index]
        self._world.outcasts.add(host.origin)
        self.roster = self.sign(self.roster.removing([host.name]))
        self.give(self.roster, at)

    def cut(self, index: int, *, as_held_by: int, at: int) -> Roster:
        """Signs that of a removed host exactly that counts which another one holds, and tells only the host `at`."""
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
        world = self._world
        host: Host = world.add_host(world.rng.randbytes(32), Pace(), name)
        for index in neighbours:
            world.network.add((index, host.index), dialler=host.index)
        world.outcasts.add(host.origin)
        return host


def find_strangers(hosts: Iterable[Host], roster: Roster) -> list[str]:
    """What hosts know of others that are not on the roster: nothing, in a closed run."""
    found = []
    for host in hosts:
        told = [*host.node.membership.all(), *host.journal.members()]
        names = {member.name for member in told if roster.of_key(member.public_key) is None}
        found += [f"{host.name} knows {name}, which is not on the roster" for name in sorted(names)]
    return found
