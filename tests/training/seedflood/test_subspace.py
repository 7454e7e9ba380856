import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import permuted, some_updates

from seedflood.protocol.seedflood.bundles import SCALAR_MAX
from seedflood.protocol.seedflood.payload import NO_ROW, NOTHING, Sparse
from seedflood.protocol.seedflood.seeds import probe_seed
from seedflood.training.seedflood import subspace as subspace_module
from seedflood.training.seedflood.subspace import Slot, Subspace

SLOTS = [Slot("b.weight", (5, 7)), Slot("a.weight", (6, 3)), Slot("a.bias", (6,))]


def make(slots=SLOTS, rank=4, run_seed=1):
    return Subspace(slots, run_seed=run_seed, rank=rank)


def accumulated(subspace, updates, epoch=0):
    coefficients = subspace.zeros()
    seeds = [probe_seed(1, update.origin, update.step) for update in updates]
    subspace.accumulate(coefficients, epoch, seeds, [update.value[1] for update in updates])
    return coefficients


def test_the_order_of_the_parameters_changes_nothing():
    updates = some_updates(20)
    forward, backward = make(SLOTS), make(SLOTS[::-1])
    assert forward.slots == backward.slots
    assert forward.digest(accumulated(forward, updates)) == backward.digest(accumulated(backward, updates))


def test_a_slot_draws_the_same_basis_and_coordinates_whatever_other_slots_there_are():
    alone, together = make([Slot("b.weight", (5, 7))]), make()
    assert torch.equal(alone.basis(3, 0).u_MR, together.basis(3, 2).u_MR)
    assert torch.equal(alone.basis(3, 0).v_NR, together.basis(3, 2).v_NR)
    seeds = torch.arange(50)
    assert torch.equal(alone.coordinates(3, seeds)[1][:, 0], together.coordinates(3, seeds)[1][:, 2])


WORDS = Slot("a.words", (300, 7), has_tokens=True)


def test_a_slot_by_rows_comes_last_and_each_of_its_rows_moves_alone_or_with_those_that_share_its_row_of_a():
    subspace = Subspace([WORDS, *SLOTS], run_seed=1, rank=2, by_rows=True)
    assert subspace.slots[-1] == WORDS
    assert subspace.sparse == Sparse(kept=8, rows=256, columns=2)
    basis = subspace.basis(0, 3)
    flat_F = torch.zeros(subspace.size)
    subspace.part(flat_F, 3)[1, 0] = 1.0
    changed_MN = basis.left(subspace.part(flat_F, 3)) @ basis.v_NR.T
    assert changed_MN.any(dim=1).nonzero().flatten().tolist() == [1, 257]
    assert torch.equal(changed_MN[257], basis.v_NR[:, 0])
    assert basis.left(subspace.part(flat_F, 3), torch.tensor([257, 0, 1])).tolist() == [[1, 0], [0, 0], [1, 0]]
    assert subspace.lengths()[-1] == 8 * 7 / 2
    assert not torch.equal(subspace.basis(1, 3).v_NR, basis.v_NR)


@pytest.mark.parametrize(("rank", "rows"), [(1, 128), (8, 1024), (1024, NO_ROW - 1)])
def test_no_slot_by_rows_has_more_rows_than_a_payload_can_number(rank, rows):
    words = Slot("words", (1 << 18, 7), has_tokens=True)
    sparse = Subspace([words, *SLOTS], run_seed=1, rank=rank, by_rows=True).sparse
    assert sparse == Sparse(4 * rank, rows, rank)
    assert Subspace([words, *SLOTS], run_seed=1, rank=rank).sparse == NOTHING
    assert Subspace(SLOTS, run_seed=1, rank=rank, by_rows=True).sparse == NOTHING
    few = Slot("words", (16 * rank, 7), has_tokens=True)
    assert Subspace([few, *SLOTS], run_seed=1, rank=rank, by_rows=True).sparse == NOTHING


def test_bases_differ_between_seeds_epochs_names_and_sides():
    bases = [make(run_seed=s).basis(e, k).u_MR[:3] for s in (1, 2) for e in (0, 1) for k in (1, 2)]
    bases.append(make().basis(0, 1).v_NR)
    assert len({tuple(basis.flatten().tolist()) for basis in bases}) == len(bases)


