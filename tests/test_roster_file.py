"""The file of a roster: written and read again, and a sentence for whatever may be wrong with it."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seedflood.errors import ConfigError
from seedflood.identity import Identity
from seedflood.protocol.origin import STEP_MAX
from seedflood.protocol.swarm.roster import SECONDS_MAX, Cut, Entry, Roster
from seedflood.roster_file import (
    FILE_BYTES_MAX,
    SignedRoster,
    parse_roster,
    parse_time,
    read_roster,
    spell_time,
    write_roster,
)

OPERATOR = Identity.generate()
KEYS = [Identity.generate().public_key for _ in range(3)]
ROSTER = Roster(
    7,
    (
        Entry("alpha", KEYS[0]),
        Entry("beta", KEYS[1], ("relay", "read"), not_before=0, not_after=1_800_000_000),
        Entry("gone", KEYS[2], (), cut=Cut(((40, 43), (120, STEP_MAX)), 96, bytes(range(32)))),
    ),
)
SIGNED = SignedRoster.sign(OPERATOR, "näch", ROSTER)


def test_a_roster_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "roster.json"
    write_roster(path, SIGNED)
    assert read_roster(path) == SIGNED
    assert path.read_text() == SIGNED.spelled()
    write_roster(path, SignedRoster.sign(OPERATOR, "", Roster(1)))
    assert read_roster(path).roster.entries == ()


def test_a_person_can_read_it() -> None:
    told = json.loads(SIGNED.spelled())
    assert told["entries"][1] == {
        "name": "beta",
        "public_key": KEYS[1].hex(),
        "roles": ["relay", "read"],
        "not_before": "1970-01-01T00:00:00Z",
        "not_after": "2027-01-15T08:00:00Z",
    }
    assert told["entries"][2]["cut"] == {
        "holes": [[40, 43], [120, None]],
        "since": 96,
        "content": bytes(range(32)).hex(),
    }
    assert len(SIGNED.spelled().splitlines()) == 2 + 6 + len(ROSTER) + 1


@given(st.integers(0, SECONDS_MAX))
def test_times_are_spelled_exactly(seconds: int) -> None:
    assert parse_time(spell_time(seconds)) == seconds


def test_a_date_is_its_first_second_in_utc() -> None:
    assert parse_time("2027-01-15") == parse_time("2027-01-15T01:00:00+01:00") == 1_799_971_200


def changed(**changes: object) -> bytes:
    return json.dumps(json.loads(SIGNED.spelled()) | changes).encode()


def with_entry(**changes: object) -> bytes:
    return changed(entries=[json.loads(SIGNED.spelled())["entries"][0] | changes])


def with_cut(**changes: object) -> bytes:
    gone = json.loads(SIGNED.spelled())["entries"][2]
    return changed(entries=[gone | {"cut": gone["cut"] | changes}])


FAULTS = [
    (with_cut(holes=7), 'the "holes" of a cut must be a list of pairs'),
    (with_cut(holes=[[1]]), 'the "holes" of a cut must be a list of pairs'),
    (with_cut(holes=[["1", None]]), "the steps of a cut must be whole numbers"),
    (with_cut(since=1.5), "the steps of a cut must be whole numbers"),
    (with_cut(holes=[[3, 4]]), "the last one must end with"),
    (with_cut(content="00"), '"content" must be 64 hex digits'),
    (with_cut(by="me"), 'a cut has an unknown key "by"'),
    (with_entry(cut=None), "a cut must be a JSON object"),
    (
        with_entry(cut={"holes": [[3, None]], "since": 0, "content": "00" * 32}),
        "alpha is not removed, so nothing of it",
    ),
    (b"", "it is no JSON"),
    (b"\xff", "it is no JSON"),
    (b"[" * 100_000, "it is no JSON"),
    (b"[]", "the file must be a JSON object"),
    (b"{}", 'the file has no "seedflood_roster"'),
    (changed(seedflood_roster=2), "another release"),
    (changed(colour="red"), 'unknown key "colour"'),
    (changed(operator="ab"), '"operator" must be 64 hex digits'),
    (changed(operator=7), '"operator" must be 64 hex digits'),
    (changed(run=7), '"run" must be printable text'),
    (changed(run="x" * 65), '"run" must be printable text of at most 64'),
    (changed(serial="7"), '"serial" must be a whole number'),
    (changed(serial=True), '"serial" must be a whole number'),
    (changed(serial=0), "the serial 0"),
    (changed(entries={}), '"entries" must be a list'),
    (changed(entries=[7]), "an entry must be a JSON object"),
    (changed(entries=[{}]), 'an entry has no "name"'),
    (changed(signature="00"), '"signature" must be 128 hex digits'),
    (with_entry(name=7), 'the "name" of an entry must be text'),
    (with_entry(name="no name"), "is no name"),
    (with_entry(public_key="xyz"), '"public_key" must be 64 hex digits'),
    (with_entry(roles="train"), 'the "roles" of alpha must be a list'),
    (with_entry(roles=["king"]), '"king" is no role'),
    (with_entry(not_after=7), 'the "not_after" of alpha must be a time'),
    (with_entry(not_after="soon"), '"soon" is no time'),
    (with_entry(until="2027"), 'unknown key "until"'),
    (with_entry(name="beta"), "not signed by its operator"),
    (changed(serial=8), "not signed by its operator"),
    (changed(run="other"), "not signed by its operator"),
    (b" " * (FILE_BYTES_MAX + 1), "more than 2097152 bytes"),
]


@pytest.mark.parametrize(("data", "sentence"), FAULTS)
def test_every_fault_of_a_file_has_one_sentence(tmp_path: Path, data: bytes, sentence: str) -> None:
    path = tmp_path / "roster.json"
    path.write_bytes(data)
    with pytest.raises(ConfigError, match=sentence) as caught:
        read_roster(path)
    assert str(path) in str(caught.value)
    assert len(str(caught.value)) < 300


def test_a_file_that_is_not_there_or_cannot_be_read_has_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="does not exist; copy the operator's"):
        read_roster(tmp_path / "roster.json")
    with pytest.raises(ConfigError, match="cannot be read: Is a directory"):
        read_roster(tmp_path)
    with pytest.raises(ConfigError, match="cannot be written"):
        write_roster(tmp_path / "nowhere" / "roster.json", SIGNED)


@given(
    st.binary(max_size=200)
    | st.text(max_size=80).map(str.encode)
    | st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=8),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    ).map(lambda told: json.dumps(told).encode())
)
def test_whatever_the_bytes_are_a_fault_is_a_value_error(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        parse_roster(data)


@given(
    st.sampled_from(["operator", "run", "serial", "entries", "signature"]),
    st.none()
    | st.integers()
    | st.text(max_size=4)
    | st.lists(
        st.dictionaries(
            st.sampled_from(["name", "public_key", "roles", "not_before"]),
            st.text(max_size=4) | st.integers(),
            max_size=4,
        ),
        max_size=2,
    ),
)
def test_any_value_of_any_key_is_used_or_refused_by_a_value_error(key: str, value: object) -> None:
    try:
        found = parse_roster(changed(**{key: value}))
    except ValueError:
        return
    assert not found.is_signed or found == SIGNED
