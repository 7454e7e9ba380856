import pytest
from worlds import STORMY, Witness, make_world, run_to_the_end

from simulation.seedflood.runs import Plan, simulate


def trace_of(monkeypatch, seed):
    with monkeypatch.context() as patch:
        witness = Witness(patch)
        world = make_world("ring", 5, seed=seed, steps=5, weather=STORMY)
        world.start()
        world.run_until_step(2)
        world.crash(1, down_seconds=1.5)
        run_to_the_end(world)
        return witness.trace


def test_the_same_seed_gives_exactly_the_same_run(monkeypatch):
    first, second = trace_of(monkeypatch, 7), trace_of(monkeypatch, 7)
    assert len(first) > 300
    assert first == second


@pytest.mark.parametrize(("profile", "window"), [("keys", "bounded"), ("liars", "bounded"), ("all", "strict")])
def test_the_same_plan_gives_exactly_the_same_result(profile, window):
    plan = Plan(clients=7, topology="grid", seed=2, steps=6, window=window, profile=profile)
    first, second = (simulate(plan).facts() | {"wall_seconds": 0} for _ in range(2))
    assert first == second


def test_another_seed_gives_another_run(monkeypatch):
    assert trace_of(monkeypatch, 7) != trace_of(monkeypatch, 8)
