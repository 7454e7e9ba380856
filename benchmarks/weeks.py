"""Does a swarm last for weeks? Thirty days of virtual time, in which something happens every day.

A closed run in `bounded` windows, a step every twenty minutes. Every day each host is restarted, one leaves and comes
back hours later, the operator lists all hosts again until a week from then, and all links are made again, as when
certificates are renewed. Every fifth day a host is admitted, and the one that was admitted before it is removed. On two
days the ring is cut into halves for half a day.

What must not grow is looked at once a day: every table of every node against its bound (`simulation/seedflood/bounds`),
what the journals hold as bundles, and bytes on the links. The run ends after the last day: then all who belong to it
must have ended with equal digests and every update that was published, and know the newest roster. Neighbours compare
every five minutes, not every two seconds as they do by default, so that a month takes minutes.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

from benchmarks.measure import Metric, make_metric
from benchmarks.processes import ring
from benchmarks.soak import MB, fit
from seedflood.protocol.swarm.rules import Patience
from simulation.bounds import count_entries
from simulation.checks import find_stuck
from simulation.operator import Operator
from simulation.seedflood.bounds import find_excess
from simulation.seedflood.checks import find_silence, find_violations
from simulation.seedflood.host import SeedfloodHost
from simulation.seedflood.world import SeedfloodWorld
from simulation.work import Pace

HOSTS = 6
DAYS = 30
DAY = 86_400.0
HOUR = DAY / 24
PACE = Pace(1140.0, 1260.0)
STEPS_PER_DAY = 72
REFRESH_PERIOD = 6
PATIENCE = Patience(repair_seconds=300.0)
DOWN_SECONDS = 600.0
AWAY_SECONDS = 6 * HOUR
ADMITTED_EVERY_DAYS = 5
DIVIDED_DAYS = (8, 20)
VALID_SECONDS = 7 * DAY
QUIET_SECONDS = DAY
"""In which the last steps must be done, and the run must end."""


@dataclass(frozen=True, slots=True)
class Seen:
    """A day. bundles: in the fullest journal. entries: of all tables of the node that has most. sent_bytes: over all
    links. faults: tables beyond their bounds, and hosts that stand still without a reason."""

    step: int
    bundles: int
    entries: int
    sent_bytes: int
    faults: list[str]


class Month:
    """What happens to the hosts of a world. late: the host that was admitted last."""

    def __init__(self, days: int) -> None:
        self.world = SeedfloodWorld(
            HOSTS,
            ring(HOSTS),
            seed=1,
            steps=STEPS_PER_DAY * days,
            window="bounded",
            refresh_period=REFRESH_PERIOD,
            pace=PACE,
            patience=PATIENCE,
        )
        self.operator = Operator(self.world)
        self.late: SeedfloodHost | None = None
        self._days = days

    def run(self) -> Iterator[Seen]:
        """A month, day by day, and the end of the run."""
        self.world.start()
        for day in range(self._days):
            self._plan(day)
            self.world.run_for(DAY)
            yield self.look()
        self.world.run(QUIET_SECONDS)

    def _plan(self, day: int) -> None:
        after = self.world.clock.after
        for number, host in enumerate(self.world.honest):
            after(HOUR * (1 + 2 * number), self._restart, host)
        after(13 * HOUR, self._leave, self.world.hosts[day % HOSTS])
        after(20 * HOUR, self._renew)
        if day % ADMITTED_EVERY_DAYS == ADMITTED_EVERY_DAYS - 1:
            after(21 * HOUR, self._admit)
        if day in DIVIDED_DAYS:
            after(22 * HOUR, self.world.network.partition, set(range(HOSTS // 2)))
            after(34 * HOUR, self.world.network.unite)

    def _restart(self, host: SeedfloodHost) -> None:
        if host.is_up:
            self.world.crash(host.index, down_seconds=DOWN_SECONDS)

    def _leave(self, host: SeedfloodHost) -> None:
        host.leave()
        self.world.clock.after(1.0, self._restart_later, host)

    def _restart_later(self, host: SeedfloodHost) -> None:
        if host.is_up:
            self.world.crash(host.index, down_seconds=AWAY_SECONDS)

    def _renew(self) -> None:
        """One host learns of it; all links are made again."""
        operator, until = self.operator, round(self.world.clock.now + VALID_SECONDS)
        roster = operator.roster
        for entry in roster.entries:
            if entry.roles:
                roster = roster.adding(replace(entry, not_after=until))
        operator.roster = operator.sign(replace(roster, serial=operator.roster.serial + 1))
        operator.give(operator.roster, 0)
        for pair in self.world.network.linked_pairs():
            self.world.network.break_link(*pair)

    def _admit(self) -> None:
        if self.late is not None:
            self.operator.remove(self.late.index, at=0)
        host = self.operator.admit((0, HOSTS // 2), at=0)
        assert isinstance(host, SeedfloodHost)
        host.pace, self.late = PACE, host
        self.world.start_later(host, 1.0)

    def look(self) -> Seen:
        world = self.world
        hosts = [host for host in world.honest if host.is_up]
        faults = [f"{host.name} {one}" for host in hosts for one in find_excess(host.driver)]
        faults += [f"{host.name} {one}" for host in hosts if (one := find_silence(host)) is not None]
        return Seen(
            max(host.node.step for host in hosts),
            max(len(host.journal.bundles) for host in hosts),
            max(count_entries(host.driver) for host in hosts),
            sum(world.network.carried.values()),
            faults,
        )


def run(days: int = DAYS) -> dict[str, Metric]:
    month = Month(days)
    seen = list(month.run())
    hosts = month.world.honest
    faults = [fault for one in seen for fault in one.faults] + month.operator.find_unheeded(hosts)
    faults += find_stuck(hosts) or find_violations(hosts)
    for fault in faults:
        print(fault)
    daily = [after.sent_bytes - before.sent_bytes for before, after in pairwise(seen)]
    late = list(enumerate(seen))[days // 2 :]
    return {
        "weeks.faults": make_metric([float(len(faults))], 0.0),
        "weeks.steps": make_metric([float(seen[-1].step)]),
        "weeks.journal_bundles": make_metric([float(one.bundles) for _, one in late]),
        "weeks.node_entries": make_metric([float(one.entries) for _, one in late]),
        "weeks.node_entries_per_day": make_metric([fit([(float(k), float(one.entries)) for k, one in late])[0]]),
        "weeks.megabytes_per_day": make_metric([one / MB for one in daily]),
    }
