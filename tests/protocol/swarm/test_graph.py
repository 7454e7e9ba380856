"""The diameter against networkx: exact where graphs are small or wide, never too small where they are not."""

import networkx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seedflood.protocol.swarm import graph
from seedflood.protocol.swarm.graph import WORK_MAX, cut_vertices, diameter


def links_of(whole):
    return [set(whole[node]) for node in sorted(whole)]


@settings(deadline=None)
@given(st.integers(1, 30), st.integers(0, 40), st.randoms(use_true_random=False))
def test_small_graphs_are_measured_exactly(nodes, edges, rng):
    whole = networkx.gnm_random_graph(nodes, edges, seed=rng.randrange(1000))
    links = links_of(whole)
    assert diameter(links) == (networkx.diameter(whole) if networkx.is_connected(whole) else None)


@pytest.mark.parametrize(
    ("whole", "bound"),
    [
        (networkx.cycle_graph(1024), 1024),
        (networkx.path_graph(1024), 1024),
        (networkx.convert_node_labels_to_integers(networkx.grid_2d_graph(32, 32)), 64),
    ],
)
def test_the_diameter_of_a_large_stretched_graph_is_estimated_and_never_too_small(whole, bound):
    assert networkx.diameter(whole) <= diameter(links_of(whole)) <= bound


@settings(deadline=None, max_examples=20)
@given(st.integers(3, 40), st.integers(0, 20), st.randoms(use_true_random=False))
def test_an_estimate_is_never_too_small_nor_more_than_twice_too_large(nodes, more, rng):
    whole = networkx.cycle_graph(nodes)
    whole.add_edges_from((rng.randrange(nodes), rng.randrange(nodes)) for _ in range(more))
    whole.remove_edges_from(networkx.selfloop_edges(whole))
    exact = networkx.diameter(whole)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(graph, "WORK_MAX", 0)
        assert exact <= diameter(links_of(whole)) <= 2 * exact


def test_a_ring_of_a_thousand_costs_no_exact_measurement(monkeypatch):
    monkeypatch.setattr(graph, "_measure", lambda *_: pytest.fail("512 hops times 1,024 nodes were measured"))
    assert WORK_MAX < 1024 * 512
    diameter(links_of(networkx.cycle_graph(1024)))


@settings(deadline=None)
@given(st.integers(1, 30), st.integers(0, 40), st.randoms(use_true_random=False))
def test_cut_vertices_are_those_of_networkx(nodes, edges, rng):
    whole = networkx.gnm_random_graph(nodes, edges, seed=rng.randrange(1000))
    assert cut_vertices(links_of(whole)) == set(networkx.articulation_points(whole))


def test_a_path_of_a_thousand_needs_no_deep_stack():
    assert cut_vertices(links_of(networkx.path_graph(2000))) == set(range(1, 1999))
