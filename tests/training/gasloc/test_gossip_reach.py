import pytest
import torch
from dense_gossip import arrived, exchange, mix, random_WF, tensors, weights_of

from seedflood.training.gasloc import encodings
from seedflood.training.gasloc.encodings import pieces_of
from seedflood.training.gasloc.exchange import Difference
from seedflood.training.gasloc.outer import Outer, OuterSettings, Term
from seedflood.training.gasloc.reach import WIDE

BOUNDED = OuterSettings(is_bounded=True)
PIECE = 4 * encodings.BLOCK
STARTS = (0, 16, PIECE - 160)
NUMBERS = PIECE + 304
"""Three tensors in two pieces; the last one lies in both."""


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch):
    monkeypatch.setattr(encodings, "PIECE", PIECE)


def tensors_of(values_F):
    return [values_F[start:end] for start, end in zip(STARTS, (*STARTS[1:], NUMBERS), strict=True)]


def outer_of(values_F, settings=BOUNDED):
    return Outer(values_F, settings, STARTS)


def pulled(outer, theirs_F, weight=0.5, **options):
    """How far a round moves this host that mixes with a partner who tells these numbers."""
    offer, other = outer.propose(), Outer(theirs_F.clone(), OuterSettings())
    before_F = outer.values_F.clone()
    outer.mix([Term(weight, Difference(offer, arrived(other.propose())))], **options)
    return outer.values_F - before_F


LIES = {
    "minus": lambda honest_F: -honest_F,
    "zeros": torch.zeros_like,
    "large": lambda honest_F: 1e4 * honest_F,
    "needles": lambda honest_F: honest_F + 1e4 * (torch.arange(NUMBERS) % 97 == 0),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_liar_moves_no_tensor_further_than_half_of_what_the_host_has_come(lie):
    values_F, progress_F = tensors(random_WF(2, NUMBERS, 1))
    progress_F *= 0.01
    outer = outer_of(values_F)
    values_F += progress_F
    change_F = pulled(outer, LIES[lie](values_F))
    for moved, come in zip(tensors_of(change_F), tensors_of(progress_F), strict=True):
        assert 0 < moved.norm() <= 0.5001 * come.norm()
        assert moved.abs().max() <= 0.5001 * come.abs().max()


def test_tensors_that_nobody_lied_about_are_mixed_in_full():
    values_F = torch.zeros(NUMBERS)
    outer = outer_of(values_F)
    values_F += 0.1
    theirs_F = values_F + 0.05
    theirs_F[: STARTS[1]] = 1e6
    change = [tensor[0].item() for tensor in tensors_of(pulled(outer, theirs_F))]
    assert change == pytest.approx([0.05, 0.025, 0.025])


def test_partners_within_reach_of_each_other_keep_the_mean_exactly():
    values = tensors(0.001 * random_WF(4, NUMBERS, 1))
    outers = [outer_of(value_F) for value_F in values]
    for value_F, step_F in zip(values, tensors(random_WF(4, NUMBERS, 2)), strict=True):
        value_F += 0.1 * step_F + 1  # most of it in one direction
    expected_F = torch.stack(values).double().mean(dim=0)
    exchange(outers, weights_of("complete", 4))
    assert (torch.stack(values).double().mean(dim=0) - expected_F).abs().max() < 1e-6
    assert (values[0] - values[1]).abs().max() < 1e-5


def test_a_bounded_pair_comes_together_though_it_begins_far_apart():
    """As two parts of a swarm that trained by themselves for long."""
    values = tensors(random_WF(2, NUMBERS, 3))
    outers = [outer_of(value_F) for value_F in values]
    begun = (values[0] - values[1]).norm()
    for number in range(40):
        for value_F, step_F in zip(values, tensors(0.05 * random_WF(2, NUMBERS, number, 9)), strict=True):
            value_F += step_F
        exchange(outers, weights_of("path", 2))
    assert (values[0] - values[1]).norm() < 0.15 * begun


def test_rounds_without_steps_leave_the_reach_and_later_ones_shorten_it():
    values_F = torch.zeros(NUMBERS)
    outer = outer_of(values_F)
    reaches = []
    for step in (1.0, 0.0, 0.0, 0.1, 0.1, 0.1):
        values_F += step
        outer.propose()
        outer.mix([])
        reaches.append(float(outer.reach.squares_2T[1, 0].sqrt()))
    assert reaches[:3] == pytest.approx([1.0] * 3)
    assert reaches[3:] == sorted(reaches[3:], reverse=True)
    assert reaches[-1] < 0.4


def test_a_host_that_has_not_come_anywhere_is_not_moved():
    values_F = torch.ones(NUMBERS)
    assert not pulled(outer_of(values_F), torch.zeros(NUMBERS)).any()


def test_closing_rounds_reach_further():
    values_F = torch.zeros(NUMBERS)
    outer = outer_of(values_F)
    values_F += 1
    change_F = pulled(outer, torch.full((NUMBERS,), 100.0), width=WIDE)
    assert change_F.tolist() == pytest.approx([0.5 * WIDE] * NUMBERS)


def test_what_an_encoding_leaves_out_is_no_distance():
    """Norms are near one, and move by less than bfloat16 can tell: what both tell differs by its last bit."""
    values = [torch.full((NUMBERS,), 1.001), torch.full((NUMBERS,), 1.0049)]
    outers = [outer_of(value_F, OuterSettings(encoding="bfloat16", is_bounded=True)) for value_F in values]
    for _ in range(30):
        for value_F in values:
            value_F += 1e-6
        exchange(outers, weights_of("path", 2))
    assert (values[0] - values[1]).abs().max() < 0.002


def test_a_run_that_is_not_bounded_mixes_all_of_it():
    values_F = torch.zeros(NUMBERS)
    change_F = pulled(outer_of(values_F, OuterSettings()), torch.full((NUMBERS,), 100.0))
    assert change_F.tolist() == [50.0] * NUMBERS


def test_several_partners_are_clipped_one_by_one():
    values = tensors(random_WF(3, NUMBERS, 1))
    values[2] += 1000
    outers = [outer_of(value_F) for value_F in values]
    before_F = values[0].clone()
    for value_F in values:
        value_F += 0.1
    for outer in outers:
        outer.propose()
    mix(outers, weights_of("complete", 3))
    assert (values[0] - before_F - 0.1).abs().max() <= 0.1 * 2 / 3 + 1e-4


@pytest.mark.parametrize(("away", "is_near"), [(3.9, True), (4.1, False)])
def test_a_replica_is_near_that_is_within_four_reaches_in_all_tensors_together(away, is_near):
    values_F = torch.zeros(NUMBERS)
    outer = outer_of(values_F)
    values_F += 1
    outer.propose()
    outer.mix([])
    theirs_F = values_F.clone()
    theirs_F[0] += away * NUMBERS**0.5  # all of it in one number of one tensor
    assert outer.is_near(lambda index: theirs_F[pieces_of(NUMBERS)[index]]) == is_near


def test_with_momentum_any_replica_is_near():
    outer = outer_of(torch.zeros(NUMBERS), OuterSettings(gamma=0.5))
    assert outer.is_near(lambda index: torch.full((NUMBERS,), 100.0)[pieces_of(NUMBERS)[index]])
