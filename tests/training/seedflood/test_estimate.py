import math
from dataclasses import replace
from typing import get_args

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from reference import (
    FAMILIES,
    LABELS,
    dense_losses,
    direction,
    distinct_parameters,
    objective_of,
    plain_loss,
    some_updates,
    tiny_batch,
    tiny_model,
    tiny_replica,
    tiny_settings,
    tiny_tokenizer,
)

from seedflood.config import EstimateName
from seedflood.protocol.seedflood.bundles import SCALAR_MAX, SCALAR_UNIT_BITS
from seedflood.protocol.seedflood.seeds import probe_seed
from seedflood.training.causal import CausalModel
from seedflood.training.models import prepare_model
from seedflood.training.seedflood.estimate import ESTIMATES, Estimate, make_measurement, to_fixed_point, two_sided
from seedflood.training.seedflood.replica import Replica

pytestmark = pytest.mark.usefixtures("drawn_once")


def alpha_of(measured):
    """The slope that is told, as a number."""
    return measured.value[1] * 2.0**-SCALAR_UNIT_BITS


KINDS = [(family, tied) for family in FAMILIES for tied in (True, False)]


@pytest.mark.parametrize("labelled", [True, False])
@pytest.mark.parametrize(("family", "tied"), KINDS)
def test_one_batched_forward_gives_the_losses_of_two_perturbed_models(family, tied, labelled, monkeypatch):
    """And so does a batch that is split into rows of their own."""
    epsilon, seed, batch = 0.05, 123456789, tiny_batch(labelled=labelled)
    replica = tiny_replica(family, tied=tied)
    replica.epsilon = epsilon
    replica.apply(some_updates(20))
    plain = tiny_model(family, tied=tied)
    plain.load_state_dict(replica.weights())
    plus, minus = dense_losses(plain, replica.subspace, 0, seed, batch, epsilon)
    for call_tokens in (0, 10**6):
        monkeypatch.setattr("seedflood.training.seedflood.estimate.CPU_CALL_TOKENS", call_tokens)
        measured = replica.measure(5, seed, objective_of(batch), batch)
        assert measured.loss == pytest.approx((plus + minus) / 2, rel=1e-5)
        assert alpha_of(measured) == pytest.approx((plus - minus) / (2 * epsilon), rel=1e-4)
        assert measured.is_finite
        assert not measured.is_clipped


@pytest.mark.parametrize("family", FAMILIES)
def test_the_estimate_is_the_slope_along_the_direction(family):
    replica, batch = tiny_replica(family), tiny_batch()
    plain = tiny_model(family).to(torch.float64)
    plus, minus = dense_losses(plain, replica.subspace, 0, 99, batch, 1e-4)  # less drowns: some models norm in float32
    assert alpha_of(replica.measure(0, 99, LABELS, batch)) == pytest.approx((plus - minus) / 2e-4, rel=2e-2, abs=2e-3)


@pytest.mark.parametrize("labelled", [True, False])
def test_padding_and_position_of_the_answer_change_no_loss(labelled):
    model, batch = tiny_model("opt"), tiny_batch(labelled=labelled)
    with torch.inference_mode():
        loss = objective_of(batch).measure(CausalModel(model), batch).values()[0]
    assert loss == pytest.approx(plain_loss(model, batch), rel=1e-5)


@given(lengths=st.lists(st.integers(1, 40), min_size=1, max_size=12), call_tokens=st.integers(0, 100))
def test_a_split_batch_holds_every_row_once_and_costs_no_more(lengths, call_tokens):
    batch = tiny_batch(len(lengths))
    tokens = torch.arange(len(lengths)).unsqueeze(1).expand(-1, max(lengths))
    batch = replace(batch, tokens_BT=tokens, lengths_B=torch.tensor(lengths))
    pieces = batch.split(call_tokens)
    rows = [row for piece in pieces for row in piece.tokens_BT[:, 0].tolist()]
    assert sorted(rows) == list(range(len(lengths)))
    assert [n for piece in pieces for n in piece.lengths_B.tolist()] == [lengths[row] for row in rows]
    cost = sum(piece.tokens_BT.numel() + call_tokens for piece in pieces)
    assert cost <= batch.tokens_BT.numel() + call_tokens


@given(alpha=st.floats(-2047, 2047))
def test_a_scalar_is_the_nearest_unit(alpha):
    scalar, is_clipped = to_fixed_point(alpha)
    assert abs(scalar * 2.0**-20 - alpha) <= 2.0**-21
    assert not is_clipped


@pytest.mark.parametrize(("halves", "scalar"), [(1, 0), (3, 2), (5, 2), (-1, 0), (-3, -2)])
def test_a_scalar_is_rounded_half_to_even(halves, scalar):
    assert to_fixed_point(halves * 2.0**-21) == (scalar, False)


@pytest.mark.parametrize("sign", [1, -1])
def test_a_scalar_is_clipped(sign):
    assert to_fixed_point(sign * 1e30) == (sign * SCALAR_MAX, True)
    assert to_fixed_point(sign * (2048.0 - 2.0**-20)) == (sign * SCALAR_MAX, False)


