import numpy
import pytest
import torch
from dense_gossip import arrived, dense_rounds, exchange, mix, random_WF, tensors, weights_of

from seedflood.protocol.gasloc.matching import weight
from seedflood.training.gasloc import encodings
from seedflood.training.gasloc.exchange import Difference
from seedflood.training.gasloc.outer import PLAIN, Outer, OuterSettings, Term
from study.methods.follower import Follower, average

PIECE = 4 * encodings.BLOCK
NUMBERS = PIECE + 48
"""Two pieces, the second one a small one."""

SEEDS = (1, 2, 3)
GRAPHS = [("ring", 5), ("grid", 6), ("complete", 4), ("path", 2)]


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch):
    monkeypatch.setattr(encodings, "PIECE", PIECE)


def progress_of(seed, workers, numbers=NUMBERS, size=0.1):
    """Local progress that is drawn, whatever the parameters are."""
    return lambda number, theta_WF: size * random_WF(workers, numbers, seed, number, 1)


def run(settings, start_WF, progress, weights, rounds):
    """theta of all workers after every round, as `Outer` makes them."""
    values = tensors(start_WF)
    outers = [Outer(value_F, settings) for value_F in values]
    found = []
    for number in range(rounds):
        theta_WF = torch.stack(values).numpy()
        for value_F, step_F in zip(values, progress(number, theta_WF), strict=True):
            value_F += torch.as_tensor(step_F, dtype=torch.float32)
        exchange(outers, weights)
        found.append(torch.stack(values).numpy())
    return found


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("graph", "workers"), GRAPHS)
@pytest.mark.parametrize(("eta", "gamma"), [(1.0, 0.0), (1.0, 0.9), (0.7, 0.5), (1.3, 0.0)])
def test_an_outer_step_is_that_of_the_dense_reference(graph, workers, seed, eta, gamma):
    weights, start_WF, progress = (
        weights_of(graph, workers),
        random_WF(workers, NUMBERS, seed),
        progress_of(seed, workers),
    )
    ours = run(OuterSettings(eta, gamma), start_WF, progress, weights, 4)
    dense = dense_rounds(start_WF, progress, weights, 4, eta=eta, gamma=gamma)
    for found, expected in zip(ours, dense, strict=True):
        numpy.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("encoding", ["float32", "bfloat16", "uint8"])
@pytest.mark.parametrize("seed", SEEDS)
def test_gossip_keeps_the_mean_whatever_the_pairs_and_the_encoding(seed, encoding):
    workers, rounds = 5, 6
    values = tensors(random_WF(workers, NUMBERS, seed))
    outers = [Outer(value_F, OuterSettings(encoding=encoding)) for value_F in values]
    expected_F = torch.stack(values).double().mean(dim=0)
    rng = numpy.random.default_rng(seed)
    for number in range(rounds):
        for value_F, step_F in zip(values, tensors(0.1 * random_WF(workers, NUMBERS, seed, number)), strict=True):
            value_F += step_F
            expected_F += step_F.double() / workers
        weights = numpy.zeros((workers, workers))
        one, other = rng.choice(workers, 2, replace=False)
        weights[one, other] = weights[other, one] = 0.5  # one pair; three workers find no partner
        exchange(outers, weights)
    mean_F = torch.stack(values).double().mean(dim=0)
    assert (mean_F - expected_F).abs().max() < 1e-6


def test_momentum_does_not_keep_the_mean_where_workers_differ_in_rounds():
    """What the test above would not find if it could not fail."""
    values = tensors(random_WF(2, 16, 1))
    outers = [Outer(value_F, OuterSettings(gamma=0.9)) for value_F in values]
    before = torch.stack(values).mean(dim=0)
    values[0] += 1
    exchange(outers, weights_of("complete", 2))
    assert not torch.allclose(torch.stack(values).mean(dim=0), before + 0.5, atol=1e-3)


