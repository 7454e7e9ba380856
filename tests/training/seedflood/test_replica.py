import json
import struct

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import (
    FAMILIES,
    LABELS,
    assert_weights_close,
    dense_weights,
    permuted,
    some_updates,
    tiny_base,
    tiny_batch,
    tiny_model,
    tiny_replica,
    tiny_settings,
)

from seedflood.protocol.packing import pack, unpack
from seedflood.protocol.seedflood.bundles import Update
from seedflood.protocol.seedflood.seeds import probe_seed
from seedflood.training.models import load_model, prepare_model
from seedflood.training.seedflood.control import HALVINGS_MAX
from seedflood.training.seedflood.replica import Replica

pytestmark = pytest.mark.usefixtures("drawn_once")

STEPS = 40
UPDATES = some_updates(120, steps=STEPS)


@pytest.fixture(scope="module")
def expected():
    """Digest and weights when all updates came at once, before any fold."""
    replica = tiny_replica()
    replica.apply(UPDATES)
    digest = replica.digest()
    replica.open_epoch(5)
    return digest, replica.weights()


def test_weights_are_those_of_the_dense_reference(expected):
    dense = dense_weights(tiny_model("opt"), tiny_replica().subspace, UPDATES, refresh_period=10, rate=0.01 / 2)
    assert_weights_close(expected[1], dense)


@settings(max_examples=10)
@given(
    order=st.integers(0, 10**6),
    cuts=st.lists(st.integers(0, len(UPDATES)), max_size=4),
    epochs=st.lists(st.integers(0, 5), min_size=5, max_size=5),
)
def test_any_order_partition_and_time_of_folding_gives_the_same_digest_and_weights(expected, order, cuts, epochs):
    replica, shuffled = tiny_replica(), permuted(UPDATES, order)
    bounds = [0, *sorted(cuts), len(shuffled)]
    for start, end, epoch in zip(bounds, bounds[1:], sorted(epochs), strict=False):
        replica.open_epoch(epoch)
        replica.apply(shuffled[start:end])
    assert replica.digest() == expected[0]
    replica.open_epoch(5)
    assert replica.digest() == expected[0]
    assert_weights_close(replica.weights(), expected[1])


def test_a_missing_update_changes_the_digest(expected):
    replica = tiny_replica()
    replica.apply(UPDATES[:-1])
    assert replica.digest() != expected[0]


def test_an_open_but_empty_epoch_does_not_show_in_the_digest():
    opened, untouched = tiny_replica(), tiny_replica()
    opened.open_epoch(3)
    opened.apply([Update(0, 31, (5, 0))])
    assert opened.digest() == untouched.digest()


def test_an_update_of_a_later_epoch_waits_until_that_opens():
    replica = tiny_replica()
    before = replica.weights()
    replica.apply([Update(0, 25, (5, 1 << 22))])
    assert_weights_close(replica.weights(), before, 0)
    replica.open_epoch(1)
    assert_weights_close(replica.weights(), before, 0)
    replica.open_epoch(2)
    assert any(not torch.equal(weight, before[name]) for name, weight in replica.weights().items())


def test_measuring_a_step_opens_its_epoch_and_folds_the_one_before():
    replica = tiny_replica()
    replica.apply(some_updates(20))
    weights, digest = replica.weights(), replica.digest()
    replica.measure(12, 1, LABELS, tiny_batch())
    assert replica.epoch == 1
    assert replica.digest() == digest
    assert_weights_close(replica.weights(), weights)
    parameters = dict(replica.model.named_parameters())
    assert_weights_close(parameters, {name: weights[name] for name in parameters})


def test_the_sums_of_its_epochs_make_another_replica_equal(expected):
    donor, taker = tiny_replica(), tiny_replica()
    donor.apply(UPDATES)
    taker.apply(UPDATES[:50])
    taker.open_epoch(2)
    for epoch in range(4):
        taker.adopt(epoch, donor.sum_epoch(epoch), ())
    assert taker.digest() == expected[0]
    taker.open_epoch(5)
    assert_weights_close(taker.weights(), expected[1])


