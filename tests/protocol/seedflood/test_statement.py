"""What an origin states beside its membership: any bytes are read, or refused, and nothing else comes of them."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nodes import hear, linked
from origins import B, C

from seedflood.errors import PeerError
from seedflood.protocol.origin import STEP_MAX
from seedflood.protocol.seedflood.statement import REMAINS_MAX, Remains, Rows, Stated, pack, unpack
from seedflood.protocol.swarm.messages import ALGORITHM_BYTES_MAX, Members

rows = st.integers(1, 2**32 - 1).flatmap(
    lambda shares: st.builds(Rows, st.integers(0, shares - 1), st.just(shares), st.binary(min_size=32, max_size=32))
)
remains = st.builds(Remains, st.integers(0, 2**64 - 1), st.binary(min_size=32, max_size=32))
statements = st.builds(
    Stated,
    st.integers(0, STEP_MAX + 1),
    st.none() | rows,
    st.lists(remains, max_size=REMAINS_MAX).map(tuple),
    st.booleans(),
    st.booleans(),
)
LONGEST = pack(Stated(7, Rows(0, 1, bytes(32)), REMAINS_MAX * (Remains(1, bytes(32)),)))


@given(statements)
def test_what_is_stated_is_read_again(said):
    assert unpack(pack(said)) == said
    assert len(pack(said)) <= len(LONGEST) <= ALGORITHM_BYTES_MAX


def test_who_has_nothing_to_say_says_nothing():
    assert (pack(Stated()), unpack(b"")) == (b"", Stated())


@given(st.binary(max_size=150) | st.binary(max_size=100).map(LONGEST.__add__))
def test_any_bytes_are_read_or_refused(state):
    with contextlib.suppress(PeerError):
        said = unpack(state)
        assert unpack(pack(said)) == said


@pytest.mark.parametrize("size", range(1, len(LONGEST)))
def test_a_statement_that_is_cut_off_is_refused(size):
    with pytest.raises(PeerError, match="statement"):
        unpack(LONGEST[:size])


@pytest.mark.parametrize(
    "said",
    [
        Stated(STEP_MAX + 2),
        Stated(STEP_MAX + 2, has_ended=True),
        Stated(0, Rows(3, 3, bytes(32))),
        Stated(0, None, (REMAINS_MAX + 1) * (Remains(1, bytes(32)),)),
    ],
)
def test_steps_and_digests_that_do_not_exist_are_refused(said):
    with pytest.raises(PeerError, match="not exist"):
        unpack(pack(said))


def test_of_a_message_with_such_a_statement_nothing_is_used():
    node = linked(B)
    with pytest.raises(PeerError, match="statement"):
        hear(node, B, Members((C.member(), C.member(version=1, algorithm=LONGEST[:-1]))))
    assert C.id not in node.membership
    hear(node, B, Members((C.member(version=1, algorithm=LONGEST),)))
    assert C.id in node.membership
