"""Singular vectors of the weights: the leading ones, and the same bits however the products are added up."""

import hashlib

import numpy
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import tiny_base, tiny_replica, tiny_settings, tiny_tokenizer

from seedflood.protocol.seedflood.bundles import Update
from seedflood.training.models import prepare_model
from seedflood.training.randomness import normal
from seedflood.training.seedflood import singular
from seedflood.training.seedflood.compression import quantise
from seedflood.training.seedflood.replica import Replica
from seedflood.training.seedflood.singular import frobenius_norm, singular_vectors

KEY = 5
COUNT = 3


def a_weight(rows=40, columns=24):
    """A spectrum that falls, as that of a trained weight does."""
    left, _, right = torch.linalg.svd(normal(3, rows * columns).view(rows, columns).double(), full_matrices=False)
    return (left @ torch.diag(0.5 ** torch.arange(min(rows, columns)).double()) @ right).float()


def vectors(weight, count=COUNT):
    return singular_vectors(weight, count, KEY)


def test_products_have_one_thread(monkeypatch):
    """NumPy's would have as many as there are cores, which spin: on a busy machine a start took ten times as long."""
    usual, multiply, products = torch.get_num_threads(), torch.mm, []
    monkeypatch.setattr(
        torch, "mm", lambda left, right: products.append(torch.get_num_threads()) or multiply(left, right)
    )
    torch.set_num_threads(3)
    try:
        matrices = sum(slot.slot.is_matrix for slot in tiny_replica(estimate="gradient").slots)
        assert products == [1] * (2 + 4 * singular.ROUNDS) * matrices, "of the weight, and Gram matrices, in each round"
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(usual)


@pytest.mark.parametrize("shape", [(40, 24), (24, 40), (300, 8)])
def test_the_columns_are_those_of_the_largest_singular_values(shape):
    weight = a_weight(*shape)
    exact_left, _, exact_right = torch.linalg.svd(weight, full_matrices=False)
    for columns, exact in zip(vectors(weight), (exact_left[:, :COUNT], exact_right[:COUNT].T), strict=True):
        cosine = torch.diagonal(exact.T @ columns) / len(columns) ** 0.5
        assert torch.allclose(cosine.abs(), torch.ones(COUNT), atol=1e-3)


def test_columns_are_at_right_angles_and_as_long_as_drawn_ones_on_average():
    for columns in vectors(a_weight()):
        assert columns.dtype == torch.float32
        assert torch.allclose(columns.T @ columns / len(columns), torch.eye(COUNT), atol=1e-4)


@settings(max_examples=20)
@given(order=st.permutations(range(40)))
def test_the_order_in_which_products_are_added_up_changes_no_bit(order):
    """Rows in another order are sums in another order, as another library or processor has them."""
    weight = a_weight()
    (left, right), (other_left, other_right) = vectors(weight), vectors(weight[order])
    assert torch.equal(other_right, right)
    assert torch.equal(other_left, left[order])


def test_the_size_of_the_parts_changes_no_bit(monkeypatch):
    weight = a_weight()
    whole = vectors(weight)
    monkeypatch.setattr(singular, "CHUNK_ELEMENTS", 7 * weight.shape[1])
    assert all(map(torch.equal, vectors(weight), whole))


@pytest.mark.parametrize("scale", [2.0**-30, 2.0**20])
def test_the_scale_of_the_weight_changes_no_bit(scale):
    assert all(map(torch.equal, vectors(a_weight() * scale), vectors(a_weight())))


def test_every_bit_is_what_it_always_was():
    """A host that has other bits here has other weights for the same digest."""
    left, right = vectors(normal(11, 60 * 30).view(60, 30) * 0.02, 8)
    told = numpy.concatenate((left.numpy().ravel(), right.numpy().ravel())).astype("<f4").tobytes()
    assert hashlib.sha256(told).hexdigest() == "b919ca4e74f914a284a285a7244fb182744062895472f5e0aaddb0f3fcd4a91f"


def test_a_weight_with_fewer_directions_gives_fewer_columns():
    found = torch.outer(torch.arange(20.0) - 7, torch.arange(10.0) - 3) @ torch.diag(torch.ones(10))
    assert [columns.shape[1] for columns in vectors(found)] == [1, 1]
    assert [columns.shape[1] for columns in vectors(a_weight(20, 2))] == [2, 2]
    assert [columns.shape[1] for columns in vectors(torch.zeros(20, 10))] == [0, 0]


def bases(replica, epoch=0):
    return [replica.subspace.basis(epoch, index) for index in range(len(replica.slots))]


def test_half_the_columns_of_a_matrix_stay_and_the_others_are_drawn_anew_in_each_epoch():
    ours, drawn = tiny_replica(estimate="gradient", rank=5), tiny_replica(rank=5)
    for slot, first, second, other in zip(ours.slots, bases(ours), bases(ours, 1), bases(drawn, 1), strict=True):
        if not slot.slot.is_matrix:
            assert torch.equal(second.u_MR, other.u_MR)
            continue
        for one, later, normals in ((first.u_MR, second.u_MR, other.u_MR), (first.v_NR, second.v_NR, other.v_NR)):
            assert torch.equal(one[:, :2], later[:, :2])
            assert torch.equal(later[:, 2:], normals[:, 2:])
            assert not torch.equal(later[:, :2], normals[:, :2])


def test_hosts_of_different_dtype_have_equal_bases_and_keep_them_when_weights_are_folded():
    made = []
    for dtype in ("float32", "bfloat16"):
        base = prepare_model(tiny_base().model, tiny_tokenizer(), dtype=dtype)
        replica = Replica(base, tiny_settings(estimate="gradient"))
        made.append(bases(replica))
        size = replica.subspace.size
        told = [quantise(replica.compression, normal(step, size).numpy())[0] for step in range(10)]
        replica.apply([Update(origin, step, told[step]) for origin in (1, 2) for step in range(10)])
        replica.open_epoch(1)
        made.append(bases(replica))
    for one, *others in zip(*made, strict=True):
        for other in others:
            assert torch.equal(one.u_MR, other.u_MR)
            assert one.v_NR is None or torch.equal(one.v_NR, other.v_NR)


@given(seed=st.integers(0, 2**32 - 1), rows=st.integers(1, 700), scale=st.sampled_from([1e-6, 0.02, 1.0, 3e4]))
@settings(max_examples=20, deadline=None)
def test_the_norm_is_that_of_the_weight_and_the_same_however_its_squares_are_added(seed, rows, scale):
    weight = normal(seed, rows * 400).view(rows, 400) * scale
    norm = frobenius_norm(weight)
    assert norm == pytest.approx(float(weight.double().norm()), rel=1e-4)
    permuted = weight[torch.randperm(rows, generator=torch.Generator().manual_seed(seed))]
    assert frobenius_norm(permuted) == norm


def test_a_weight_of_zeros_has_no_norm():
    assert frobenius_norm(torch.zeros(3, 4)) == 0.0
