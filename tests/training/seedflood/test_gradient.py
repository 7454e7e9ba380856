import math

import pytest
import torch
from reference import (
    FAMILIES,
    LABELS,
    dense_losses,
    dense_slopes,
    objective_of,
    plain_loss,
    some_updates,
    tiny_batch,
    tiny_model,
    tiny_replica,
    tiny_settings,
    tiny_tokenizer,
)
from torch.utils._python_dispatch import TorchDispatchMode

from seedflood.training.models import prepare_model
from seedflood.training.seedflood.replica import Replica

pytestmark = pytest.mark.usefixtures("drawn_once")

KINDS = [(family, tied) for family in FAMILIES for tied in (True, False)]


def trained(family="opt", *, tied=True, **changes):
    """A replica in the middle of an epoch, and a plain model with the same weights in float64."""
    replica = tiny_replica(family, tied=tied, **changes)
    replica.apply(some_updates(20))
    plain = tiny_model(family, tied=tied)
    plain.load_state_dict(replica.weights())
    return replica, plain.to(torch.float64)


@pytest.mark.parametrize("labelled", [True, False])
@pytest.mark.parametrize(("family", "tied"), KINDS)
def test_the_gradient_is_that_of_all_weights_projected_onto_the_bases(family, tied, labelled):
    replica, plain = trained(family, tied=tied)
    batch = tiny_batch(labelled=labelled)
    measured = replica.measure_gradient(5, objective_of(batch), batch)
    expected_F = dense_slopes(plain, replica.subspace, 0, batch)
    torch.testing.assert_close(measured.slope_F.double(), expected_F, rtol=1e-3, atol=1e-5 * float(expected_F.norm()))
    assert measured.loss == pytest.approx(plain_loss(plain, batch), rel=1e-5)


@pytest.mark.parametrize("labelled", [True, False])
@pytest.mark.parametrize("family", FAMILIES)
def test_slopes_along_directions_are_those_of_central_differences(family, labelled):
    replica, plain = trained(family)
    batch = tiny_batch(seed=1, labelled=labelled)  # where no difference takes a ReLU across its corner
    slope_F = replica.measure_gradient(5, objective_of(batch), batch).slope_F
    for seed in (3, 4_000_000_000, 77):
        plus, minus = dense_losses(plain, replica.subspace, 0, seed, batch, 1e-4)
        place_KS, sign_KS = replica.subspace.moves(0, torch.tensor([seed]))
        assert float((slope_F[place_KS] * sign_KS).sum()) == pytest.approx((plus - minus) / 2e-4, rel=1e-2, abs=5e-3)


@pytest.mark.parametrize("family", FAMILIES)
def test_in_bfloat16_the_gradient_is_no_worse_than_that_of_a_plain_model_in_bfloat16(family):
    _, plain = trained(family)
    half = Replica(prepare_model(tiny_model(family), tiny_tokenizer(), dtype="bfloat16"), tiny_settings())
    half.apply(some_updates(20))
    batch = tiny_batch(seed=1)  # where rounding takes no ReLU across its corner
    exact_F = dense_slopes(plain, half.subspace, 0, batch)
    actual_F = half.measure_gradient(5, LABELS, batch).slope_F
    plain_F = dense_slopes(plain.to(torch.bfloat16), half.subspace, 0, batch)
    assert actual_F.dtype == torch.float32
    assert (actual_F - exact_F).norm() < 2 * (plain_F - exact_F).norm() + 0.01 * exact_F.norm()


@pytest.mark.parametrize("options", [{"micro_batch": 1}, {"micro_batch": 4}, {"is_checkpointed": True}])
@pytest.mark.parametrize("labelled", [True, False])
@pytest.mark.parametrize("family", FAMILIES)
def test_saving_memory_changes_a_gradient_by_rounding_alone(family, labelled, options):
    replica, _ = trained(family)
    batch = tiny_batch(9, labelled=labelled)
    objective = objective_of(batch)
    expected = replica.measure_gradient(5, objective, batch)
    actual = replica.measure_gradient(5, objective, batch, **options)
    torch.testing.assert_close(actual.slope_F, expected.slope_F, rtol=1e-4, atol=1e-5 * float(expected.slope_F.norm()))
    assert actual.loss == pytest.approx(expected.loss, rel=1e-6)


class Largest(TorchDispatchMode):
    """Remembers the most elements of what any operation made anew."""

    def __init__(self):
        super().__init__()
        self.elements = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        own = {tensor.untyped_storage().data_ptr() for tensor in args if isinstance(tensor, torch.Tensor)}
        for tensor in result if isinstance(result, tuple | list) else [result]:
            if isinstance(tensor, torch.Tensor) and tensor.untyped_storage().data_ptr() not in own:
                self.elements = max(self.elements, tensor.numel())
        return result


@pytest.mark.parametrize("family", FAMILIES)
def test_nothing_of_the_size_of_a_weight_matrix_is_made(family):
    replica = tiny_replica(family, rank=2)  # an eighth of the width: the thin factors of all layers stand side by side
    weight_max = max(parameter.numel() for parameter in replica.model.parameters())
    batch = tiny_batch(1)
    with Largest() as largest:
        replica.measure_gradient(0, LABELS, batch)
    assert largest.elements < weight_max
    assert all(parameter.grad is None for parameter in replica.model.parameters())


def test_a_checkpointed_layer_is_as_it_was_afterwards():
    replica = tiny_replica()
    replica.measure_gradient(0, LABELS, tiny_batch(), is_checkpointed=True)
    assert all("forward" not in vars(module) for module in replica.model.modules())


def test_a_gradient_between_evaluations_and_probes_disturbs_neither():
    replica, batch = tiny_replica(), tiny_batch()
    before = replica.measure(5, 1, LABELS, batch)
    first = replica.measure_gradient(5, LABELS, batch)
    assert replica.measure(5, 1, LABELS, batch) == before
    assert torch.equal(replica.measure_gradient(5, LABELS, batch).slope_F, first.slope_F)


def test_a_preview_computes_with_updates_and_changes_no_digest():
    replica, applied, batch = tiny_replica(), tiny_replica(), tiny_batch()
    digest, before = replica.digest(), replica.measure_gradient(0, LABELS, batch)
    updates = some_updates(5)
    applied.apply(updates)
    replica.preview(updates)
    assert replica.digest() == digest
    assert replica.measure_gradient(0, LABELS, batch).loss == applied.measure_gradient(0, LABELS, batch).loss
    replica.preview(())
    assert replica.measure_gradient(0, LABELS, batch).loss == before.loss


def test_a_gradient_that_is_not_finite_shows():
    replica = tiny_replica()
    replica.model.get_decoder().layers[0].fc1.weight.fill_(math.nan)
    assert not math.isfinite(replica.measure_gradient(0, LABELS, tiny_batch()).loss)
