import networkx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from origins import A, B, C, D, Origin

from seedflood.protocol.origin import STEP_MAX, fingerprint
from seedflood.protocol.swarm.membership import Membership


def test_the_newest_statement_of_an_origin_is_believed():
    membership = Membership([A.member(incarnation=2, version=3)])
    assert not membership.believe(A.member(incarnation=1, version=9))
    assert not membership.believe(A.member(incarnation=2, version=3, last_step=4))
    assert membership.believe(A.member(incarnation=2, version=4, last_step=4))
    assert membership.get(A.id).last_step == 4


@given(ages=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1), seed=st.randoms())
def test_statements_in_any_order_end_in_the_same_belief(ages, seed):
    statements = [A.member(incarnation, version, first_step=incarnation) for incarnation, version in ages]
    seed.shuffle(statements)
    assert Membership(statements).get(A.id).age == max(ages)


@given(
    statements=st.lists(
        st.builds(
            lambda origin, version, first_step: origin.member(version=version, first_step=first_step),
            st.sampled_from([A, B, C]),
            st.integers(0, 5),
            st.sampled_from([0, 7, STEP_MAX]),
        )
    )
)
def test_who_takes_part_is_counted_right(statements):
    membership = Membership(statements)
    assert membership.taking_part == len({member.origin for member in statements if member.has_spoken})


def test_a_statement_that_does_not_speak_of_steps_takes_nothing_back():
    spoken, silent = A.member(first_step=3), A.member(incarnation=2, first_step=STEP_MAX, last_step=-1)
    for statements in ((spoken, silent), (silent, spoken)):
        membership = Membership(statements)
        assert (membership.get(A.id), membership.spoken(A.id)) == (silent, spoken)
        assert set(membership.to_send()) == {spoken, silent}
        assert (membership.taking_part, membership.is_expected(A.id, 5)) == (1, True)


def test_the_last_word_of_an_origin_is_news_though_a_newer_statement_is_known():
    early, late, silent = A.member(version=1), A.member(version=2), A.member(incarnation=2, first_step=STEP_MAX)
    membership = Membership([silent, early])
    assert membership.is_news(late)
    assert Membership([late, silent]).newer_than([silent, early]) == [late]
    before = membership.digest()
    membership.believe(late)
    assert membership.digest() != before
    assert membership.digest() == Membership([late, silent]).digest()
    assert not membership.is_news(early)
    assert membership.describe_news(early, 2) == []


def test_an_origin_is_expected_from_its_first_step_to_its_last():
    membership = Membership([A.member(first_step=3, last_step=5), B.member()])
    assert [membership.is_expected(A.id, step) for step in (2, 3, 5, 6)] == [False, True, True, False]
    assert membership.expected(9) == [B.id]
    assert not membership.is_expected(C.id, 3)


def test_an_origin_that_left_before_its_first_step_is_never_expected():
    membership = Membership([A.member(last_step=-1)])
    assert membership.expected(0) == []


def test_neighbours_are_linked_by_the_word_of_either_side():
    membership = Membership([A.member(neighbours=[B]), B.member(), C.member(neighbours=[A])])
    assert membership.neighbours(A.id) == {B.id, C.id}
    assert membership.neighbours(B.id) == {A.id}


def test_who_has_left_is_nobodys_neighbour():
    membership = Membership([A.member(neighbours=[B]), B.member(neighbours=[A], last_step=3)])
    assert membership.neighbours(A.id) == set()


def test_a_neighbour_that_never_introduced_itself_is_none():
    assert Membership([A.member(neighbours=[B])]).neighbours(A.id) == set()


def test_names_are_for_people_and_fingerprints_for_strangers():
    membership = Membership([A.member()])
    assert membership.name(A.id) == "ada"
    assert membership.name(B.id) == fingerprint(B.id)


