"""What an operator is shown of a node: edges, who can be reached, the window, how far it has caught up."""

from dataclasses import fields, is_dataclass
from typing import get_args

import networkx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from nodes import hear, linked, publish, started, tick
from origins import A, B, C, D, E

from seedflood.protocol.origin import STEP_MAX
from seedflood.protocol.seedflood.admission import Objection
from seedflood.protocol.seedflood.bundles import Updates
from seedflood.protocol.swarm.graph import distances
from seedflood.protocol.swarm.messages import Members
from seedflood.protocol.swarm.view import stated_edges


def statuses(node, now=1.0):
    return {member.name: member.status for member in node.view(now).members}


def test_a_link_is_an_edge_once_both_ends_state_it():
    members = [A.member(neighbours=(B, C)), B.member(neighbours=(A,)), C.member(neighbours=(D,))]
    assert stated_edges(members) == (tuple(sorted((A.id, B.id))),)


@given(st.sets(st.tuples(st.integers(0, 9), st.integers(0, 9))))
def test_who_is_reached_is_the_connected_component_each_over_the_fewest_links(edges):
    graph = networkx.Graph(edges)
    graph.add_node(0)
    assert distances(edges, 0) == networkx.single_source_shortest_path_length(graph, 0)


def test_members_are_told_by_what_is_known_of_them():
    node = linked(B, clients=5)
    others = [
        B.member(version=1, neighbours=(A, C)),
        C.member(neighbours=(B,)),
        D.member(neighbours=(B,)),
        E.member(neighbours=(B,), last_step=3),
    ]
    hear(node, B, Members(tuple(others)))
    assert statuses(node) == {"ada": "self", "bob": "linked", "cyd": "reachable", "dan": "silent", "eve": "left"}


def test_one_that_never_took_part_and_cannot_be_reached_is_unknown():
    node = linked(B, clients=3)
    hear(node, B, Members((C.member(first_step=STEP_MAX),)))
    assert statuses(node)["cyd"] == "unknown"
    assert next(member for member in node.view(0.0).members if member.name == "cyd").first_step is None


def test_a_neighbour_for_whom_a_window_waits_too_long_is_silent():
    node = linked(B)
    publish(node)
    assert statuses(node)["bob"] == "linked"
    tick(node, 40.0)
    assert statuses(node)["bob"] == "silent"


def test_one_that_has_finished_and_stays_is_linked():
    node = linked(B, steps=4)
    hear(node, B, Members((B.member(version=1, neighbours=(A,), last_step=3),)))
    assert statuses(node)["bob"] == "linked"
    node.disconnected(B.id, 1.0)
    assert statuses(node)["bob"] == "left"


def test_an_open_window_tells_who_was_heard():
    node = linked(B, C)
    assert node.view(0.0).window is None
    publish(node, now=1.0)
    hear(node, B, B.updates(0), now=2.0)
    window = node.view(3.0).window
    assert (window.first, window.last, window.opened_at) == (0, 0, 1.0)
    assert (window.received, window.expected, window.waiting) == (2, 3, (C.id,))


@pytest.mark.parametrize(("rule", "has_bound"), [("strict", False), ("bounded", True)])
def test_only_a_bounded_window_has_a_bound(rule, has_bound):
    node = linked(B, C, window=rule)
    publish(node)
    assert node.view(0.0).window.bound_seconds is None, "less than half of the hosts were heard"
    hear(node, B, B.updates(0))
    assert (node.view(0.0).window.bound_seconds is not None) == has_bound


def test_one_that_catches_up_tells_how_much_of_its_donor_it_holds():
    node = started()
    assert node.view(0.0).catching_up is None
    node.connected(B.id, B.hello([B.held(10)]), 0.0)
    node.collect()
    hear(node, B, B.updates(0, 1, 2))
    catching_up = node.view(0.0).catching_up
    assert (catching_up.donor, catching_up.held, catching_up.wanted) == (B.id, 3, 10)


def test_all_reasons_to_refuse_are_there_and_what_was_refused_is_counted():
    node = linked(B)
    assert set(node.view(0.0).refused) == set(get_args(Objection))
    hear(node, B, Updates((C.bundle(0),)))
    assert {reason: count for reason, count in node.view(0.0).refused.items() if count} == {"unknown origin": 1}


def test_a_view_does_not_change_when_the_node_does():
    node = linked(B)
    before = node.view(0.0)
    publish(node)
    hear(node, B, Updates((C.bundle(0),)))
    assert (before.phase, before.window, before.refused["unknown origin"]) == ("measuring", None, 0)
    assert node.view(0.0) != before


def is_value(one):
    """Is it made of plain values alone?"""
    if is_dataclass(one):
        assert type(one).__dataclass_params__.frozen
        return type(one).__module__ == "seedflood.protocol.view" and all(
            is_value(getattr(one, field.name)) for field in fields(one)
        )
    if isinstance(one, dict):
        return all(map(is_value, [*one.keys(), *one.values()]))
    return all(map(is_value, one)) if isinstance(one, tuple) else one is None or type(one) in (int, float, str, bool)


def test_a_view_is_made_of_values():
    node = started(clients=3)
    node.connected(B.id, B.hello([B.held(10)]), 0.0)
    node.collect()
    assert is_value(node.view(0.0))
    node = linked(B, C)
    publish(node)
    assert is_value(node.view(0.0))
    assert not is_value(node)
