import networkx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seedflood.cluster.topology import TOPOLOGIES, make_topology
from seedflood.errors import ConfigError


def graph_of(name, nodes, seed=0):
    graph = networkx.Graph(make_topology(name, nodes, seed=seed))
    graph.add_nodes_from(range(nodes))
    return graph


@given(name=st.sampled_from(TOPOLOGIES), nodes=st.integers(1, 70), seed=st.integers(0, 5))
def test_every_topology_connects_all_vertices_by_single_edges(name, nodes, seed):
    edges = make_topology(name, nodes, seed=seed)
    assert edges == sorted(set(edges))
    assert all(0 <= a < b < nodes for a, b in edges)
    assert networkx.is_connected(graph_of(name, nodes, seed))


@pytest.mark.parametrize(
    ("name", "nodes", "edges", "diameter"),
    [
        ("ring", 16, 16, 8),
        ("ring", 2, 1, 1),
        ("path", 16, 15, 15),
        ("complete", 6, 15, 1),
        ("grid", 16, 24, 6),
        ("grid", 12, 17, 5),
        ("tree", 15, 14, 6),
        ("star", 16, 15, 2),
        ("bridge", 9, 17, 3),
        ("bridge", 2, 1, 1),
        ("random-regular", 64, 128, None),
    ],
)
def test_topologies_have_the_known_shape(name, nodes, edges, diameter):
    graph = graph_of(name, nodes)
    assert graph.number_of_edges() == edges
    assert diameter in (None, networkx.diameter(graph))


@pytest.mark.parametrize("nodes", [5, 6, 7, 64])
def test_in_a_random_regular_graph_everyone_has_four_neighbours(nodes):
    assert {degree for _, degree in graph_of("random-regular", nodes).degree} == {4}


def test_a_seed_fixes_the_random_graph():
    assert make_topology("random-regular", 32, seed=3) == make_topology("random-regular", 32, seed=3)
    assert make_topology("random-regular", 32, seed=3) != make_topology("random-regular", 32, seed=4)


def test_an_unknown_topology_names_the_known_ones():
    with pytest.raises(ConfigError, match='unknown topology "wheel"; choose one of ring, grid'):
        make_topology("wheel", 4)


def test_a_cluster_of_no_nodes_is_refused():
    with pytest.raises(ConfigError, match="--nodes 1"):
        make_topology("ring", 0)
