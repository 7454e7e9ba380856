"""A replica that is restored from a snapshot has the very bits of the one that wrote it, and keeps them."""

import numpy
import pytest
import torch
from reference import FAMILIES, LABELS, some_updates, tiny_base, tiny_batch, tiny_settings, tiny_tokenizer

from seedflood.protocol.seedflood.messages import Update
from seedflood.training.models import prepare_model
from seedflood.training.seedflood.replica import Replica

UPDATES = some_updates(90, steps=30)
LATE = [Update(7, step, (11 + step, 1 << 21)) for step in (2, 14, 25)]
NEXT = [Update(8, step, (17 + step, 1 << 21)) for step in (3, 26, 31, 45)]


def a_replica(family="opt", dtype="float32", seed=0):
    base = tiny_base(family, seed=seed)
    return Replica(prepare_model(base.model, tiny_tokenizer(), dtype=dtype), tiny_settings())


def trained(family="opt", dtype="float32"):
    """A replica whose weights tell the order of its past: folded epochs, a straggler in each, and an open epoch."""
    replica = a_replica(family, dtype)
    for epoch in range(3):
        replica.open_epoch(epoch)
        replica.apply(update for update in UPDATES if update.step // 10 == epoch)
    replica.apply(LATE)
    return replica


def heir(writer, epochs=range(4)):
    """Another replica that holds these epochs of the writer, from a journal; nothing is folded."""
    replica = a_replica(
        writer.model.config.model_type.removesuffix("_text"), str(writer.base.dtype).removeprefix("torch.")
    )
    for epoch in epochs:
        replica.adopt(epoch, writer.sum_epoch(epoch), ())
    return replica


def successor(writer):
    """An heir with the weights of the writer's snapshot."""
    replica = heir(writer)
    replica.restore(*writer.snapshot())
    return replica


def bits(replica):
    """Device copies and masters."""
    copies = {slot.slot.name: slot.parameter.clone() for slot in replica.slots}
    return copies | {f"master {name}": one.clone() for name, one in zip(copies, replica._masters(), strict=True)}


def assert_equal_bits(one, other):
    ours, theirs = bits(one), bits(other)
    assert ours.keys() == theirs.keys()
    assert [name for name in ours if not torch.equal(ours[name], theirs[name])] == []


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("family", FAMILIES)
def test_both_measure_the_same_from_there_on(family, dtype):
    writer = trained(family, dtype)
    other = successor(writer)
    assert_equal_bits(writer, other)
    for step in (22, 31, 44):
        measures = [replica.measure(step, 5, LABELS, tiny_batch()) for replica in (writer, other)]
        assert measures[0] == measures[1]
        for replica in (writer, other):
            replica.apply(NEXT)
    assert_equal_bits(writer, other)
    assert writer.digest() == other.digest()


def test_a_snapshot_does_not_change_with_the_replica_it_was_taken_of():
    writer = trained()
    arrays, facts = writer.snapshot()
    copies = {name: array.copy() for name, array in arrays.items()}
    writer.apply(NEXT)
    writer.open_epoch(5)
    assert all(numpy.array_equal(arrays[name], copies[name]) for name in copies)
    assert facts["epoch"] == "2"


def test_a_snapshot_holds_folded_weights_and_the_digest_of_what_is_folded_in_them():
    writer = trained()
    arrays, facts = writer.snapshot()
    assert arrays.keys() == {f"weights.{slot.slot.name}" for slot in writer.slots}
    assert {array.dtype.name for array in arrays.values()} == {"float32"}
    folded = a_replica()
    folded.apply(update for update in (*UPDATES, *LATE) if update.step < 20)
    assert facts["digest"] == folded.digest().hex()
    assert facts["base_digest"] == folded.base_digest.hex()


def test_what_cannot_be_written_to_can_be_restored():
    writer = trained()
    arrays, facts = writer.snapshot()
    for array in arrays.values():
        array.flags.writeable = False
    replica = heir(writer)
    replica.restore(arrays, facts)
    replica.apply(LATE)
    assert replica.epoch == 2


def test_epochs_after_the_snapshot_are_folded_when_later_ones_open():
    writer = trained()
    arrays, facts = writer.snapshot()
    writer.apply(NEXT[1:])
    other = heir(writer, range(5))
    other.restore(arrays, facts)
    for replica in (writer, other):
        replica.open_epoch(5)
    assert_equal_bits(writer, other)


@pytest.mark.parametrize("changes", [[], LATE[:1], NEXT[:1]])
def test_weights_with_other_updates_in_them_are_not_restorable(changes):
    writer = trained()
    arrays, facts = writer.snapshot()
    replica = heir(writer, (0, 1, 2) if changes else (0, 2))
    replica.apply(changes)
    assert not replica.is_restorable(facts)
    with pytest.raises(ValueError, match="other updates"):
        replica.restore(arrays, facts)


def test_a_snapshot_before_the_first_fold_is_the_base_model():
    arrays, facts = a_replica().snapshot()
    replica = a_replica()
    replica.apply(UPDATES)
    replica.restore(arrays, facts)
    assert_equal_bits(replica, a_replica())


def break_weights(arrays, facts):
    del arrays["weights.lm_head.weight"]


def break_shape(arrays, facts):
    arrays["weights.lm_head.weight"] = arrays["weights.lm_head.weight"][:-1]


def break_dtype(arrays, facts):
    arrays["weights.lm_head.weight"] = arrays["weights.lm_head.weight"].astype("float64")


def break_base(arrays, facts):
    facts["base_digest"] = bytes(32).hex()


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (break_weights, "lm_head"),
        (break_shape, "lm_head"),
        (break_dtype, "lm_head"),
        (break_base, "another base model"),
    ],
)
def test_what_is_no_snapshot_of_this_run_is_refused_and_changes_nothing(damage, reason):
    writer = trained()
    replica = heir(writer)
    arrays, facts = writer.snapshot()
    damage(arrays, facts)
    with pytest.raises(ValueError, match=reason):
        replica.restore(arrays, facts)
    assert replica.digest() == writer.digest()
    assert replica.epoch == 0
    assert_equal_bits(replica, a_replica())
