"""Closing rounds: as many as bring any distance to the mean to a thousandth, or as are allowed."""

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seedflood.cluster.topology import make_topology
from seedflood.protocol.gasloc.closing import closing_rounds, distance_left
from seedflood.protocol.gasloc.matching import weight
from seedflood.protocol.gasloc.rules import CLOSING_ROUNDS_MAX


def distance(edges, hosts, rounds):
    """Of the worst replicas, after so many rounds, as a share of that before."""
    mixing = numpy.eye(hosts)
    degrees = [sum(host in edge for edge in edges) for host in range(hosts)]
    for a, b in edges:
        share = weight(max(degrees[a], degrees[b]))
        mixing[[a, b], [a, b]] -= share
        mixing[[a, b], [b, a]] += share
    return numpy.linalg.norm(numpy.linalg.matrix_power(mixing, rounds) - 1 / hosts, 2)


@given(
    shape=st.sampled_from(["complete", "ring", "path", "star", "grid", "random-regular", "tree"]),
    hosts=st.integers(4, 20),
)
def test_the_rounds_are_enough_and_hardly_more(shape, hosts):
    edges = make_topology(shape, hosts, seed=1)
    rounds = closing_rounds(edges, range(hosts))
    if rounds < CLOSING_ROUNDS_MAX:
        assert distance(edges, hosts, rounds) < 1.05e-3
    assert rounds <= 2 or distance(edges, hosts, rounds - 2) > 0.95e-3


@pytest.mark.parametrize(("shape", "hosts", "rounds"), [("complete", 9, 1), ("ring", 8, 32), ("grid", 9, 27)])
def test_some_graphs_take_few(shape, hosts, rounds):
    assert closing_rounds(make_topology(shape, hosts), range(hosts)) == rounds


def test_a_host_alone_has_nobody_to_mix_with():
    assert closing_rounds([], [7]) == 0


def test_hosts_that_cannot_be_reached_do_not_count():
    assert closing_rounds([(1, 2), (3, 4)], {1, 2}) == 1


def test_closing_rounds_leave_a_thousandth_of_the_distance_step_by_step():
    left = [distance_left(done, 3) for done in range(4)]
    assert left == pytest.approx([1.0, 0.1, 0.01, 0.001])
    assert distance_left(0, 0) == 1.0
