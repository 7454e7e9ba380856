"""The trainer with the embedded model: what it makes again, and what it knows its own by."""

import weakref

import pytest
import torch

from seedflood.config import NodeSettings, RunSettings
from seedflood.errors import ModelError
from seedflood.protocol.seedflood.bundles import Update
from seedflood.protocol.seedflood.messages import ClosedEpoch
from seedflood.training import loading
from seedflood.training.seedflood.trainer import Trainer

pytestmark = pytest.mark.usefixtures("drawn_once")

RUN = {"model": "embedded", "task": "embedded", "rank": 4, "refresh_period": 4, "batch_size": 2, "train_examples": 16}
UPDATES = [Update(origin, step, (100 * origin + step, 1 << 20)) for step in range(10) for origin in range(2)]


def make_trainer(node=None, **changes):
    node = {"device": "cpu", "dtype": "float32", "threads": 1, **(node or {})}
    return Trainer(RunSettings.of(**{**RUN, **changes}), NodeSettings(**node))


@pytest.fixture(scope="module")
def undisturbed():
    trainer = make_trainer()
    trainer.replica.apply(UPDATES)
    trainer.measure(1, 9, 1)
    return trainer


def close(trainer, epochs):
    """These epochs as the journal would hold them."""
    return [ClosedEpoch(epoch, (), trainer.replica.sum_epoch(epoch)) for epoch in epochs]


@pytest.mark.parametrize("closed", [(), (0,), (0, 1), (0, 2)])
def test_a_rebuilt_replica_is_as_if_nothing_had_happened(undisturbed, closed):
    trainer = make_trainer()
    trainer.replica.apply(UPDATES)
    trainer.measure(1, 9, 1)
    trainer.replica._coefficients[2][3] += 1
    with torch.no_grad():
        trainer.replica.slots[0].parameter.view(-1)[7] = 1e6
    trainer.rebuild(close(undisturbed, closed), [[update] for update in UPDATES if update.step // 4 not in closed])
    assert trainer.digest() == undisturbed.digest()
    assert trainer.replica.epoch == 2
    expected = undisturbed.replica.weights()
    for name, weight in trainer.replica.weights().items():
        torch.testing.assert_close(weight, expected[name], rtol=0, atol=1e-5)


def test_a_rebuilt_replica_measures_in_the_epoch_that_was_open(undisturbed):
    trainer = make_trainer()
    trainer.measure(1, 9, 1)
    trainer.rebuild((), [UPDATES])
    ours, theirs = trainer.measure(1, 10, 2), undisturbed.measure(1, 10, 2)
    assert [seed for seed, _ in ours.probes] == [seed for seed, _ in theirs.probes]
    assert ours.loss == pytest.approx(theirs.loss, abs=1e-4)
    assert trainer.digest() == undisturbed.digest()


def test_a_rebuild_lets_go_of_the_old_model_before_it_loads_the_new(monkeypatch):
    trainer = make_trainer()
    trainer.measure(1, 0, 1)
    old = [weakref.ref(trainer.replica.model), *map(weakref.ref, trainer.replica.model.parameters())]
    load = loading.load_model

    def load_then(*arguments, **options):
        assert [one() for one in old] == [None] * len(old)
        return load(*arguments, **options)

    monkeypatch.setattr(loading, "load_model", load_then)
    trainer.rebuild((), ())


def test_the_learning_rate_can_be_asked_while_the_replica_is_made_again(monkeypatch):
    """The page and /metrics are served by another thread."""
    trainer = make_trainer()
    load, asked = loading.load_base, []

    def look_and_load(*args, **options):
        asked.append(trainer.rate_of(3, 1))
        return load(*args, **options)

    monkeypatch.setattr("seedflood.training.seedflood.trainer.load_base", look_and_load)
    trainer.rebuild([], [])
    assert asked == [trainer.rate_of(3, 1)]
    assert 0 < asked[0] < trainer.rate_of(3, 0)


def test_a_rebuild_from_another_base_model_is_refused(monkeypatch):
    trainer = make_trainer()
    load = loading.load_model

    def load_another(*arguments, **options):
        base = load(*arguments, **options)
        base.digest = bytes(32)
        return base

    monkeypatch.setattr(loading, "load_model", load_another)
    with pytest.raises(ModelError, match="put back the files"):
        trainer.rebuild((), ())


@pytest.mark.parametrize(
    "changes",
    [{}, {"estimate": "gradient"}, {"local_steps": 2}],
    ids=["two-sided", "gradient", "local steps"],
)
def test_who_has_the_rows_measures_again_what_another_host_has_measured(changes):
    ours, theirs = (make_trainer({"shard": f"{k}/2", "audit": 0.5}, **changes) for k in (1, 2))
    count = changes.get("local_steps", 1)
    assert ours.rows.digest == theirs.rows.digest
    before = ours.measure(1, 0, count)
    assert ours.measure_again(2, theirs.rows, 0, count).probes == theirs.measure(2, 0, count).probes
    assert ours.measure_again(2, ours.rows, 0, count).probes != theirs.measure(2, 0, count).probes
    if "estimate" not in changes:
        assert ours.measure(1, 0, count).probes == before.probes


def test_other_rows_have_another_digest():
    assert make_trainer(train_examples=17).rows.digest != make_trainer().rows.digest
    assert make_trainer({"shard": "2/4"}).rows[:2] == (1, 4)