def nesterov(start_F, steps, rate, momentum):
    """DiLoCo's outer optimiser: torch's own, fed with the mean pseudo-gradients."""
    parameter = torch.nn.Parameter(torch.tensor(start_F, dtype=torch.float64))
    optimiser = torch.optim.SGD([parameter], lr=rate, momentum=momentum, nesterov=True)
    for step in steps:
        parameter.grad = -torch.as_tensor(step(parameter.detach().numpy()))
        optimiser.step()
        yield parameter.detach().numpy().copy()


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("workers", [2, 4, 7])
def test_on_a_complete_graph_the_mean_follows_nesterovs_step(workers, seed):
    eta, gamma, rounds = 0.7, 0.9, 10
    start_WF = 0.1 * numpy.repeat(random_WF(1, 512, seed), workers, axis=0)  # of the size of weights
    progress = progress_of(seed, workers, 512, 0.01)
    ours = run(OuterSettings(eta, gamma), start_WF, progress, weights_of("complete", workers), rounds)
    means = (lambda _, n=number: progress(n, None).astype(numpy.float64).mean(axis=0) for number in range(rounds))
    for found, expected in zip(ours, nesterov(start_WF[0], means, eta, gamma), strict=True):
        numpy.testing.assert_allclose(found.mean(axis=0), expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("seed", SEEDS)
def test_with_equal_curvature_the_mean_follows_diloco_although_the_workers_differ(seed):
    """Local descent on (x - c_i)^2 / 2: progress is linear in where a worker is, so the mean progress is that of the
    mean. DiLoCo's workers all begin at the mean; ours do not."""
    workers, eta, gamma, rounds, shrink = 4, 0.8, 0.6, 8, 1 - 0.9**5
    centre_WF = random_WF(workers, 256, seed, 9).astype(numpy.float64)
    start_WF = numpy.repeat(random_WF(1, 256, seed), workers, axis=0)

    def progress(_, theta_WF):
        return shrink * (centre_WF - theta_WF)

    ours = run(OuterSettings(eta, gamma), start_WF, progress, weights_of("complete", workers), rounds)
    steps = [lambda theta_F: shrink * (centre_WF.mean(axis=0) - theta_F)] * rounds
    for found, expected in zip(ours, nesterov(start_WF[0], steps, eta, gamma), strict=True):
        numpy.testing.assert_allclose(found.mean(axis=0), expected, rtol=0, atol=1e-6)
    assert numpy.abs(ours[-1] - ours[-1].mean(axis=0)).max() > 1e-3


def test_on_a_complete_graph_a_worker_keeps_momentum_of_its_own():
    """theta_i = mean phi + gamma (phi_i - its phi of the round before)."""
    workers, gamma = 3, 0.5
    values = tensors(random_WF(workers, 64, 5))
    outers = [Outer(value_F, OuterSettings(gamma=gamma)) for value_F in values]
    previous = [value_F.clone() for value_F in values]
    for number in range(3):
        for value_F, step_F in zip(values, tensors(random_WF(workers, 64, number)), strict=True):
            value_F += step_F
        phi = [value_F.clone() for value_F in values]
        exchange(outers, weights_of("complete", workers))
        mean_F = torch.stack(phi).mean(dim=0)
        for value_F, phi_F, previous_F in zip(values, phi, previous, strict=True):
            torch.testing.assert_close(value_F, mean_F + gamma * (phi_F - previous_F), rtol=0, atol=1e-5)
        previous = phi


@pytest.mark.parametrize("eta", [1.0, 0.7])
@pytest.mark.parametrize("seed", SEEDS)
def test_to_follow_the_mean_is_dilocos_outer_step(seed, eta):
    workers, gamma, rounds = 3, 0.9, 6
    values = tensors(0.1 * numpy.repeat(random_WF(1, NUMBERS, seed), workers, axis=0))
    outers = [Follower(value_F, OuterSettings(eta, gamma)) for value_F in values]
    progress = progress_of(seed, workers, size=0.01)
    means = (lambda _, n=number: progress(n, None).astype(numpy.float64).mean(axis=0) for number in range(rounds))
    expected = nesterov(values[0].numpy().copy(), means, eta, gamma)
    for number in range(rounds):
        for value_F, step_F in zip(values, tensors(progress(number, None)), strict=True):
            value_F += step_F
        average(outers)
        step = next(expected)
        for value_F in values:
            numpy.testing.assert_allclose(value_F.numpy(), step, rtol=0, atol=1e-6)
    torch.testing.assert_close(values[0], values[1], rtol=0, atol=1e-6)


@pytest.mark.parametrize(("eta", "gamma"), [(1.0, 0.0), (0.7, 0.9)])
def test_a_correction_that_comes_late_is_added_to_the_progress_made_meanwhile(eta, gamma):
    """Progress that does not depend on the parameters ends in the same place, overlapped or not."""
    start_WF, weights = random_WF(3, 64, 4), weights_of("ring", 3)
    prompt, late = tensors(start_WF), tensors(start_WF)
    prompts = [Outer(value_F, OuterSettings(eta, gamma)) for value_F in prompt]
    lates = [Outer(value_F, OuterSettings(eta, gamma)) for value_F in late]
    ahead = [torch.zeros(64) for _ in late]
    for number in range(4):
        steps = tensors(random_WF(3, 64, number, 1))
        for value_F, step_F in zip(prompt, steps, strict=True):
            value_F += step_F
        for value_F, step_F, ahead_F in zip(late, steps, ahead, strict=True):
            value_F += step_F - ahead_F
        exchange(prompts, weights)
        for outer in lates:
            outer.propose()
        ahead = [0.3 * step_F for step_F in tensors(random_WF(3, 64, number + 1, 1))]
        for value_F, ahead_F in zip(late, ahead, strict=True):
            value_F += ahead_F
        mix(lates, weights)
        for value_F, late_F, ahead_F in zip(prompt, late, ahead, strict=True):
            torch.testing.assert_close(value_F, late_F - ahead_F, rtol=0, atol=1e-5)


def test_a_round_without_partners_is_momentum_alone():
    value_F = torch.arange(16, dtype=torch.float32)
    outer = Outer(value_F, OuterSettings(gamma=0.5))
    value_F += 2
    outer.propose()
    mixed = outer.mix([])
    assert torch.equal(value_F, torch.arange(16) + 3.0)
    assert (mixed.neighbours, mixed.distance, outer.round, outer.offer) == (0, 0.0, 1, None)


def test_a_closing_round_has_no_momentum():
    value_F = torch.arange(16, dtype=torch.float32)
    outer = Outer(value_F, OuterSettings(gamma=0.5, encoding="uint8"))
    value_F += 2
    assert outer.propose("float32").sent(0).tolist() == value_F.tolist()
    outer.mix([], has_momentum=False)
    assert torch.equal(value_F, torch.arange(16) + 2.0)


def test_replaced_parameters_are_exactly_those_of_the_other_host():
    value_F, other_F = tensors(random_WF(2, NUMBERS, 1))
    outer = Outer(value_F, OuterSettings(eta=0.5, gamma=0.5))
    outer.replace(arrived(Outer(other_F, PLAIN).propose()).sent)
    assert torch.equal(value_F, other_F)
    assert torch.equal(outer.anchor_F, other_F)


def test_the_distance_is_relative_to_the_parameters():
    ours_F, theirs_F = torch.full((32,), 2.0), torch.full((32,), 3.0)
    outer, other = Outer(ours_F, PLAIN), Outer(theirs_F, PLAIN)
    outer.propose()
    mixed = outer.mix([Term(0.5, Difference(outer.offer, arrived(other.propose())))])
    assert mixed.distance == pytest.approx(0.5)
    assert torch.equal(ours_F, torch.full((32,), 2.5))


def test_weights_are_symmetric_and_leave_everyone_a_share():
    assert (weight(1), weight(2), weight(3)) == (1 / 2, 1 / 3, 1 / 4)
    for graph, workers in GRAPHS:
        weights = weights_of(graph, workers)
        assert (weights == weights.T).all()
        assert (weights.sum(axis=1) < 1).all()


def test_one_offer_is_open_at_a_time():
    outer = Outer(torch.zeros(16), PLAIN)
    with pytest.raises(AssertionError, match="nothing was offered"):
        outer.mix([])
    outer.propose()
    with pytest.raises(AssertionError, match="an offer is open"):
        outer.propose()
