import numpy
import pytest
import torch
from dense_gossip import random_WF, tensors, weights_of
from hypothesis import given
from hypothesis import strategies as st

from seedflood.errors import PeerError
from study.methods.largest import Choco, Sparse

NUMBERS = 400


def rounds(workers, weights, count, *, fraction, gamma, progress):
    values = tensors(numpy.repeat(random_WF(1, NUMBERS, 1), len(weights), axis=0))
    chocos = [Choco(value_F, fraction=fraction, gamma=gamma) for value_F in values]
    for number in range(count):
        for value_F, step_F in zip(values, tensors(progress(number)), strict=True):
            value_F += step_F
        told = [Sparse.unpack(choco.propose().pack(), NUMBERS) for choco in chocos]
        for i, choco in enumerate(chocos):
            choco.mix(told[i], [(float(weights[i, j]), told[j]) for j in range(workers) if weights[i, j]])
    return values


def dense(start_WF, weights, count, *, told_max, gamma, progress):
    """The algorithm of the paper, with a public copy per worker and full matrices, in float64."""
    x_WF, public_WF = start_WF.astype(numpy.float64), start_WF.astype(numpy.float64)
    for number in range(count):
        x_WF = x_WF + progress(number)
        apart_WF = x_WF - public_WF
        for row, apart_F in enumerate(apart_WF):
            largest = numpy.argsort(-numpy.abs(apart_F), kind="stable")[:told_max]
            public_WF[row, largest] += apart_F[largest]
        x_WF = x_WF + gamma * (weights @ public_WF - weights.sum(axis=1, keepdims=True) * public_WF)
    return x_WF


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize(("graph", "workers"), [("ring", 5), ("grid", 6), ("complete", 4)])
def test_a_round_is_that_of_the_paper(graph, workers, seed):
    weights = weights_of(graph, workers)

    def progress(number):
        return 0.1 * random_WF(workers, NUMBERS, seed, number, 7)

    ours = rounds(workers, weights, 6, fraction=0.05, gamma=0.4, progress=progress)
    start_WF = numpy.repeat(random_WF(1, NUMBERS, 1), workers, axis=0)
    expected = dense(start_WF, weights, 6, told_max=20, gamma=0.4, progress=progress)
    numpy.testing.assert_allclose(torch.stack(ours).numpy(), expected, rtol=0, atol=1e-5)


def test_workers_agree_in_the_end_although_little_is_told():
    def progress(number):
        return random_WF(5, NUMBERS, 3) if number == 0 else numpy.zeros((5, NUMBERS))

    values = rounds(5, weights_of("ring", 5), 300, fraction=0.1, gamma=0.2, progress=progress)
    expected_F = torch.tensor(random_WF(1, NUMBERS, 1)[0] + random_WF(5, NUMBERS, 3).mean(axis=0))
    for value_F in values:
        torch.testing.assert_close(value_F, expected_F, rtol=0, atol=1e-3)


@given(st.sets(st.integers(0, 999), max_size=50))
def test_a_message_says_what_it_was_made_of(places):
    index_K = torch.tensor(sorted(places), dtype=torch.int64)
    told = Sparse(index_K, torch.arange(len(places), dtype=torch.float32))
    packed = told.pack()
    assert len(packed) == 4 + 8 * len(places)
    found = Sparse.unpack(packed, 1000)
    assert torch.equal(found.index_K, told.index_K)
    assert torch.equal(found.value_K, told.value_K)


def message(places, values):
    return Sparse(torch.tensor(places), torch.tensor(values)).pack()


@pytest.mark.parametrize(
    "packed",
    [
        b"",
        b"\x01\0\0\0",
        b"\xff\xff\xff\xff",
        message([3], [1.0])[:-1],
        message([3], [1.0]) + b"\0",
        message([2, 2], [1.0, 1.0]),
        message([3, 2], [1.0, 1.0]),
        message([10], [1.0]),
        message([-1], [1.0]),
        message([1], [float("nan")]),
        message([1], [float("inf")]),
        message(list(range(11)), [0.0] * 11),
    ],
)
def test_messages_that_nobody_honest_sends_are_refused(packed):
    with pytest.raises(PeerError):
        Sparse.unpack(packed, 10)
