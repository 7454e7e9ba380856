import numpy
import pytest
import torch
from dense_gossip import agree, random_WF, tensors

from seedflood.errors import PeerError
from seedflood.training.gasloc import encodings
from seedflood.training.gasloc.exchange import Arrival
from seedflood.training.gasloc.gathering import Gathering
from seedflood.training.gasloc.outer import Outer, OuterSettings

PIECE = 4 * encodings.BLOCK
NUMBERS = PIECE + 48
TREES = {"a chain": [0, 0, 1, 2], "a star": [0, 0, 0, 0], "two levels": [0, 0, 0, 1, 1]}


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch):
    monkeypatch.setattr(encodings, "PIECE", PIECE)


def make(workers, seed=1, **settings):
    values = tensors(random_WF(workers, NUMBERS, seed))
    return values, [Outer(value_F, OuterSettings(**settings)) for value_F in values]


@pytest.mark.parametrize("parents", TREES.values(), ids=TREES)
@pytest.mark.parametrize("encoding", ["float32", "bfloat16", "uint8"])
@pytest.mark.parametrize("is_overlapped", [False, True])
def test_after_a_round_all_are_equal_bit_by_bit(parents, encoding, is_overlapped):
    values, outers = make(len(parents), encoding=encoding, gamma=0.5, is_overlapped=is_overlapped)
    for number in range(3):
        for value_F, step_F in zip(values, tensors(random_WF(len(parents), NUMBERS, 2, number)), strict=True):
            value_F += step_F
        mixed = agree(outers, parents)
        assert all(one.distance > 0 for one in mixed)
        assert all(torch.equal(value_F, values[0]) for value_F in values)


@pytest.mark.parametrize("encoding", ["bfloat16", "uint8"])
def test_what_an_encoding_leaves_out_is_made_up_for(encoding):
    """After many rounds the parameters are as near to the mean of all progress as after the first one."""
    parents = TREES["two levels"]
    values, outers = make(5, encoding=encoding)
    agree(outers, parents)
    expected_F = values[0].double()
    errors = []
    for number in range(30):
        steps = tensors(0.01 * random_WF(5, NUMBERS, 3, number))
        for value_F, step_F in zip(values, steps, strict=True):
            value_F += step_F
        expected_F = expected_F + torch.stack(steps).double().mean(dim=0)
        agree(outers, parents)
        errors.append(float((values[0] - expected_F).abs().max()))
    assert max(errors[20:]) < 2 * max(errors[:5])


def test_the_last_one_is_the_mean_itself_without_momentum_or_rounding():
    values, outers = make(4, encoding="uint8", gamma=0.9, is_overlapped=True)
    mean_F = torch.stack(values).double().mean(dim=0)
    agree(outers, TREES["a chain"], is_last=True)
    assert all(torch.equal(value_F, values[0]) for value_F in values)
    numpy.testing.assert_allclose(values[0].numpy(), mean_F.numpy(), rtol=0, atol=1e-6)


def test_one_that_missed_a_round_is_equal_to_the_others_after_the_next():
    values, outers = make(4, gamma=0.9, is_overlapped=True)
    agree(outers, TREES["a star"])
    before = values[3].clone()
    outers[3].propose()
    agree(outers[:3], [0, 0, 0])
    outers[3].close()
    assert torch.equal(values[3], before)
    agree(outers, TREES["a star"])
    assert all(torch.equal(value_F, values[0]) for value_F in values)


def test_steps_that_go_on_meanwhile_are_kept():
    values, outers = make(2, is_overlapped=True)
    mean_F = torch.stack(values).mean(dim=0)
    for outer in outers:
        outer.propose()
    values[0] += 1
    payload = mean_F.numpy()
    for outer in outers:
        outer.take(lambda index: torch.from_numpy(payload[index * PIECE : (index + 1) * PIECE]))
    torch.testing.assert_close(values[0], mean_F + 1)
    torch.testing.assert_close(values[1], mean_F)
    torch.testing.assert_close(outers[0].anchor_F, mean_F)


def test_other_bytes_than_offered_are_not_added():
    _, outers = make(2)
    for outer in outers:
        outer.propose()
    gathering = Gathering(outers[0])
    arrival = Arrival(NUMBERS, "float32", 4 * NUMBERS, bytes(32))
    arrival.held = arrival.size
    with pytest.raises(PeerError, match="other parameters"):
        gathering.add(arrival, 1)
    assert gathering.hosts == 1
