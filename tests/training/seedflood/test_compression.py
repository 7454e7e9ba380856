import math

import numpy
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import tiny_replica

from seedflood.config import RunSettings
from seedflood.protocol.seedflood.bundles import Update
from seedflood.protocol.seedflood.payload import NOTHING, Coefficients, Sparse
from seedflood.training.seedflood.compression import (
    UpdateDecoder,
    compress,
    compression_of,
    decode_coefficients,
    quantise,
)
from seedflood.training.seedflood.gradient import Gradient
from seedflood.training.seedflood.subspace import Slot, Subspace
from simulation.seedflood import compression as compression_by_hand

SLOTS = (16, 4, 1, 9)
WORDS = Sparse(kept=3, rows=7, columns=9)


def many(values, count):
    return st.lists(values, min_size=count, max_size=count)


def gradients(scale_max=9):
    """F values, each slot at a scale of its own."""
    return st.lists(st.floats(-(2.0**scale_max), 2.0**scale_max), min_size=sum(SLOTS), max_size=sum(SLOTS))


@given(values=gradients())
def test_what_is_told_is_admitted_and_has_the_sign_and_nearly_the_mean_size_of_its_slot(values):
    compression, wanted_F = Coefficients(SLOTS, 22), numpy.array(values)
    told, is_clipped = quantise(compression, wanted_F)
    assert compression.admits([told])
    assert not is_clipped
    told_F = decode_coefficients(compression, told) * 2.0**-22
    start = 0
    for size in SLOTS:
        part = slice(start, start + size)
        mean, sizes = numpy.abs(wanted_F[part]).mean(), numpy.abs(told_F[part])
        if sizes.any():
            assert (sizes / mean >= 2**-0.501).all()
            assert (sizes / mean <= 2**0.501).all()
            assert ((told_F[part] > 0) == (wanted_F[part] > 0)).all()
        else:
            assert mean <= 2.0**-22
        start += size


@given(data=st.data())
def test_payloads_are_read_as_the_protocol_reads_them(data):
    compression = Coefficients(SLOTS, 22, sparse=data.draw(st.sampled_from([NOTHING, WORDS])))
    exponents = data.draw(many(st.integers(0, compression.exponent_max), compression.exponents))
    rows = sorted(data.draw(st.sets(st.integers(0, WORDS.rows - 1), max_size=compression.sparse.kept)))
    signs = data.draw(many(st.booleans(), sum(SLOTS)))
    told = compression_by_hand.encode_coefficients(
        compression, exponents, signs, rows={row: data.draw(many(st.booleans(), WORDS.columns)) for row in rows}
    )
    assert decode_coefficients(compression, told).tolist() == compression_by_hand.decode_coefficients(compression, told)


@given(wanted=st.lists(st.floats(-9, 9), min_size=WORDS.values, max_size=WORDS.values))
def test_of_a_slot_by_rows_those_with_the_largest_slopes_are_told_and_no_others(wanted):
    compression = Coefficients((1,), 22, sparse=WORDS)
    told, _ = quantise(compression, numpy.array([1.0, *wanted]))
    assert compression.admits([told])
    wanted_YX = numpy.array(wanted).reshape(WORDS.rows, -1)
    told_YX = decode_coefficients(compression, told)[1:].reshape(WORDS.rows, -1) * 2.0**-22
    sizes = numpy.abs(wanted_YX).sum(axis=1)
    is_told = told_YX.any(axis=1)
    mean = numpy.abs(wanted_YX[is_told]).mean() if is_told.any() else 0.0
    assert is_told.sum() == min(WORDS.kept, (sizes > 0).sum()) or sizes.max() < 2.0**-18
    assert sizes[is_told].min(initial=9e9) >= sizes[~is_told].max(initial=0) or not is_told.any()
    assert (numpy.abs(told_YX[is_told]) <= 1.42 * mean).all()
    assert ((told_YX > 0) == (wanted_YX > 0))[is_told].all()


def test_what_is_too_large_is_cut_off_and_flagged():
    compression = Coefficients((2,), 22)
    told, is_clipped = quantise(compression, numpy.array([1e30, -1e30]))
    assert is_clipped
    assert compression.admits([told])
    assert numpy.abs(decode_coefficients(compression, told)).min() > 2**31


def told_of(replica, slope_F, *, loss=0.5):
    return compress(replica.compression, Gradient(torch.tensor(slope_F), loss))


def integers(replica, update, epoch=0):
    sum_F = replica.subspace.zeros()
    UpdateDecoder(replica.compression, replica.subspace).add(sum_F, epoch, [update])
    return sum_F[: replica.subspace.size].numpy() * 2.0**-22


