"""Clocks of clients on links of a stated kind, against sums that can be done by hand."""

import pytest

from study.cell import Cell, Result
from study.links import Links, clock, seconds_to

SENT = 1e6
EQUAL = Links("equal", 1e6, 0.1)
UNEQUAL = Links("unequal", 1e6, 0.1, slow_factor=8)


def result_of(method, *, clients=8, rounds=1, hops_each=1, topology="ring", edge_bytes=SENT):
    cell = Cell("tiny", "sst2", "f" * 16, method, topology, clients, None, 10, 5, 8, 1, 1)
    course = (
        {"loss": 1.0, "measure_seconds": 0, "exchange_seconds": 0, "hops": 0, "edge_bytes": 0},
        {
            "loss": 0.5,
            "measure_seconds": 2.0 * rounds,
            "exchange_seconds": 1.0 * rounds,
            "hops": hops_each * rounds,
            "edge_bytes": edge_bytes * rounds,
        },
    )
    return Result(cell, "abc", 1.0, course, None)


def test_a_flood_takes_its_hops_and_the_bytes_of_the_slowest_link():
    flood = result_of("seedflood", rounds=2, hops_each=4)
    assert list(clock(flood, EQUAL)) == [0, pytest.approx(2 * (3 + 4 * 0.1 + 8))]
    assert list(clock(flood, UNEQUAL)) == [0, pytest.approx(2 * (3 + 4 * 0.1 + 64))]


def test_neighbours_wait_for_each_other_alone():
    gossip = result_of("dsgd", rounds=2)
    assert list(clock(gossip, EQUAL)) == [0, pytest.approx(2 * (3 + 0.1 + 8))]
    assert list(clock(gossip, UNEQUAL)) == [0, pytest.approx(2 * (3 + 0.1 + 64))]


def test_a_pair_sends_all_its_bytes_over_one_edge():
    """Of two clients with one edge, which is matched in every round."""
    pair = result_of("gasloc", clients=2, rounds=3)
    assert list(clock(pair, EQUAL)) == [0, pytest.approx(3 * (3 + 0.1 + 8))]


def test_clients_of_fast_pairs_do_not_wait_for_slow_ones():
    pairs, everyone = (result_of(method, clients=16, rounds=8) for method in ("gasloc", "diloco"))
    loss = {"pairs": seconds_to(pairs, 0.5, UNEQUAL), "everyone": seconds_to(everyone, 0.5, UNEQUAL)}
    assert loss["everyone"] == pytest.approx(8 * (3 + 0.1 + 64))
    assert (
        8 * 3 < loss["pairs"] < seconds_to(result_of("dsgd", clients=16, rounds=8, edge_bytes=2 * SENT), 0.5, UNEQUAL)
    )


def test_a_loss_that_is_not_reached_has_no_time():
    assert seconds_to(result_of("dsgd"), 1.0, EQUAL) == 0
    assert seconds_to(result_of("dsgd"), 0.4, EQUAL) is None


def test_yardsticks_send_nothing():
    assert list(clock(result_of("adamw", rounds=2, hops_each=0, edge_bytes=0.0), EQUAL)) == [0, 6.0]
