"""However a run goes, all hosts end it with the same parameters: they meet again before its end."""

import random

import pytest
from gossip import World, unleash

NEVER_MET = 59
"""A host that had never met the others ended by itself."""


def make_world(seed):
    rng = random.Random(seed)
    hosts = rng.choice([2, 3, 4, 5, 6])
    world = World(
        seed=seed,
        run_seed=seed,
        clients=hosts,
        steps=160,
        matching=rng.choice(["one", "two", "full", "all"]),
        gamma=rng.choice([0, 0, 0.5]),
        delay_steps=rng.choice([0, 0, 1, 4]),
        final_rounds=rng.choice([0, 0, 2]),
        agrees_at_end=True,
    )
    for k in range(hosts):
        world.add(
            *(2**k, k),
            step_seconds=rng.choice([0.05, 0.25, 0.25, 0.5]),
            padding=rng.choice([0, 0, 100_000]),
            checkpoint_rounds=rng.choice([1, 1, 3]),
        )
    link = {"delay": rng.choice([0.001, 0.05]), "rate": rng.choice([1e6, 1e8])}
    rng.choice([world.ring, world.complete])(**link)
    return world, rng


@pytest.mark.parametrize("seed", [*range(12), NEVER_MET])
def test_all_hosts_end_with_the_same_parameters(seed):
    world, rng = make_world(seed)
    unleash(world, rng)
    world.finish(3000)
    world.run(90)  # hosts may be killed after they have finished
    world.finish(3000)
    assert len({tuple(host.values) for host in world.hosts}) == 1
    assert [host.refused for host in world.hosts] == [[]] * len(world.hosts)
