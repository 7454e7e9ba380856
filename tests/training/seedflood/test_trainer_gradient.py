"""The trainer with gradients: what a round tells, and what is made again of it."""

import pytest
import torch

from seedflood.config import NodeSettings, RunSettings
from seedflood.protocol.seedflood.bundles import Update
from seedflood.protocol.seedflood.messages import ClosedEpoch
from seedflood.training.seedflood.trainer import Trainer

pytestmark = pytest.mark.usefixtures("drawn_once")

RUN = {
    "model": "embedded",
    "task": "embedded",
    "estimate": "gradient",
    "rank": 4,
    "refresh_period": 4,
    "batch_size": 2,
    "train_examples": 16,
    "clients": 2,
    "local_steps": 2,
    "steps": 12,
}
TOLD = [{}, {"window": "bounded"}]


def make_trainer(node=None, **changes):
    settings = NodeSettings(**{"device": "cpu", "dtype": "float32", "threads": 1, **(node or {})})
    return Trainer(RunSettings.of(**{**RUN, **changes}), settings)


def advance(trainer, step):
    """One round of both origins, applied."""
    updates = [
        Update(origin, at, told)
        for origin in (1, 2)
        for at, told in enumerate(trainer.measure(origin, step, 2).probes, step)
    ]
    trainer.replica.apply(updates)
    return updates


@pytest.fixture(scope="module", params=TOLD, ids=["adam", "sum"])
def ran(request):
    """A trainer after ten steps, its settings and all that was told."""
    trainer = make_trainer(**request.param)
    updates = [update for step in range(0, 10, 2) for update in advance(trainer, step)]
    return trainer, request.param, updates


def test_all_that_is_told_is_admitted(ran):
    trainer, _, updates = ran
    assert all(trainer.compression.admits([update.value]) for update in updates)
    assert len({update.value for update in updates}) == len(updates)


def test_a_round_leaves_no_trace_until_it_is_applied(ran):
    _, changes, updates = ran
    trainer = make_trainer(**changes)
    weights, digest = trainer.replica.weights(), trainer.digest()
    told = trainer.measure(1, 0, 2).probes
    assert told == tuple(update.value for update in updates[:2])
    assert trainer.digest() == digest
    for name, weight in trainer.replica.weights().items():
        assert torch.equal(weight, weights[name])


@pytest.mark.parametrize("closed", [(), (0,), (0, 1)])
def test_a_rebuilt_replica_is_as_if_nothing_had_happened(ran, closed):
    original, changes, updates = ran
    trainer = make_trainer(**changes)
    sums = [ClosedEpoch(epoch, (), original.replica.sum_epoch(epoch)) for epoch in closed]
    trainer.rebuild(sums, [[update for update in updates if update.step // 4 not in closed]])
    assert trainer.digest() == original.digest()
    trainer.replica.open_latest()
    expected = original.replica.weights()
    for name, weight in trainer.replica.weights().items():
        torch.testing.assert_close(weight, expected[name], rtol=0, atol=1e-5)


def test_hosts_of_another_dtype_and_with_less_memory_agree(ran):
    original, changes, updates = ran
    thrifty = {"dtype": "bfloat16", "micro_batch": 1}
    trainer = make_trainer(thrifty, **changes)
    for step in range(0, 10, 2):
        trainer.measure(2, step, 2)
        trainer.replica.apply(update for update in updates if update.step in (step, step + 1))
    assert trainer.digest() == original.digest()
