import pytest
from origins import A, B, C, D, E, make_rules

from seedflood.protocol.frontier import Frontier
from seedflood.protocol.origin import STEP_MAX
from seedflood.protocol.seedflood.rounds import first_round
from seedflood.protocol.swarm.access import stand_in
from seedflood.protocol.swarm.membership import Membership

OTHERS = (B, C, D, E)


def first_of(lasts, held_of_ours=(), **rules):
    """Where A begins that is new here, and has heard of the others up to these steps."""
    others = list(zip(OTHERS, lasts, strict=False))
    membership = Membership([A.member(first_step=STEP_MAX), *(other.member() for other, _ in others)])
    frontier = Frontier([*held_of_ours, *(other.held(last + 1) for other, last in others)])
    return first_round(A.id, make_rules(refresh_period=4, **rules), membership, frontier)


@pytest.mark.parametrize("lasts", [(99,), (11, 0, 0), (98, 3, 3), (40, 40, 0)])
def test_a_strict_run_has_not_begun_before_all_clients_take_part_whoever_says_so(lasts):
    assert first_of(lasts, clients=4) == 0


def test_who_has_spoken_before_a_strict_run_began_goes_on_behind_it():
    assert first_of((40, 0, 0), [A.held(1)], clients=4, delay=1) == 1


def test_who_comes_to_a_strict_run_in_which_all_clients_take_part_begins_where_they_are():
    assert first_of((7, 6, 6, 6), clients=4) == 6
    assert first_of((8, 7, 7, 7), clients=4) == 8


def test_nobody_is_far_ahead_of_a_strict_run_in_which_most_have_closed_no_window():
    assert first_of((11, 0, 0, 0), clients=4) == 0
    assert first_of((11, 1, 1, 1), clients=4, delay=1) == 0


def test_nobody_is_sent_ahead_by_a_host_that_was_cut_off_and_counts_as_held_to_the_end():
    membership = Membership([A.member(first_step=STEP_MAX), *(one.member() for one in (B, C, D))])
    membership.silence({D.id: stand_in(D.public_key, D.name)}, lambda _: False)
    frontier = Frontier([B.held(7), C.held(7), D.held(100)])
    assert first_round(A.id, make_rules(clients=3, refresh_period=4), membership, frontier) == 6


def test_where_windows_close_without_all_clients_one_who_comes_begins_where_the_others_are():
    assert first_of((7, 6, 6), clients=24, window="bounded") == 6
