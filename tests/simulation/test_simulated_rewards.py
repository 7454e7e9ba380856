"""Hosts that learn by reward, as they are drawn: what is lost is noisy, many gradients are zero, and the run unlearns.

Beside each simulated ledger stands a real replica, which is given what the ledger is given, in the same order, and has
the real control. A sum travels as one of the ledger, and stands for that of the replica.
"""

from dataclasses import replace
from random import Random

import pytest
from reference import tiny_replica

from seedflood.training.seedflood import replica as seedflood_replica
from seedflood.training.seedflood.replica import Replica
from simulation.seedflood import host, runs
from simulation.seedflood.compression import Rewards, decode_coefficients
from simulation.seedflood.ledger import Ledger
from simulation.seedflood.runs import Plan, simulate

PLAN = Plan(clients=6, steps=48, refresh_period=12, update_kind="rewards", optimizer="sgd", window="strict")


class Learner(Ledger):
    def __init__(self, chronicle):
        super().__init__(chronicle)
        self.replica = self.fresh()

    @staticmethod
    def fresh():
        run = {"estimate": "gradient", "rank": 1, "clients": PLAN.clients, "steps": PLAN.steps}
        return tiny_replica(refresh_period=PLAN.refresh_period, window=PLAN.window, **run)

    def apply(self, updates):
        given = list(updates)
        super().apply(given)
        self.replica.apply(given)

    def rebuild(self, closed, updates):
        self.replica = self.fresh()
        super().rebuild(closed, updates)

    def coefficients(self, epoch):
        packed = super().coefficients(epoch)
        learned = self.replica.sum_epoch(epoch)
        assert self._chronicle.learned.setdefault((epoch, packed), learned) == learned, "control acted otherwise here"
        return packed

    def _put(self, closed):
        super()._put(closed)
        self.replica.adopt(closed.epoch, self._chronicle.learned[closed.epoch, closed.coefficients], ())


@pytest.fixture
def worlds(monkeypatch):
    """Those of the runs that are simulated."""
    made, make = [], runs._make_world
    compression = Learner.fresh().compression

    def make_world(*args):
        world = make(*args)
        world.chronicle.learned = {}
        made.append(world)
        return world

    monkeypatch.setattr(Replica, "_bind", lambda _: None)  # nobody computes with the weights
    for name in ("check_reads", "mark_skippable"):
        monkeypatch.setattr(seedflood_replica, name, lambda *_: None)
    fields = compression.groups, compression.unit_bits, compression.limit, compression.sparse
    monkeypatch.setattr(runs, "make_compression", lambda *_: Rewards(*fields))
    monkeypatch.setattr(runs, "_make_world", make_world)
    monkeypatch.setattr(host, "Ledger", Learner)
    return made


@pytest.mark.long
@pytest.mark.parametrize("profile", ["all", "adoption", "liars"])
def test_control_acts_equally_on_all_honest_hosts(worlds, profile):
    halvings = 0
    for seed in (1, 2):
        result = simulate(replace(PLAN, seed=seed, profile=profile))
        assert result.violations == [], result.plan
        assert result.is_good, (result.plan, result.stuck)
        replicas = [one.ledger.replica for one in worlds[-1].honest]
        assert len({one.digest() for one in replicas}) == 1 or not result.healed  # liars may keep a run from its end
        halvings = max(halvings, *(one._coefficients.past_before(4).halvings for one in replicas))
    assert halvings > 0
    told = [update.value for update in worlds[-1].chronicle.updates.values()]
    zeros = sum(not any(decode_coefficients(worlds[-1].rules.compression, one)) for one in told)
    assert 0.1 < zeros / len(told) < 0.4


def test_hosts_that_go_on_as_if_nothing_were_lost_are_seen(worlds, monkeypatch):
    """About half of them."""
    drawn, fresh = Random(1), Learner.fresh

    def maybe_deaf():
        replica = fresh()
        if drawn.random() < 0.5:
            monkeypatch.setattr(replica._aggregation, "_block", 1 << 30)
            monkeypatch.setattr(replica._aggregation, "_alone", lambda step: None)
        return replica

    monkeypatch.setattr(Learner, "fresh", staticmethod(maybe_deaf))
    result = simulate(replace(PLAN, profile="none"))
    assert any("control acted otherwise here" in complaint for complaint in result.violations)
