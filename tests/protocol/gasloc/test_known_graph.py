from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seedflood.errors import PeerError
from seedflood.protocol.gasloc.matching import SLOW_CLASS_MAX
from seedflood.protocol.gasloc.statement import (
    SLOW_LINKS_MAX,
    Stated,
    is_anyone_taking_part,
    known_graph,
    swarm_round,
    unpack,
)
from seedflood.protocol.origin import STEP_MAX, origin_id
from seedflood.protocol.swarm.membership import Membership
from seedflood.protocol.swarm.messages import ALGORITHM_BYTES_MAX, Member

KEYS = [bytes([k]) * 32 for k in range(9)]
IDS = [origin_id(key) for key in KEYS]


def make_member(k, neighbours=(), *, round_=0, slow=None, **how):
    linked = tuple(sorted(IDS[other] for other in neighbours))
    state = Stated(round_, {IDS[other]: one for other, one in (slow or {}).items()}).packed()
    return Member(KEYS[k], f"h{k}", 1, neighbours=linked, algorithm=state, **how)


def edge(a, b):
    return tuple(sorted((IDS[a], IDS[b])))


@given(round_=st.integers(0, STEP_MAX), slow=st.dictionaries(st.integers(0, 2**64 - 1), st.integers(1, SLOW_CLASS_MAX)))
def test_what_is_stated_is_read(round_, slow):
    packed = Stated(round_, slow).packed()
    read = unpack(packed)
    assert len(packed) <= ALGORITHM_BYTES_MAX
    assert read.round == round_
    assert read.slow == (slow if len(slow) <= SLOW_LINKS_MAX else read.slow)


def test_of_too_many_slow_links_the_slowest_are_stated():
    slow = {origin: 1 + origin % 3 for origin in range(3 * SLOW_LINKS_MAX)}
    packed = Stated(1, slow).packed()
    assert len(packed) <= ALGORITHM_BYTES_MAX
    assert set(unpack(packed).slow.values()) == {3}
    assert len(unpack(packed).slow) == SLOW_LINKS_MAX


@given(state=st.binary(max_size=60))
def test_foreign_statements_are_read_or_refused(state):
    try:
        read = unpack(state)
    except PeerError:
        return
    assert read.round <= STEP_MAX
    assert all(1 <= one <= SLOW_CLASS_MAX for one in read.slow.values())


def test_who_has_stated_nothing_is_at_the_beginning():
    assert unpack(b"") == Stated(0, {})


def test_a_link_is_known_if_both_of_its_ends_state_it():
    members = [make_member(0, [1, 2]), make_member(1, [0, 2]), make_member(2, [1])]
    assert known_graph(Membership(members)) == {edge(0, 1): 0, edge(1, 2): 0}


@pytest.mark.parametrize("how", [{"last_step": 7}, {"first_step": STEP_MAX}])
def test_who_has_left_or_joins_is_matched_with_nobody(how):
    members = [make_member(0, [1, 2]), make_member(1, [0, 2], **how), make_member(2, [0, 1])]
    assert known_graph(Membership(members)) == {edge(0, 2): 0}


def test_who_states_a_link_with_itself_has_none():
    members = Membership([make_member(0, [0, 1]), make_member(1, [0])])
    assert known_graph(members) == {edge(0, 1): 0}


def test_who_stands_still_is_matched_with_nobody():
    members = [make_member(0, [1, 2]), make_member(1, [0]), make_member(2, [0])]
    assert known_graph(Membership(members), {IDS[2]}) == {edge(0, 1): 0}


def test_the_slower_word_about_a_link_counts():
    members = [make_member(0, [1, 2], slow={1: 1}), make_member(1, [0], slow={0: 3}), make_member(2, [0])]
    assert known_graph(Membership(members)) == {edge(0, 1): 3, edge(0, 2): 0}


def test_half_of_the_swarm_says_where_it_is():
    members = [make_member(k, round_=round_) for k, round_ in enumerate([5, 9, 9, 40, 7])]
    assert swarm_round(Membership(members), {}, 100, 0) == 9


def test_a_minority_of_liars_moves_nobody():
    honest = [make_member(k, round_=5) for k in range(5)]
    liars = [make_member(k, round_=10**6) for k in range(5, 9)]
    assert swarm_round(Membership([*honest, *liars]), {}, 100, 0) == 5


def test_a_liar_that_comes_before_the_others_moves_nobody():
    """Of the hosts that have not been heard of yet it knows as little as we do."""
    members = [make_member(0, round_=2), make_member(1, round_=100)]
    assert [swarm_round(Membership(members), {}, 100, clients) for clients in (2, 4, 6)] == [100, 2, 0]


def test_what_neighbours_say_later_counts():
    members = [make_member(0), make_member(1)]
    assert swarm_round(Membership(members), {IDS[1]: 6}, 100, 0) == 6


def test_of_who_starts_again_the_last_word_counts():
    word = make_member(0, round_=30)
    again = replace(make_member(0, first_step=STEP_MAX), incarnation=2)
    assert swarm_round(Membership([word, again]), {}, 100, 0) == 30
    assert swarm_round(Membership([word, again, make_member(1, round_=7)]), {}, 100, 0, but=IDS[0]) == 7


@pytest.mark.parametrize(
    ("links", "how", "is_there"),
    [
        ({0: [1], 1: [0, 2], 2: [1]}, {}, True),
        ({0: [1], 1: [0, 2], 2: []}, {}, False),
        ({0: [], 1: [2], 2: [1]}, {}, False),
        ({0: [1], 1: [0, 2], 2: [1]}, {"last_step": 7}, False),
        ({0: [1], 1: [0, 2], 2: [1]}, {"first_step": STEP_MAX}, False),
    ],
)
def test_who_takes_part_is_looked_for_over_links_that_both_ends_state(links, how, is_there):
    """The third one takes part, the others join."""
    joining = [make_member(k, links[k], first_step=STEP_MAX) for k in (0, 1)]
    membership = Membership([*joining, make_member(2, links[2], **how)])
    assert is_anyone_taking_part(membership, IDS[0]) == is_there


def test_who_finished_counts_and_who_left_before_does_not():
    finished, left = make_member(1, round_=100, last_step=399), make_member(2, round_=80, last_step=319)
    assert swarm_round(Membership([make_member(0, round_=3), finished]), {}, 100, 0) == 100
    assert swarm_round(Membership([make_member(0, round_=3), left]), {}, 100, 0) == 3


def test_nobody_is_beyond_the_end():
    assert swarm_round(Membership([make_member(0, round_=10**6)]), {}, 100, 0) == 100


def test_alone_nobody_is_anywhere():
    assert swarm_round(Membership([]), {}, 100, 0) == 0
