"""A refusal tells the dialler what to change, and nothing that a stranger sends breaks the dialler."""

import json

import grpc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from seedflood.errors import PeerError, RunMismatchError
from seedflood.protocol.swarm.messages import Hello, Member
from seedflood.transport import refusal

RELAXED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # two shared cores

OURS = Hello(bytes(range(32)), bytes(32), Member(bytes(32), "a", 1))
OTHER = bytes(32)


def test_what_the_server_says_is_what_the_dialler_understands() -> None:
    code, details = refusal.status(PeerError("another run", reason="run"), OURS.member.origin, OURS.run_id)
    assert code is grpc.StatusCode.FAILED_PRECONDITION
    facts = refusal.parse(details)
    assert refusal.origin_in(facts) == OURS.member.origin
    error = refusal.as_error(facts, "host:1", OTHER)
    assert isinstance(error, RunMismatchError)
    assert "host:1 belongs to another run" in str(error)
    assert "0001020304050607" in str(error)
    assert "0000000000000000" in str(error)
    assert "config check" in str(error)


def test_both_sides_are_told_alike_who_speaks_which_version() -> None:
    newer = Hello(OURS.run_id, bytes(32), Member(bytes([1]) * 32, "b", 1), protocol_version=OURS.protocol_version + 1)
    said = f"b speaks protocol version {newer.protocol_version}, a {OURS.protocol_version}; run the same release"
    with pytest.raises(PeerError, match=said) as refused:
        refusal.check_hello(newer, OURS)
    _, details = refusal.status(refused.value, OURS.member.origin, OURS.run_id)
    error = refusal.as_error(refusal.parse(details), "host:1", newer.run_id)
    assert isinstance(error, RunMismatchError)
    assert f"host:1 cannot take part: {said}" in str(error)


def test_a_stranger_learns_no_more_of_the_run_than_half_of_its_fingerprint() -> None:
    _, details = refusal.status(PeerError("another run", reason="run"), OURS.member.origin, OURS.run_id)
    assert refusal.parse(details).keys() == {"reason", "message", "origin", "run"}
    assert OURS.run_id[:8].hex() in details
    assert OURS.run_id.hex() not in details


def test_details_stay_small() -> None:
    _, details = refusal.status(PeerError("x" * 10**6, reason="run"), OURS.member.origin, OURS.run_id)
    assert len(details) <= refusal.DETAILS_BYTES_MAX


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=4),
    max_leaves=8,
)


@settings(RELAXED)
@given(
    st.text(max_size=50)
    | json_values.map(json.dumps)
    | st.fixed_dictionaries(
        {"reason": st.sampled_from(["run", "base", "version", "x"])},
        optional={"message": json_values, "origin": json_values, "run": json_values},
    ).map(json.dumps)
)
def test_any_details_are_understood_or_ignored(details: str) -> None:
    facts = refusal.parse(details)
    if facts is not None:
        refusal.origin_in(facts)
        assert isinstance(refusal.as_error(facts, "host:1", OTHER), PeerError | RunMismatchError)


@settings(RELAXED)
@given(st.sampled_from(["base", "version", "busy", "x\x1b[2J"]), st.text(max_size=400))
def test_of_what_a_peer_says_nothing_unprintable_or_long_is_shown(reason: str, text: str) -> None:
    facts = refusal.parse(json.dumps({"reason": reason, "message": "\x1b[31m" + text + "\n2026 error: forged"}))
    if facts is not None:
        error = refusal.as_error(facts, "host:1", OTHER)
        assert f"{error}{getattr(error, 'reason', '')}".isprintable()


@pytest.mark.parametrize("details", [None, "", "Stream removed", "{" * 4000, '{"a":' * 800, "{}", '{"reason": 1}'])
def test_what_is_no_refusal_of_ours_is_ignored(details: str | None) -> None:
    assert refusal.parse(details) is None


@pytest.mark.parametrize("theirs", ["\x1b[31m", "0" * 17, "0" * 64, {"name": "a"}, 7, None])
def test_what_is_no_fingerprint_of_a_run_is_not_shown(theirs: object) -> None:
    error = refusal.as_error({"reason": "run", "run": theirs}, "host:1", OTHER)
    assert "belongs to another run, this host" in str(error)


def test_what_the_other_side_says_steers_no_terminal() -> None:
    facts = {"reason": "a\x1b", "message": "go\n\x1b[2Jaway"}
    error = refusal.as_error(facts, "host:1", OTHER)
    assert str(error).isprintable()
    assert error.reason == "a?"