@settings(max_examples=10)
@given(
    held=st.sets(st.integers(0, len(UPDATES) - 1)),
    told=st.sets(st.integers(0, len(UPDATES) - 1)),
    opened=st.integers(0, 5),
)
def test_an_adopted_sum_and_the_updates_it_lacks_are_as_good_as_all_updates(held, told, opened):
    """Of slopes. What is beside a sum counts as behind it; control has closed the epoch before."""
    whole, donor, taker = (tiny_replica() for _ in range(3))
    whole.apply(UPDATES)
    whole.open_epoch(5)
    donor.apply(UPDATES[index] for index in told)
    taker.apply(UPDATES[index] for index in held)
    taker.open_epoch(opened)
    for epoch in range(4):
        lacking = [update for index, update in enumerate(UPDATES) if index not in told and update.step // 10 == epoch]
        taker.adopt(epoch, donor.sum_epoch(epoch), lacking)
    taker.open_epoch(5)
    assert_weights_close(taker.weights(), whole.weights())


def test_an_epoch_that_was_adopted_can_be_taken_back(expected):
    replica, empty = tiny_replica(), tiny_replica()
    before = replica.weights()
    replica.apply(UPDATES)
    replica.open_epoch(2)
    for epoch in range(4):
        replica.adopt(epoch, pack(bytes(replica.epoch_bytes)), ())
    assert replica.digest() == empty.digest()
    assert_weights_close(replica.weights(), before)


def test_sums_are_equal_exactly_if_coefficients_are():
    one, other = tiny_replica(), tiny_replica()
    one.apply(UPDATES)
    other.apply(permuted(UPDATES, 1))
    other.open_epoch(3)
    assert [one.sum_epoch(epoch) for epoch in range(6)] == [other.sum_epoch(epoch) for epoch in range(6)]
    assert len({one.sum_epoch(epoch) for epoch in range(4)}) == 4
    assert one.sum_epoch(4) == pack(bytes(one.epoch_bytes)) == tiny_replica().sum_epoch(0)


@pytest.mark.parametrize("halvings", [-(1 << 63), -1, 1 << 62])
def test_a_sum_that_tells_of_senseless_halvings_stops_nothing(halvings):
    replica = tiny_replica(window="strict")
    sum_E = replica.subspace.zeros()
    sum_E[0], sum_E[replica.subspace.size] = 1 << 20, halvings
    replica.adopt(0, replica.subspace.pack(sum_E), [Update(0, 3, (5, 1 << 20))])
    replica.apply([Update(1, 15, (5, 1 << 20))])
    assert replica.halvings == min(max(0, halvings), HALVINGS_MAX)


def test_a_sum_is_the_integers_of_all_slots_in_little_endian():
    replica = tiny_replica()
    replica.apply([Update(0, 0, (5, -(1 << 32)))])
    numbers = struct.unpack(f"<{replica.subspace.numbers}q", unpack(replica.sum_epoch(0), replica.epoch_bytes))
    assert not any(numbers[replica.subspace.size :])
    sign_S = replica.subspace.coordinates(0, torch.tensor([probe_seed(7, 0, 0)]))[2][0]
    assert sum(numbers) == -int(sign_S.sum()) << 32
    assert set(numbers) == {0, 1 << 32, -(1 << 32)}
    assert sum(map(abs, numbers)) == len(replica.slots) << 32


def test_a_sum_of_another_size_is_refused():
    with pytest.raises(ValueError, match="exactly"):
        tiny_replica().adopt(0, pack(bytes(8)), ())


def test_every_change_shows_in_a_digest_that_was_taken_before():
    replica = tiny_replica()
    packed = replica.sum_epoch(1)
    digests = [replica.digest()]
    for change in (
        lambda: replica.apply([Update(0, 5, (5, 7))]),
        lambda: replica.apply([Update(0, 15, (5, 7))]),
        lambda: replica.adopt(0, packed, [Update(1, 5, (6, 7))]),
        lambda: (replica.open_epoch(2), replica.apply([Update(2, 5, (5, 7))])),
        lambda: replica.adopt(0, packed, ()),
    ):
        change()
        digests.append(replica.digest())
    assert len(set(digests)) == len(digests)
    replica.adopt(1, packed, ())
    assert replica.digest() == digests[0]


def test_half_precision_folds_from_a_float32_master():
    base = tiny_base("llama")
    half = Replica(prepare_model(base.model, base.tokenizer, dtype="bfloat16"), tiny_settings())
    full = tiny_replica("llama")
    for step in range(30):
        for replica in (half, full):
            replica.apply([Update(0, step, (step, 1000))])
            replica.open_epoch((step + 1) // 10)
    assert half.digest() == full.digest()
    assert half.base.digest == full.base.digest
    assert_weights_close(half.weights(), full.weights())
    assert next(half.model.parameters()).dtype == torch.bfloat16
    for name, parameter in half.model.named_parameters():
        assert torch.equal(parameter, half.weights()[name].to(torch.bfloat16))


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_learns_a_batch(family):
    changes = {"rank": 8, "refresh_period": 100, "learning_rate": 4e-3}
    replica, batch = tiny_replica(family, tied=family != "llama", **changes), tiny_batch(8)

    def loss():
        with torch.inference_mode():
            return LABELS.measure(replica.causal, batch).values()[0]

    before = loss()
    for step in range(100):
        updates = []
        for origin in range(2):
            seed = probe_seed(7, origin, step)
            updates.append(Update(origin, step, replica.measure(step, seed, LABELS, batch).value))
        replica.apply(updates)
    assert loss() < 0.7 * before


@pytest.mark.parametrize(("family", "tied"), [("opt", True), ("gpt2", True), ("llama", False)])
def test_an_exported_folder_is_the_model_as_it_stands(family, tied, tmp_path):
    replica = tiny_replica(family, tied=tied)
    replica.apply(some_updates(20))
    folder = replica.export(tmp_path / "out" / "model", card="| run | ab |")
    assert not list(folder.glob("*.bin"))
    assert json.loads((folder / "config.json").read_text())["dtype"] == "float32"
    loaded = load_model(str(folder))
    tokens = torch.tensor([[1, 5, 9, 4]])
    with torch.inference_mode():
        torch.testing.assert_close(loaded.model(tokens).logits, replica.model(tokens).logits, rtol=1e-4, atol=1e-5)
    assert loaded.tokenizer("good film")["input_ids"] == [7, 9]
    replica.export(folder, card="| run | ab |")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["model"]