def test_two_origins_with_one_name_are_found():
    other = Origin("other")
    other.name = "ada"
    membership = Membership([A.member(), B.member()])
    assert [event.name for event in membership.describe_news(other.member(), 3)] == [
        "member joined",
        "two origins have one name",
    ]
    other.name = "eve"
    membership.believe(A.member(version=1))
    assert [event.name for event in membership.describe_news(other.member(), 3)] == ["member joined"]


def test_membership_knows_whom_it_knows():
    membership = Membership([A.member(), B.member(), B.member(version=1)])
    assert len(membership) == 2
    assert A.id in membership
    assert C.id not in membership
    assert set(membership.origins()) == {A.id, B.id}


ORIGINS = [Origin(f"o{index}") for index in range(9)]


@st.composite
def graphs(draw):
    graph = networkx.Graph()
    graph.add_nodes_from(range(draw(st.integers(2, 9))))
    vertices = st.integers(0, len(graph) - 1)
    graph.add_edges_from((a, b) for a, b in draw(st.lists(st.tuples(vertices, vertices), max_size=20)) if a != b)
    return graph


@given(graph=graphs(), seed=st.randoms(use_true_random=False))
def test_the_diameter_is_that_of_the_graph_and_cautious_while_it_is_not_connected(graph, seed):
    """Of those that have links."""
    said = {vertex: [] for vertex in graph}
    for a, b in graph.edges:  # one side's word is enough
        a, b = seed.sample((a, b), 2)
        said[a].append(ORIGINS[b])
    membership = Membership(ORIGINS[vertex].member(neighbours=said[vertex]) for vertex in graph)
    linked = graph.subgraph(vertex for vertex in graph if graph.degree(vertex))
    expected = 1
    if linked:
        expected = networkx.diameter(linked) if networkx.is_connected(linked) else len(linked) - 1
    assert membership.diameter() == expected


def test_strangers_that_nobody_is_linked_with_stretch_no_graph():
    strangers = [origin.member(neighbours=[Origin("nobody")]) for origin in ORIGINS]
    assert Membership([A.member(neighbours=[B]), B.member(), *strangers]).diameter() == 1


def test_who_alone_links_others_is_found_and_found_anew():
    membership = Membership([A.member(neighbours=[B]), B.member(neighbours=[C]), C.member()])
    assert membership.cut_vertices() == (B.id,)
    membership.believe(C.member(version=2, neighbours=[A]))
    assert membership.cut_vertices() == ()


def test_the_slowest_hop_is_one_that_both_its_ends_have_measured():
    slow = [A.member(neighbours=[B], hop_milliseconds=64), B.member(neighbours=[C], hop_milliseconds=128)]
    assert Membership([*slow, C.member(hop_milliseconds=2)]).hop_seconds() == 0.064
    assert Membership([*slow, C.member(hop_milliseconds=256)]).hop_seconds() == 0.128


def test_the_word_of_one_liar_makes_no_hop_slow():
    membership = Membership([A.member(neighbours=[B]), B.member(neighbours=[C]), C.member(hop_milliseconds=4)])
    membership.believe(A.member(version=1, neighbours=[B, C], hop_milliseconds=(1 << 32) - 1))
    assert membership.hop_seconds() == 0.004
    membership.believe(C.member(version=1, hop_milliseconds=8))
    assert membership.hop_seconds() == 0.008


def test_the_diameter_follows_links_and_leaves():
    membership = Membership([A.member(neighbours=[B]), B.member(neighbours=[C]), C.member(neighbours=[D]), D.member()])
    assert membership.diameter() == 3
    membership.believe(A.member(version=1, neighbours=[B, D]))
    assert membership.diameter() == 2
    membership.believe(D.member(version=1, last_step=8))
    membership.believe(C.member(version=1, last_step=8))
    assert membership.diameter() == 1


@pytest.mark.parametrize("members", [[], [A.member()], [A.member(neighbours=[A])]])
def test_the_diameter_is_never_less_than_one(members):
    assert Membership(members).diameter() == 1
