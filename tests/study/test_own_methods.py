"""The project's own methods in the study: what they send, and that they are what a daemon runs."""

from collections import Counter, deque

import pytest
import torch
from torch.nn.utils import parameters_to_vector

from seedflood.cluster.topology import make_topology
from seedflood.protocol.gasloc.matching import Lottery
from seedflood.training.seedflood.rehearsal import Rehearsal
from study.methods.applying import Applying, dense_seconds, seconds_of
from study.methods.gasloc import DAdam, Diloco, Gasloc, matched
from study.methods.method import Graph
from study.methods.seedflood import Coefficients, TwoSided, flood_share


def flooded(graph, origin):
    """How often a bundle is sent: everyone forwards it once, to all but the neighbour that it came from."""
    waiting, seen, sent = deque([(origin, None)]), {origin}, 0
    while waiting:
        client, source = waiting.popleft()
        for other in graph.neighbours[client]:
            if other != source:
                sent += 1
                if other not in seen:
                    seen.add(other)
                    waiting.append((other, client))
    return sent


@pytest.mark.parametrize("topology", ["ring", "grid", "complete", "tree"])
def test_a_flood_sends_what_a_count_of_its_messages_says(topology):
    graph = Graph(12, tuple(make_topology(topology, 12)))
    assert flooded(graph, 3) / (2 * len(graph.edges)) == flood_share(len(graph.edges), 12)


def test_seedflood_ends_where_a_rehearsal_of_the_same_run_ends(problem):
    given = problem(times_default=1.0, rank=4)
    method = TwoSided(given)
    costs = [method.advance() for _ in range(2)]
    rehearsal = Rehearsal(given.run.model_copy(update={"seedflood": method.run.seedflood}), given.hosts)
    for _ in range(2):
        rehearsal.advance()
    assert method.average().module is not rehearsal.trainers[0].replica.model
    assert method.digests() == {rehearsal.trainers[0].digest()}
    assert costs[0].forwards == 2
    assert costs[0].backwards == 0
    assert 4 * 60 < costs[0].edge_bytes / flood_share(4, 4) < 4 * 200  # a signature of 64 bytes, and some more
    assert method.consensus_error() == 0


def test_updates_that_go_far_enough_in_a_round_make_equal_replicas(problem):
    given, settings = {"clients": 5, "topology": "path"}, {"times_default": 1.0, "rank": 4}
    relayed, rehearsed = TwoSided(problem(**given, **settings, hops=4)), TwoSided(problem(**given, **settings))
    for _ in range(2):
        assert relayed.advance().hops == rehearsed.advance().hops == 4
    assert relayed.digests() == rehearsed.digests()
    assert relayed.consensus_error() < 1e-4, "it is the rounding of a mean"
    tokens_BT = torch.arange(8).view(1, 8)
    mean, one = (method.average().hidden_states(tokens_BT) for method in (relayed, rehearsed))
    assert torch.allclose(mean, one, atol=1e-5)


def test_updates_that_go_one_hop_a_round_are_late_and_then_everywhere(problem):
    method = TwoSided(problem(clients=5, topology="path", times_default=1.0, rank=4, hops=1))
    for step in range(method.run.steps):
        assert method.advance().hops == 1
        is_last = step == method.run.steps - 1
        assert (len(method.digests()) == 1) == is_last
        assert (method.consensus_error() < 1e-3) == is_last


def test_coefficients_of_higher_rank_are_more_bytes(problem):
    small, large = (Coefficients(problem(times_default=1.0, rank=rank)).advance().edge_bytes for rank in (4, 8))
    assert 1.5 < large / small < 4


def test_partners_are_neighbours_and_mutual():
    graph = Graph(9, tuple(make_topology("grid", 9)))
    for round_ in range(20):
        partners = matched(graph, Lottery(1), round_)
        for client, others in enumerate(partners):
            assert len(others) <= 1
            assert all(other in graph.neighbours[client] and partners[other] == (client,) for other in others)


def test_slow_edges_take_part_in_fewer_rounds():
    graph, rounds = Graph(8, tuple(make_topology("ring", 8))), 400
    counted = Counter(
        (client, others[0])
        for round_ in range(rounds)
        for client, others in enumerate(matched(graph, Lottery(1), round_, slow_class=3))
        if others and client < others[0]
    )
    for edge in graph.edges:
        share = counted[edge] / rounds
        assert share < 0.2 if edge in graph.slow_edges else share > 0.3


def test_gasloc_without_momentum_keeps_the_mean_and_sends_half_floats(problem):
    method = Gasloc(problem(rate=1e-3, eta=1.0, gamma=0.0))
    for worker in method.workers:
        worker.take_steps(1)
    before_F = method._stacked().mean(dim=0)
    apart = method.consensus_error()
    edge_bytes, _ = method._end_round()
    assert torch.allclose(method._stacked().mean(dim=0), before_F, atol=1e-5)
    assert 0 < method.consensus_error() < apart
    assert edge_bytes == 2 * len(before_F) * 2 / 4  # two pairs on the four edges of the ring


def test_diloco_ends_a_round_with_nesterovs_step_on_the_mean(problem):
    method = Diloco(problem(rate=1e-3, eta=0.7, gamma=0.9, local_steps=2))
    start_F = previous_F = method._stacked()[0].clone()
    for _ in range(2):
        for worker in method.workers:
            worker.take_steps(2)
        mean_F = start_F + 0.7 * (method._stacked().mean(dim=0) - start_F)
        method._end_round()
        start_F, previous_F = mean_F + 0.9 * (mean_F - previous_F), mean_F
        assert torch.allclose(method._stacked(), start_F.expand(4, -1), atol=1e-5)
        assert method.consensus_error() == 0


def test_coefficients_learn_and_leave_the_weights_as_they_are(problem):
    coefficients = Coefficients(problem(times_default=1.0))
    cost = coefficients.advance()
    assert (cost.forwards, cost.backwards) == (1, 1)
    average = coefficients.average()
    start_F = parameters_to_vector(average.module.parameters())
    tokens_BT = torch.arange(8).view(1, 8)
    before = average.hidden_states(tokens_BT)
    coefficients.advance()
    assert not torch.equal(average.hidden_states(tokens_BT), before)
    assert torch.equal(parameters_to_vector(average.module.parameters()), start_F), "weights wait for a fold"


def test_a_round_of_d_adam_is_the_weighted_mean_with_the_neighbours(problem):
    method = DAdam(problem(rate=1e-3, eta=1.0, gamma=0.0))
    for worker in method.workers:
        worker.take_steps(1)
    before_NF = method._stacked()
    edge_bytes, hops = method._end_round()
    expected_F = (before_NF[0] + before_NF[1] + before_NF[3]) / 3
    assert torch.allclose(method._stacked()[0], expected_F, atol=1e-6)
    assert (edge_bytes, hops) == (4 * before_NF.shape[1], 1)


def test_updates_in_the_subspace_cost_less_than_dense_ones(problem):
    given = problem()
    applying = Applying(given.run, given.node)
    assert applying.parameters == sum(one.numel() for one in given.start().model.parameters())
    assert seconds_of(lambda: applying.apply(1024)) < dense_seconds(applying, 1024)
    before = [one.clone() for one in applying._plain.module.parameters()]
    applying.dense_estimate()
    after = applying._plain.module.parameters()
    assert all(torch.allclose(one, other, atol=1e-5) for one, other in zip(before, after, strict=True))