@given(alpha=st.floats(-5000, 5000), clip=st.floats(1e-4, 4096))
def test_a_host_never_tells_more_than_the_clip_of_the_run(alpha, clip):
    limit = math.floor(clip * 2**20)
    scalar, is_clipped = to_fixed_point(alpha, limit)
    assert abs(scalar) <= limit
    assert is_clipped == (scalar != to_fixed_point(alpha, 1 << 40)[0])


def test_every_name_of_the_settings_is_an_estimate():
    assert {*ESTIMATES, "gradient"} == set(get_args(EstimateName))


@pytest.mark.parametrize("estimate", ESTIMATES)
def test_a_measured_slope_beyond_the_clip_is_cut_off_and_flagged(estimate):
    free, clipped = tiny_replica(estimate=estimate), tiny_replica(estimate=estimate, clip=1e-4)
    assert not clipped.compression.admits([free.measure(0, 1, LABELS, tiny_batch()).value])
    measured = clipped.measure(0, 1, LABELS, tiny_batch())
    assert measured.is_clipped
    assert abs(measured.value[1]) == clipped.compression.reach == 104
    assert clipped.compression.admits([measured.value])


@pytest.mark.parametrize("alpha", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_becomes_zero(alpha):
    assert to_fixed_point(alpha) == (0, False)


@pytest.mark.parametrize("estimate", ESTIMATES)
def test_a_loss_that_is_not_finite_is_flagged(estimate):
    replica = tiny_replica(estimate=estimate)
    replica.model.get_decoder().layers[0].fc1.weight.fill_(math.nan)
    measured = replica.measure(0, 1, LABELS, tiny_batch())
    assert measured.value[1] == 0
    assert not measured.is_finite


def test_whoever_computes_the_losses_it_is_the_estimate_of_the_run(monkeypatch):
    """Of a script's own loop, too."""
    of_the_run = Estimate(two_sided, lambda losses, epsilon, limit: make_measurement(3.0, 2.0, losses[0], limit))
    monkeypatch.setitem(ESTIMATES, "two-sided", of_the_run)
    replica = tiny_replica(estimate="two-sided")
    measured = [replica.measure(0, 1, LABELS, tiny_batch()), replica.measure_by(lambda: 1.0, 1)]
    assert [one.value[1] for one in measured] == [1.5 * 2**20] * 2


def test_probe_seeds_are_pure_and_differ():
    seeds = {probe_seed(1, origin, step) for origin in range(30) for step in range(30)}
    assert len(seeds) > 895
    assert probe_seed(2**63 - 1, 2**64 - 1, 2**53 - 1) == 4287143654


@pytest.mark.parametrize("labelled", [True, False])
@pytest.mark.parametrize("family", FAMILIES)
def test_in_bfloat16_losses_are_no_worse_than_those_of_a_plain_model_in_bfloat16(family, labelled):
    """Both signs of several directions: the plain ones have the updates and the direction written into their weights.
    One direction alone would be chance."""
    epsilon, batch = 0.5, tiny_batch(labelled=labelled)
    base = prepare_model(tiny_model(family), tiny_tokenizer(), dtype="bfloat16")
    replica = Replica(base, tiny_settings())
    replica.epsilon = epsilon
    generator = torch.Generator().manual_seed(0)
    seeds, scalars = (torch.randint(*ends, (20,), generator=generator) for ends in ((0, 1 << 32), (-1 << 22, 1 << 22)))
    sum_E = replica.subspace.zeros()
    replica.subspace.accumulate(sum_E, 0, seeds, scalars)
    replica.adopt(0, replica.subspace.pack(sum_E), ())
    weights, ours, plain, exact = replica.weights(), [], [], []
    for seed in range(40, 43):
        measured = replica.measure(5, seed, objective_of(batch), batch)
        ours.append([measured.loss + sign * epsilon * alpha_of(measured) for sign in (1, -1)])
        plain.append(perturbed_losses(family, replica, weights, seed, batch, epsilon, torch.bfloat16))
        exact.append(perturbed_losses(family, replica, weights, seed, batch, epsilon, torch.float64))
    ours, plain, exact = map(torch.tensor, (ours, plain, exact))
    tolerance = 2 * (plain - exact).norm() + 0.01 * exact.norm()
    assert (ours - exact).norm() < tolerance
    assert (exact[:, 0] - exact[:, 1]).norm() > 3 * tolerance, "directions that change nothing prove nothing"


def perturbed_losses(family, replica, weights, seed, batch, epsilon, dtype):
    """Losses of plain models of a type with weights +-epsilon z."""
    losses = []
    for sign in (1, -1):
        plain = tiny_model(family)
        plain.load_state_dict(weights)
        with torch.no_grad():
            for index, (_, parameter) in enumerate(distinct_parameters(plain)):
                parameter.add_(direction(replica.subspace, 0, seed, index), alpha=sign * epsilon)
        losses.append(plain_loss(plain.to(dtype), batch))
    return losses
