"""Long tests of the promises with everything at once; `make soak` runs them, `make test` does not."""

import random

import pytest
from ledgers import Ledger, check_replays, finish
from networks import Network
from processes import Host, Hosts, ring

pytestmark = [pytest.mark.system, pytest.mark.soak, pytest.mark.timeout(5400)]

NODES = 8
CHORDS = [(0, 4), (2, 6)]
STEPS = 1200
KILLS = 50
SEED = 20261121

MOMENTS = ("loading", "started", "link up", "caught up", "progress")
"""What a host that starts says right before it dies."""


def test_fifty_crashes_of_eight_nodes_lose_nothing(hosts: Hosts):
    made = hosts.make(NODES, [*ring(NODES), *CHORDS], {"steps": STEPS, "refresh_period": 100})
    crashes = Crashes(made, random.Random(SEED))
    for host in made:
        host.start()
    kills = 0
    while kills < KILLS // 2:
        kills += crashes.kill_one()
    kills += crashes.kill_all()
    while kills < KILLS:
        kills += crashes.kill_one()
    assert max(host.step for host in made) < STEPS, "all of it before the end"
    finish(made)
    compared = check_contents(made, crashes.ledger)
    print(f"{kills} crashes; {compared} sums of epochs were compared with their updates")
    assert compared


def test_a_partition_of_thirty_seconds_between_eight_nodes_heals_by_itself(hosts: Hosts, network: Network):
    places = [network.attach(k * 2 // NODES) for k in range(NODES)]
    addresses, spaces = zip(*places, strict=True)
    made = hosts.make(NODES, [*ring(NODES), *CHORDS], {"steps": 800}, addresses=addresses, spaces=spaces)
    for host in made:
        host.start()
    made[0].wait_for("progress", step=200)
    network.cut()
    for _ in range(2):  # after ten seconds, and after thirty
        made[0].wait_for("waiting")
        made[-1].wait_for("waiting")
    network.heal()
    finish(made)
    check_contents(made, Ledger(made[0]))  # no epoch has ended: each journal has every update by itself


class Crashes:
    """Kills hosts at moments and restarts them at others, all drawn from one seed."""

    def __init__(self, hosts: list[Host], chances: random.Random) -> None:
        self.ledger = Ledger(hosts[0])
        self._hosts = hosts
        self._chances = chances

    def kill_one(self) -> int:
        """Once while it runs, and often once more before it has come back; how often."""
        victim = self._chances.choice(self._hosts)
        victim.listen()
        for _ in range(self._chances.randrange(30)):
            victim.wait_for("progress")
        self._kill(victim)
        victim.start()
        if self._chances.random() < 0.5:
            return 1
        victim.wait_for(self._chances.choice(MOMENTS))
        self._kill(victim)
        victim.start()
        return 2

    def kill_all(self) -> int:
        """All at once; they count as one."""
        for host in self._hosts:
            assert host.process is not None
            host.process.kill()
        for host in self._hosts:
            host.end()
            self.ledger.look(host.journal)
            host.start()
        return 1

    def _kill(self, victim: Host) -> None:
        """It stays away until nobody notices, or until a neighbour has."""
        neighbour = self._hosts[self._hosts.index(victim) - 1]
        neighbour.listen()
        victim.kill()
        if victim.journal.exists():
            self.ledger.look(victim.journal)
        if self._chances.random() < 0.5:
            neighbour.wait(lambda line: line.get("event") in ("link down", "waiting"))


def check_contents(hosts: list[Host], ledger: Ledger) -> int:
    """Every step of every origin is there, once, on all hosts, and no origin ever contradicted itself.

    Returns how many sums could be compared with their updates.
    """
    steps, compared = hosts[0].settings.run.steps, 0
    for host in hosts:
        frontier, sums = ledger.look(host.journal)
        assert sorted(frontier.mark(origin) for origin in frontier.origins) == [steps] * len(hosts)
        assert frontier.count() == steps * len(hosts)
        compared += ledger.check_sums(sums)
    assert not ledger.contradictions
    check_replays(hosts)
    return compared