def test_signs_of_many_noisy_gradients_add_up_to_what_is_below_the_noise():
    replica, drawn = tiny_replica(estimate="gradient", rank=4), numpy.random.default_rng(1)
    slope_F = numpy.where(drawn.random(replica.subspace.size) < 0.5, 0.2, -0.2).astype(numpy.float32)
    noisy = (slope_F + drawn.normal(size=slope_F.size).astype(numpy.float32) for _ in range(600))
    total = sum(integers(replica, Update(1, step, told_of(replica, one).value)) for step, one in enumerate(noisy))
    assert (numpy.sign(total) == numpy.sign(slope_F)).mean() > 0.99


def test_a_gradient_that_is_not_finite_is_told_as_zero():
    replica = tiny_replica(estimate="gradient")
    slope_F = numpy.ones(replica.subspace.size, dtype=numpy.float32)
    broken_F = slope_F.copy()
    broken_F[3] = math.nan
    for measured in (told_of(replica, broken_F), told_of(replica, slope_F, loss=math.inf)):
        assert not measured.is_finite
        assert replica.compression.admits([measured.value])
        assert not integers(replica, Update(1, 0, measured.value)).any()


def test_nothing_of_a_gradient_is_told_beyond_the_clip_of_the_run():
    replica = tiny_replica(estimate="gradient", clip=0.01)
    told = told_of(replica, numpy.full(replica.subspace.size, 5.0))
    assert told.is_clipped
    assert replica.compression.admits([told.value])
    largest = max(map(abs, compression_by_hand.decode_coefficients(replica.compression, told.value)))
    assert 0.005 < largest * 2.0**-replica.compression.unit_bits <= 0.01


@settings(max_examples=10)
@given(order=st.permutations(range(6)))
def test_sums_of_payloads_know_no_order(order):
    replica = tiny_replica(estimate="gradient")
    rng = numpy.random.default_rng(3)
    updates = [Update(k, 0, quantise(replica.compression, rng.normal(size=replica.subspace.size))[0]) for k in range(6)]
    decoder = UpdateDecoder(replica.compression, replica.subspace)
    sums = [replica.subspace.zeros(), replica.subspace.zeros()]
    decoder.add(sums[0], 0, updates)
    decoder.add(sums[1], 0, [updates[k] for k in order])
    assert torch.equal(*sums)


def test_bundles_of_an_open_epoch_are_less_than_a_hundredth_of_a_model():
    run = RunSettings.of(estimate="gradient", clients=4)
    slots = opt_slots(layers=12, width=768, words=50272, positions=2050)
    subspace = Subspace(slots, run_seed=run.seed, rank=run.seedflood.rank, by_rows=True)
    told = compression_of(run.seedflood, subspace)
    model_bytes = 4 * sum(math.prod(slot.shape) for slot in slots)
    assert run.clients * run.seedflood.refresh_period * told.size < model_bytes / 100


def opt_slots(layers, width, words, positions):
    """The parameters of an OPT, tied ones once."""
    inner = [(k, (width, width)) for k in "qkvo"] + [("fc1", (4 * width, width)), ("fc2", (width, 4 * width))]
    shapes = {"words": (words, width), "positions": (positions, width), "norm.weight": (width,), "norm.bias": (width,)}
    for layer in range(layers):
        for name, shape in inner:
            shapes |= {f"{layer}.{name}.weight": shape, f"{layer}.{name}.bias": shape[:1]}
        shapes |= {f"{layer}.{norm}.{part}": (width,) for norm in ("norm1", "norm2") for part in ("weight", "bias")}
    return [Slot(name, shape, name == "words") for name, shape in shapes.items()]


def test_at_low_ranks_slots_of_one_kind_in_neighbouring_layers_have_one_scale():
    names = [f"layers.{layer}.key" for layer in (0, *range(5, 12))] + ["layers.3.value", "norm"]
    subspace = Subspace([Slot(name, (4,) if name == "norm" else (4, 3)) for name in names], run_seed=1, rank=2)
    layers = [f"layers.{layer}.key" for layer in (0, 5, 6, 7, 8, 9, 10, 11)]
    assert [slot.name for slot in subspace.slots] == [*layers, "layers.3.value", "norm"]
    compression = compression_of(RunSettings.of(task="embedded", estimate="gradient").seedflood, subspace)
    assert compression.groups == (6 * 4, 2 * 4, 4, 2)
    assert compression.size == 4 + (subspace.size + 7) // 8 + 2


@pytest.mark.parametrize("rank", [8, 32])
def test_at_higher_ranks_each_slot_has_a_scale_of_its_own(rank):
    slots = [Slot(f"layers.{layer}.key", (64, 48)) for layer in range(8)]
    assert Subspace(slots, run_seed=1, rank=rank).groups == (rank * rank,) * 8
