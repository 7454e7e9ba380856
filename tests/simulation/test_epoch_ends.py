"""What happens to hosts right where an epoch ends, when news is slow."""

import pytest
from worlds import make_world, run_to_the_end

from seedflood.protocol.swarm.rules import Patience
from simulation.network import Weather
from simulation.seedflood.runs import Plan, simulate
from simulation.work import Pace

PERIOD, HOP_SECONDS, STEP_SECONDS = 10, 0.3, 0.01


@pytest.mark.parametrize("seed", [1, 3, 4])
def test_a_peaceful_restart_at_the_end_of_an_epoch_does_not_stop_compaction(seed):
    """Its goodbye and its return are on their way together, and news take many times as long as a step."""
    world = make_world(
        "path",
        seed=seed,
        steps=4 * PERIOD,
        window="bounded",
        refresh_period=PERIOD,
        weather=Weather(delay_min=HOP_SECONDS, delay_max=HOP_SECONDS),
        pace=Pace(STEP_SECONDS, STEP_SECONDS),
        patience=Patience(start_seconds=5.0),
    )
    world.start()
    host = world.hosts[0]
    assert world.clock.run(lambda: host.is_up and host.node.step >= 2 * PERIOD - 2, 100)
    host.leave()
    world.run_for(HOP_SECONDS / 2)
    host.crash()
    world.start_later(host, STEP_SECONDS)
    run_to_the_end(world)
    for host in world.hosts:
        assert [event for event in host.events if event.name == "replicas differ"] == []
        assert {0, 1} <= set(host.journal.closed)
        assert host.node.is_ready
        assert not host.node.is_doubted


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_who_returns_and_is_cut_off_at_once_neither_speaks_too_late_nor_is_left_behind(optimizer):
    """Nobody knows yet that it is back. If it spoke, the others would compact the epoch without what it said."""
    period = 8
    world = make_world(
        "path",
        steps=12 * period,
        refresh_period=period,
        optimizer=optimizer,
        weather=Weather(delay_min=0.02, delay_max=0.02),
        pace=Pace(STEP_SECONDS, STEP_SECONDS),
        patience=Patience(start_seconds=5.0),
    )
    world.start()
    host = world.hosts[0]
    assert world.clock.run(lambda: host.is_up and host.node.step >= 2 * period + 2, 100)
    host.leave()
    world.run_for(HOP_SECONDS)
    host.crash()
    host.events.clear()
    world.start_later(host, 10 * STEP_SECONDS)
    assert world.clock.run(lambda: any(event.name == "caught up" for event in host.events), 100)
    world.network.partition({0})
    world.run_for(10.0)
    world.network.unite()
    run_to_the_end(world)
    assert len({host.ledger.digest() for host in world.hosts}) == 1


@pytest.mark.parametrize(
    ("seed", "topology", "window", "update_kind", "optimizer", "period", "delay"),
    [
        (204, "ring", "strict", "coefficients", "momentum", 4, 0),
        (208, "ring", "strict", "coefficients", "sgd", 4, 0),
        (201, "path", "strict", "coefficients", "momentum", 1, 1),
        (203, "path", "strict", "coefficients", "momentum", 1, 1),
        (210, "ring", "bounded", "coefficients", "sgd", 4, 2),
    ],
)
def test_two_sides_that_each_believe_that_the_other_has_left_find_together(
    seed, topology, window, update_kind, optimizer, period, delay
):
    """Hosts leave and return so fast that each side goes on alone. If it compacted what it says, the other side would
    wait for ever for rounds that only a sum holds, of an epoch that it is still in itself."""
    plan = Plan(
        clients=5,
        topology=topology,
        seed=seed,
        steps=40,
        window=window,
        profile="epoch-ends",
        refresh_period=period,
        update_kind=update_kind,
        delay=delay,
        optimizer=optimizer,
    )
    result = simulate(plan)
    assert (result.stuck, result.violations) == ([], [])
    assert result.frontiers_equal
    assert result.digests_equal
