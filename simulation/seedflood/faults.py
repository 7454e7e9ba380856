"""Faults that only SeedFlood has: damage to bundles and sums, and bad timing for its epochs and its catch-up.

SeedFlood promises to survive all of them. Those that destroy durable data wait as `lose_disk` does.
"""

from collections.abc import Mapping

from seedflood.protocol.seedflood.phase import Phase
from simulation.faults import DOWN_SECONDS, FAREWELL_SECONDS, SOON_SECONDS, Chaos, Fault
from simulation.seedflood.host import SeedfloodHost
from simulation.seedflood.world import SeedfloodWorld

INTERRUPT_SECONDS = (0.05, 1.5)
"""Time from the start of a host to a SIGTERM that it gets while it catches up."""
MEETING_SECONDS = (2.0, 4.5)
"""How long a host that lost its disk is linked with nobody but a newcomer."""
BRIEF_SECONDS = (0.1, 1.5)
DAMAGED_SHARE = 0.3

RUNNING = (Phase.MEASURING, Phase.COLLECTING)


class SeedfloodChaos(Chaos[SeedfloodHost]):
    """Strikes a world of SeedFlood."""

    _world: SeedfloodWorld

    def kinds(self) -> Mapping[str, Fault]:
        return {
            **super().kinds(),
            "damage": self._damage,
            "corrupt": self._corrupt,
            "meet_amnesiac": self._meet_amnesiac,
            "interrupt": self._interrupt,
            "leave_at_epoch_end": self._leave_at_epoch_end,
            "fill_joining": self._fill_joining,
            "cut": self._cut,
        }

    def holds_past_of(self, host: SeedfloodHost, keeper: SeedfloodHost) -> bool:
        last = host.chronicle.last(host.origin)
        if last is None:
            return True
        return keeper.node.frontier.holds(last.origin, 0, last.last) and keeper.journal.is_durable(last)

    def end(self) -> None:
        super().end()
        self.faults["corruptions_found"] += sum(
            event.name == "replica rebuilt" and event.facts["was_wrong"] is True
            for host in self._world.honest
            for event in host.events
        )

    # Hosts

    def _leave_at_epoch_end(self) -> bool:
        """Leaves at the end of an epoch for a short time. If hops are long, it is back before all others have heard
        that it left."""
        period = self._world.rules.refresh_period
        host = self._victim(lambda host: host.node.phase in RUNNING and (host.node.step + 1) % period <= 1)
        if host is None:
            return False
        self._bid_farewell(host, BRIEF_SECONDS)
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

    def _leave_joining(self, host: SeedfloodHost) -> None:
        if host.is_up and host.node.phase is Phase.JOINING:
            self.faults["left_joining"] += 1
            self._bid_farewell(host, FAREWELL_SECONDS)

    def _meet_amnesiac(self) -> bool:
        """A host loses its disk, and the first host that it meets has never run before."""
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

    # The roster of a closed run

    def _cut(self) -> bool:
        """The operator signs that of a removed host exactly that counts which one of the others holds, be it much or
        little."""
        world, office = self._world, self._office
        frozen = {entry.name for entry in office.roster.entries if entry.is_removed and entry.cut is None}
        indices = {host.name: host.index for host in reversed(world.hosts)}
        chosen = [
            (indices[name], keeper.index)
            for keeper in world.honest
            if keeper.is_up and not keeper.is_paused and keeper.roster == office.roster
            for name in sorted(frozen)
        ]
        if not chosen:
            return False
        index, keeper = self._rng.choice(chosen)
        world.chronicle.is_tainted = True  # what is cut off was published, and does not count
        office.cut(index, as_held_by=keeper, at=self._messenger())
        return True

    # Disks, and the model

    def _damage(self) -> bool:
        """Loses records of others, sometimes own ones, too."""
        host = self._patient_to_be()
        if host is None:
            return False
        host.crash()
        spared = None if self._rng.random() < 0.3 else host.origin
        self.faults["damaged_records"] += host.journal.damage(self._rng, share=DAMAGED_SHARE, spare=spared)
        self._restart(host, is_journal_damaged=True)
        return True

    def _fill_joining(self) -> bool:
        """Fills the disk of a host that catches up, for a moment."""
        host = self._victim(lambda host: host.node.phase is Phase.JOINING)
        if host is not None:
            self._fill(host, BRIEF_SECONDS)
        return host is not None

    def _corrupt(self) -> bool:
        host = self._victim()
        return host is not None and not host.is_corrupt and host.node.is_ready and host.corrupt()
