from hypothesis import given
from hypothesis import strategies as st
from origins import RUN_ID, A, verify

from seedflood.protocol.origin import STEP_MAX
from seedflood.protocol.swarm.messages import Member
from seedflood.protocol.swarm.presence import OwnStatement


def make_statement(incarnation=1):
    return OwnStatement(Member(A.public_key, A.name, incarnation), RUN_ID, A.sign)


def is_signed(member):
    return verify(member.public_key, member.signed_bytes(RUN_ID), member.signature)


def test_the_first_statement_is_signed_and_says_what_is_to_be_said():
    member = make_statement(incarnation=3).say(None, first_step=7)
    assert is_signed(member)
    assert (member.age, member.first_step) == ((3, 0), 7)


def test_every_statement_is_newer_and_keeps_what_has_not_changed():
    statement = make_statement()
    first = statement.say(None, first_step=7)
    second = statement.say(first, hop_milliseconds=4)
    assert second.age > first.age
    assert (second.first_step, second.hop_milliseconds) == (7, 4)
    assert is_signed(second)
    assert statement.member is second


def test_a_restart_is_newer_than_everything_a_past_life_said():
    past = A.member(incarnation=1, version=99)
    assert make_statement(incarnation=2).say(past).age == (2, 0)


def test_a_host_whose_count_of_starts_was_lost_is_newer_all_the_same():
    past = A.member(incarnation=5, version=9)
    assert make_statement(incarnation=1).say(past).age > past.age


def test_outliving_a_statement_makes_the_next_one_newer_and_keeps_what_we_say():
    statement = make_statement()
    said = statement.say(None, first_step=STEP_MAX)
    statement.outlive(A.member(incarnation=8, version=3, first_step=0, last_step=5))
    member = statement.say(said)
    assert (member.incarnation, member.first_step, member.last_step) == (9, STEP_MAX, None)
    assert is_signed(member)


@given(
    incarnation=st.integers(1, 5),
    heard=st.lists(st.none() | st.tuples(st.integers(1, 9), st.integers(0, 9)), max_size=8),
)
def test_whatever_was_heard_of_us_ours_is_the_last_word(incarnation, heard):
    statement, known = make_statement(incarnation), None
    for age in heard:
        if age is not None and (known is None or age > known.age):
            known = A.member(*age)
            statement.outlive(known)
        member = statement.say(known)
        assert known is None or member.age > known.age
        assert is_signed(member)
        known = member
