"""A trace tells from files alone what became of an update."""

import pytest

from seedflood.operations.eventlog import Line, encode
from seedflood.operations.names import find_names, resolve_origin
from seedflood.operations.seedflood.spans import bundle_spans, update_spans
from seedflood.operations.seedflood.trace import trace
from seedflood.protocol.origin import fingerprint
from seedflood.protocol.seedflood.bundles import Update, make_bundle

ADA, BOB = fingerprint(1), fingerprint(2)


def line(number, event, **facts):
    return encode(Line(float(number), event, "debug", facts), {"node": "c", "run": "r"}).encode() + b"\n"


def kept(number, *steps, source="b", skipped=0):
    bundles = [make_bundle(1, step, ((0, 0),), skipped=skipped) for step in steps]
    return line(number, "kept", **{"from": source}, updates=bundle_spans(bundles))


def applied(number, steps, *found, late=(), reason="all received"):
    updates, late = (update_spans(Update(1, step, (0, 0)) for step in some) for some in (found, late))
    return line(number, "applied", steps=steps, reason=reason, updates=updates, late=late)


def test_an_update_is_followed_from_its_arrival_to_its_window():
    found = trace([kept(1, 7), line(2, "sent", to="d", updates=[[ADA, 7, 7]]), applied(3, [7, 7], 7)], ADA, 7, "ada")
    said = found.as_json()
    assert (said["node"], said["name"], said["had"]["from"]) == ("c", "ada", "b")
    assert [fact["to"] for fact in said["sent"]] == ["d"]
    assert said["applied"]["time"] == "1970-01-01T00:00:03.000000Z"
    assert said["verdict"].startswith("applied in the window of step 7, which closed at 1970-01-01T00:00:03")


@pytest.mark.parametrize(
    ("lines", "verdict"),
    [
        ([kept(1, 7), applied(2, [9, 9], late=[7])], "applied late, in the window of step 9"),
        ([kept(1, 7), applied(2, None, 7, reason="no waiting")], "outside of any window"),
        ([kept(1, 5, 6, 7, 8)], "held, not applied"),
        ([line(1, "adopted", **{"from": "b"}, epoch=0, updates=[[ADA, 0, 9]])], "part of the sum of epoch 0, from b"),
        ([kept(1, 9, skipped=3)], "never measured step 7"),
        ([kept(1, 6), kept(2, 8)], "not in these files"),
        ([line(1, "kept", **{"from": "b"}, updates=[[BOB, 7, 7]])], "not in these files"),
        ([], "there is no event log"),
    ],
)
def test_the_verdict_says_what_became_of_it_or_why_nothing_did(lines, verdict):
    assert verdict in trace(lines, ADA, 7, "ada").verdict()


def test_the_window_counts_and_not_what_a_restart_applied_again():
    again = applied(5, None, *range(9), reason="no waiting")
    found = trace([kept(1, 7), applied(2, [7, 7], 7), again], ADA, 7)
    assert found.applied["steps"] == [7, 7]
    assert len(found.facts) == 3


def test_a_running_node_says_that_it_never_came():
    found = trace([kept(1, 6)], ADA, 7)
    found.is_held, found.at_step = False, 8
    assert found.verdict() == "never came here; the node is at step 8"


def test_a_running_node_says_that_there_is_no_such_step():
    found = trace([kept(1, 6)], ADA, 7)
    found.is_held, found.at_step, found.run_steps = False, 6, 7
    assert found.verdict() == "there is no such step: the run has steps 0 to 6"


def test_lines_that_a_crash_has_cut_are_passed_over():
    assert trace([kept(1, 7)[:-9], kept(2, 7)], ADA, 7).had_at["time"] == "1970-01-01T00:00:02.000000Z"


def test_names_are_found_in_the_files():
    lines = [line(1, "members", names={ADA: "ada"}), line(2, "member joined", member="bob", origin=BOB), b"{"]
    assert find_names(lines) == {ADA: "ada", BOB: "bob"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ada", ADA),
        (BOB, BOB),
        (BOB.upper(), BOB),
        (BOB[:15], None),
        ("f" * 16, "f" * 16),
        ("twin", None),
        ("nobody", None),
        ('"', None),
    ],
)
def test_an_origin_goes_by_its_name_its_fingerprint_or_a_beginning_that_is_its_own(text, expected):
    names = {ADA: "ada", BOB: "bob", fingerprint(0xA0): "twin", fingerprint(0xB0): "twin"}
    assert resolve_origin(text, names) == expected


def test_the_beginning_of_one_fingerprint_is_enough():
    assert resolve_origin("0", {ADA: "ada"}) == ADA


def test_a_running_node_that_applied_it_does_not_say_why_the_log_lacks_that():
    found = trace([kept(1, 6)], ADA, 7)
    found.is_held = found.is_applied = True
    assert found.verdict() == "applied, but the event log lacks that time"
