"""Worlds that run to their end and are judged."""

from seedflood.cluster.topology import make_topology
from simulation.checks import find_stuck
from simulation.network import Weather
from simulation.seedflood.checks import find_violations
from simulation.seedflood.host import SeedfloodHost
from simulation.seedflood.world import SeedfloodWorld

STORMY = Weather(duplicate=0.1, reorder=0.1, lose=0.05, break_per_second=0.2)


def make_world(topology="ring", clients=4, *, seed=1, steps=8, **settings):
    return SeedfloodWorld(clients, make_topology(topology, clients, seed=seed), seed=seed, steps=steps, **settings)


def run_world(*args, **settings):
    world = make_world(*args, **settings)
    world.start()
    run_to_the_end(world)
    return world


def run_to_the_end(world, seconds_max=3600.0):
    """Healing: everything that is to happen happens; then judges."""
    world.run(seconds_max)
    assert find_stuck(world.honest) == [], f"seed {world.seed}"
    assert find_violations(world.honest) == [], f"seed {world.seed}"


class Witness:
    """Writes down what every host does, in the order in which it happens."""

    def __init__(self, monkeypatch):
        self.trace = []
        self.measured = []
        """(host, step, how many updates it had applied that belong into this measurement, how many that do not)"""
        for name in ("send", "pull", "_apply", "adopted", "noted", "start", "crash", "_measured"):
            monkeypatch.setattr(SeedfloodHost, name, self._watched(name, getattr(SeedfloodHost, name)))

    def _watched(self, name, method):
        def watched(host, *args, **settings):
            self.trace.append((host.clock.now, host.name, name, repr(args)))
            if name == "_measured":
                end = host.rules.applied_before(args[0].step)
                below = sum(step < end for _, step in host.ledger.applied)
                self.measured.append((host.name, args[0].step, below, len(host.ledger.applied) - below))
            return method(host, *args, **settings)

        return watched
