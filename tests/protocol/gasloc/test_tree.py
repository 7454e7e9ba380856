from hypothesis import given
from hypothesis import strategies as st

from seedflood.protocol.gasloc.matching import edge_of
from seedflood.protocol.gasloc.tree import find_place

GRAPHS = st.sets(st.tuples(st.integers(0, 9), st.integers(0, 9)).filter(lambda one: one[0] != one[1]), min_size=1).map(
    lambda pairs: {edge_of(*pair) for pair in pairs}
)


def test_a_ring_of_four_is_two_branches_from_the_smallest():
    ring = [(1, 2), (2, 3), (3, 4), (1, 4)]
    places = {origin: find_place(ring, origin, min) for origin in (1, 2, 3, 4)}
    assert places[1].parent is None
    assert places[1].children == {2: 1, 4: 0}
    assert (places[2].parent, places[2].children) == (1, {3: 0})
    assert (places[3].parent, places[4].parent) == (2, 1)
    assert {place.height for place in places.values()} == {2}


def test_a_host_without_edges_is_a_tree_by_itself():
    assert find_place([(1, 2)], 7, min) == (7, None, {}, 0, {})


@given(graph=GRAPHS)
def test_all_hosts_find_the_same_tree(graph):
    origins = {origin for edge in graph for origin in edge}
    places = {origin: find_place(sorted(graph), origin, min) for origin in origins}
    for origin, place in places.items():
        assert place.parent is None or origin in places[place.parent].children
        assert place.parent is None or edge_of(origin, place.parent) in graph
        assert all(places[child].parent == origin for child in place.children)
        assert all(hosts == 1 + sum(places[child].hosts.values()) for child, hosts in place.hosts.items())
        assert all(
            levels == max([-1, *places[child].children.values()]) + 1 for child, levels in place.children.items()
        )
    roots = [origin for origin, place in places.items() if place.parent is None]
    for origin in origins:
        path = [origin]
        while places[path[-1]].parent is not None:
            path.append(places[path[-1]].parent)
        assert path[-1] in roots
        assert path[-1] == min(path[-1], origin)
        assert len(path) - 1 <= places[origin].height == places[path[-1]].height
