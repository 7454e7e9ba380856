from collections import Counter
from itertools import pairwise
from math import sqrt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seedflood.protocol.gasloc.matching import Lottery, edge_of, match, weight

ORIGINS = st.integers(0, 2**64 - 1)


@st.composite
def graphs(draw):
    nodes = draw(st.lists(ORIGINS, min_size=2, max_size=12, unique=True))
    pairs = [edge_of(a, b) for k, a in enumerate(nodes) for b in nodes[:k]]
    return dict.fromkeys(draw(st.lists(st.sampled_from(pairs), unique=True)), 0)


def ring(size):
    return {edge_of(k, (k + 1) % size): 0 for k in range(size)}


def torus(side):
    return {
        edge_of(side * row + column, other): 0
        for row in range(side)
        for column in range(side)
        for other in (side * ((row + 1) % side) + column, side * row + (column + 1) % side)
    }


def complete(size):
    return {(a, b): 0 for b in range(size) for a in range(b)}


def scattered(graph):
    """With origins as they are: numbers that say nothing about the place."""
    name = {node: (node + 1) * 0x9E3779B97F4A7C15 % 2**64 for edge in graph for node in edge}
    return {edge_of(name[a], name[b]): slow for (a, b), slow in graph.items()}


def edges_of(matched):
    return {edge_of(one, other) for one, others in matched.items() for other in others}


def is_unlikely(counts, expected):
    """Pearson's chi-squared test at one in ten thousand (Wilson and Hilferty's approximation)."""
    chi = sum((count - expected) ** 2 / expected for count in counts)
    freedom = len(counts) - 1
    return ((chi / freedom) ** (1 / 3) - (1 - 2 / (9 * freedom))) / sqrt(2 / (9 * freedom)) > 3.72


@given(graph=graphs(), seed=st.integers(), round_=st.integers(0, 2**40), slots=st.sampled_from([1, 2, None]))
def test_a_matching_is_symmetric_valid_and_leaves_no_pair_that_could_be_one(graph, seed, round_, slots):
    matched = match(graph, Lottery(seed), round_, slots)
    assert all(one in matched[other] for one, others in matched.items() for other in others)
    assert edges_of(matched) <= set(graph)
    places = {node: (slots or len(graph)) - len(matched.get(node, ())) for edge in graph for node in edge}
    assert all(place >= 0 for place in places.values())
    assert all(edge in edges_of(matched) or not places[edge[0]] or not places[edge[1]] for edge in graph)


@given(graph=graphs(), seed=st.integers(), round_=st.integers(0, 2**40), data=st.data())
def test_whoever_knows_the_same_graph_finds_the_same_pairs(graph, seed, round_, data):
    shuffled = dict(data.draw(st.permutations(sorted(graph.items()))))
    assert match(graph, Lottery(seed), round_, 1) == match(shuffled, Lottery(seed), round_, 1)


def test_other_rounds_and_other_seeds_give_other_pairs():
    graph = scattered(ring(10))
    of_rounds = {frozenset(edges_of(match(graph, Lottery(7), round_, 1))) for round_ in range(40)}
    of_seeds = {frozenset(edges_of(match(graph, Lottery(seed), 0, 1))) for seed in range(40)}
    assert len(of_rounds) > 10
    assert len(of_seeds) > 10


@pytest.mark.parametrize(
    ("graph", "slots"),
    [(ring(9), 1), (torus(4), 1), (torus(4), 2), (complete(7), 1), (complete(7), 2)],
    ids=["ring", "torus", "torus, two partners", "complete", "complete, two partners"],
)
def test_no_edge_of_an_even_graph_is_preferred(graph, slots):
    graph, lottery, rounds = scattered(graph), Lottery(11), 3000
    counts = Counter(edge for round_ in range(rounds) for edge in edges_of(match(graph, lottery, round_, slots)))
    expected = sum(counts.values()) / len(graph)
    assert not is_unlikely([counts[edge] for edge in graph], expected)


def test_what_is_drawn_in_a_round_says_nothing_about_the_next():
    graph, lottery, rounds = scattered(ring(8)), Lottery(3), 4000
    (one, *_) = graph
    taken = [one in edges_of(match(graph, lottery, round_, 1)) for round_ in range(rounds)]
    share = sum(taken) / rounds
    pairs = Counter(pairwise(taken))
    for (first, second), count in pairs.items():
        likely = (share if first else 1 - share) * (share if second else 1 - share)
        assert abs(count / rounds - likely) < 4 * sqrt(likely * (1 - likely) / rounds)


def test_the_test_of_fairness_can_fail():
    assert is_unlikely([1150, 1000, 1000, 850], 1000)
    assert not is_unlikely([1030, 1000, 990, 980], 1000)


@pytest.mark.parametrize("slow", [1, 2, 3])
def test_a_slow_edge_takes_part_as_rarely_as_its_class_says(slow):
    graph, lottery = {(1, 2): slow}, Lottery(5)
    rounds = 4000
    taken = sum(bool(match(graph, lottery, round_, None)) for round_ in range(rounds))
    share = 2**-slow
    assert abs(taken / rounds - share) < 4 * sqrt(share * (1 - share) / rounds)


def test_a_full_neighbourhood_is_everyone():
    graph = complete(5)
    assert match(graph, Lottery(0), 3, None) == {k: tuple(o for o in range(5) if o != k) for k in range(5)}


def test_weights_of_a_complete_neighbourhood_make_the_mean():
    assert weight(4) == 1 / 5


def test_a_complete_graph_is_matched():
    assert len(match(scattered(complete(40)), Lottery(1), 0, 1)) == 40


@given(seed=st.integers(0, 1 << 32), least=st.integers(0, 1 << 60))
def test_no_host_comes_first_more_often_than_others_whatever_its_origin_is(seed, least):
    lottery, origins = Lottery(seed), [least, *(least + (k << 59) for k in range(1, 8))]
    firsts = [min(origins, key=lambda one: lottery.number(round_, one)) for round_ in range(400)]
    assert all(10 <= firsts.count(origin) <= 110 for origin in origins)
