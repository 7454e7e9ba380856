"""A refusal tells the dialler what to change, and nothing that a stranger sends breaks the dialler."""

import json

import grpc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from seedflood.errors import PeerError, RunMismatchError
from seedflood.transport import refusal

RELAXED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # two shared cores

RUN = json.dumps({"name": "a", "rank": 32})


def test_what_the_server_says_is_what_the_dialler_understands() -> None:
    code, details = refusal.status(PeerError("another run", reason="run"), run=RUN, origin=2**64 - 1)
    assert code is grpc.StatusCode.FAILED_PRECONDITION
    facts = refusal.parse(details)
    assert refusal.origin_in(facts) == 2**64 - 1
    error = refusal.as_error(facts, "host:1", json.dumps({"name": "b", "rank": 32, "seed": 1}))
    assert isinstance(error, RunMismatchError)
    assert error.differences == ("name", "seed")


def test_details_stay_small() -> None:
    _, details = refusal.status(PeerError("x" * 10**6, reason="run"), run=json.dumps({"a": "y" * 10**6}), origin=1)
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
        assert isinstance(refusal.as_error(facts, "host:1", RUN), PeerError | RunMismatchError)


@pytest.mark.parametrize("details", [None, "", "Stream removed", "{" * 4000, '{"a":' * 800, "{}", '{"reason": 1}'])
def test_what_is_no_refusal_of_ours_is_ignored(details: str | None) -> None:
    assert refusal.parse(details) is None


def test_names_of_settings_are_not_taken_unseen() -> None:
    theirs = {"name": "a", "rank": 32, "\x1b[31m": 1, "A B": 2, "ok": 3} | {f"k{k}": k for k in range(100)}
    names = refusal.differences(RUN, theirs)
    assert len(names) == refusal.DIFFERENCES_MAX
    assert all(name.isidentifier() for name in names)