def test_rows_of_a_basis_do_not_depend_on_the_size_of_the_parameter():
    small, large = make([Slot("w", (5, 7))]), make([Slot("w", (50, 7))])
    assert torch.equal(small.basis(0, 0).u_MR, large.basis(0, 0).u_MR[:5])


def test_slots_move_up_or_down_independently_of_each_other():
    _, _, sign_KS = make().coordinates(0, torch.arange(4096))
    assert set(sign_KS.unique().tolist()) == {-1, 1}
    correlation_SS = sign_KS.double().T @ sign_KS.double() / 4096
    assert (correlation_SS - torch.eye(len(SLOTS))).abs().max() < 0.1
    assert sign_KS.double().mean().abs() < 0.05


@given(seed=st.integers(0, 2**32 - 1), rank=st.integers(1, 40), scalar=st.integers(-SCALAR_MAX, SCALAR_MAX))
def test_an_update_adds_its_scalar_to_one_entry_of_every_slot(seed, rank, scalar):
    subspace = make(rank=rank)
    coefficients = subspace.zeros()
    subspace.accumulate(coefficients, 2, [seed], [scalar])
    i_KS, j_KS, sign_KS = subspace.coordinates(2, torch.tensor([seed]))
    for index, slot in enumerate(subspace.slots):
        part = subspace.part(coefficients, index)
        i, j = int(i_KS[0, index]), int(j_KS[0, index])
        assert int(part[i, j] if slot.is_matrix else part[i]) == int(sign_KS[0, index]) * scalar
        assert int(part.abs().sum()) == abs(scalar)


@given(order=st.integers(0, 1000), cut=st.integers(0, 30))
def test_sums_do_not_depend_on_order_or_batches(order, cut):
    subspace, updates = make(), some_updates(30, scalar_max=SCALAR_MAX)
    expected = accumulated(subspace, updates)
    shuffled = permuted(updates, order)
    assert torch.equal(accumulated(subspace, shuffled[:cut]) + accumulated(subspace, shuffled[cut:]), expected)


@pytest.mark.long
def test_a_million_updates_of_the_largest_scalar_add_up_exactly():
    subspace = make(rank=1)
    count = 1 << 20
    coefficients = subspace.zeros()
    sign_KS = subspace.coordinates(0, torch.arange(count))[2]
    subspace.accumulate(
        coefficients, 0, torch.arange(count), sign_KS[:, 0] * SCALAR_MAX
    )  # all the same way in one slot
    expected_S = (sign_KS[:, :1] * sign_KS).sum(dim=0) * SCALAR_MAX
    assert coefficients[: subspace.size].tolist() == expected_S.tolist()
    assert coefficients[0] == count * SCALAR_MAX


def test_many_updates_are_drawn_in_parts(monkeypatch):
    subspace, updates = make(), some_updates(100)
    expected = accumulated(subspace, updates)
    monkeypatch.setattr(subspace_module, "ACCUMULATE_ELEMENTS_MAX", 20)
    assert torch.equal(accumulated(subspace, updates), expected)


@settings(max_examples=20)
@given(index=st.integers(0, 35), change=st.sampled_from([-1, 1, 2**40]))
def test_the_digest_tells_every_coefficient(index, change):
    subspace = make(rank=4)
    coefficients = accumulated(subspace, some_updates(10))
    changed = coefficients.clone()
    changed[index] += change
    assert subspace.digest(changed) != subspace.digest(coefficients)


def test_the_digest_of_known_updates_is_known():
    subspace = make()
    coefficients = accumulated(subspace, some_updates(10, seed=1))
    assert subspace.digest(coefficients).hex() == "ec30128ef7fe511e2bba4e272d4fcafe3a3cffaac83c390462f0e928246d5c4d"


def test_increments_are_the_learning_rate_times_the_coefficients_in_their_unit():
    subspace = make()
    coefficients = subspace.zeros()
    coefficients[0] = 3 << 20
    assert float(subspace.increments(coefficients, -0.5 * 2.0**-20)[0]) == -1.5
