"""Of a damaged journal all that can be read is kept, whatever the algorithm: the newest, and nothing invented."""

import contextlib
import sqlite3
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from journals import BASE, RUN, open_plain

from seedflood.errors import ConfigError
from seedflood.protocol.origin import STEP_MAX
from seedflood.protocol.swarm.messages import Member
from seedflood.protocol.swarm.outputs import Record
from seedflood.storage.journal import Journal
from seedflood.storage.layout import FORMAT_VERSION
from seedflood.storage.records import Identity, encode_identity
from seedflood.storage.sqlite_pages import SqlitePages
from seedflood.storage.store import Store
from seedflood.storage.tables import Members, Records

KEYS = [b"%02d" % number for number in range(30)]
LARGE = b"large"
SIZES = {key: 9 * number for number, key in enumerate(KEYS)} | {LARGE: 20_000}
SAID = [
    [Record(key, b"%s, version %d" % (key, version) + bytes(size)) for key, size in SIZES.items()]
    for version in (1, 2, 3)
]
NEWEST = dict(SAID[-1])
MEMBERS = [
    Member(bytes([k]) * 32, f"m{k}", k, 2, first_step=first, signature=bytes(64))
    for k in range(3)
    for first in (0, STEP_MAX)
]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """A closed journal."""
    return write(tmp_path_factory.mktemp("whole"))


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """What a kill -9 leaves: all versions, in the log."""
    return write(tmp_path_factory.mktemp("killed"), is_killed=True)


def write(folder: Path, *, is_killed: bool = False) -> dict[str, bytes]:
    with open_plain(folder) as journal:
        journal.next_incarnation(7)
        for number, said in enumerate(SAID):
            journal.keep([replace(member, version=number) for member in MEMBERS], said, durable=True)
        if is_killed:
            return files(folder)
    return files(folder)


def files(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.glob("journal*") if not file.name.endswith(".lock")}


def put(content: dict[str, bytes], folder: Path) -> None:
    for name, there in content.items():
        (folder / name).write_bytes(there)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_a_flipped_bit_anywhere_loses_a_page_at_most_and_invents_nothing(whole, killed, data: st.DataObject) -> None:
    content = dict(data.draw(st.sampled_from([whole, killed])))
    name = data.draw(st.sampled_from(sorted(content)))
    content[name] = flipped(content[name], data.draw(st.integers(0, 8 * len(content[name]) - 1)))
    with tempfile.TemporaryDirectory() as folder:
        put(content, Path(folder))
        with open_plain(folder) as journal:
            records = journal.records()
            for key, value in records.items():
                assert Record(key, value) in [one for said in SAID for one in said]
            assert len(records) >= (len(KEYS) // 2 if content.keys() == {"journal"} else 0)
            assert {replace(member, version=2) for member in journal.members()} <= set(MEMBERS)
            if journal.damage is None:
                assert records == NEWEST
            else:
                assert journal.damage.kept == {"records": len(records)}
            journal.keep(MEMBERS, SAID[-1], durable=True)
        with open_plain(folder) as journal:
            assert journal.damage is None
            assert journal.next_incarnation() in (1, 8)
            assert journal.records() == NEWEST
            assert set(journal.members()) == set(MEMBERS)


def flipped(content: bytes, bit: int) -> bytes:
    changed = bytearray(content)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


@pytest.mark.parametrize("key", [*KEYS[::6], LARGE])
def test_a_record_that_changed_is_lost_alone(whole, tmp_path: Path, key: bytes) -> None:
    content = whole["journal"].replace(b"%s, version 3" % key, b"%s, version 4" % key)
    put({"journal": content}, tmp_path)
    with open_plain(tmp_path) as journal:
        assert journal.damage is not None
        records = journal.records()
        assert records.pop(key, b"") in (b"", *(dict(said)[key] for said in SAID[:2]))
        assert records == {other: value for other, value in NEWEST.items() if other != key}
        assert journal.damage.lost["records"] in (0, 1)
        assert sorted(journal.members(), key=str) == sorted(MEMBERS, key=str)


def test_a_statement_that_changed_is_lost_alone(whole, tmp_path: Path) -> None:
    put({"journal": whole["journal"].replace(MEMBERS[-1].public_key, b"!" * 32)}, tmp_path)
    with open_plain(tmp_path) as journal:
        assert journal.damage is not None
        left = [member for member in MEMBERS if member.public_key != MEMBERS[-1].public_key]
        assert sorted(journal.members(), key=str) == sorted(left, key=str)
        assert journal.records() == NEWEST


@pytest.mark.parametrize(("column", "value"), [("origin", 17), ("has_spoken", 2), ("record", "X'00'")])
def test_a_statement_that_stands_in_another_row_is_found(whole, tmp_path: Path, column: str, value: object) -> None:
    put(whole, tmp_path)
    with contextlib.closing(sqlite3.connect(tmp_path / "journal", isolation_level=None)) as connection:
        connection.execute(f"UPDATE members SET {column} = {value} WHERE number = 1")
    with open_plain(tmp_path) as journal:
        assert journal.damage is not None
        assert len(journal.members()) == len(MEMBERS) - (column == "record")


@pytest.mark.parametrize("change", ["key = X'00'", "number = 1000", "record = 'text'", "record = 17", "key = '00'"])
def test_a_record_that_is_not_the_one_of_its_row_is_lost_alone(whole, tmp_path: Path, change: str) -> None:
    put(whole, tmp_path)
    with contextlib.closing(sqlite3.connect(tmp_path / "journal", isolation_level=None)) as connection:
        connection.execute(f"UPDATE records SET {change} WHERE key = ?", (KEYS[0],))
    with open_plain(tmp_path) as journal:
        assert journal.damage is not None
        assert {key: value for key, value in journal.records().items() if key != KEYS[0]} == {
            key: value for key, value in NEWEST.items() if key != KEYS[0]
        }


@pytest.mark.parametrize("name", ["journal", "journal-wal"])
def test_of_several_values_of_a_key_the_last_is_kept(killed, tmp_path: Path, name: str) -> None:
    """And all statements, and the incarnation."""
    put(killed | {name: flipped(killed[name], 0)}, tmp_path)
    with open_plain(tmp_path) as journal:
        assert journal.damage is not None
        assert journal.damage.facts() == {
            "records_kept": len(NEWEST),
            "records_lost": None,
            "kept_at": str(tmp_path / "journal.damaged"),
        }
        assert list(journal.records().items()) == list(NEWEST.items())
        assert sorted(journal.members(), key=str) == sorted(MEMBERS, key=str)
        assert journal.next_incarnation() == 8


@settings(max_examples=20, deadline=None)
@given(st.randoms(use_true_random=False))
def test_the_last_value_is_kept_in_whatever_order_rows_are_found(killed, rng) -> None:
    with tempfile.TemporaryDirectory() as folder:
        put(killed, Path(folder))
        with SqlitePages(Path(folder) / "journal") as pages:
            rows = 2 * list(pages.rows())
    rng.shuffle(rows)
    with contextlib.closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        store, identity = Store(Path("journal"), connection), Identity(FORMAT_VERSION, RUN, BASE)
        members, records = Members(store, identity), Records(store, identity)
        for statement in (*members.schema, *records.schema):
            connection.execute(statement)
        for row in rows:
            members.rescue(row)
            records.rescue(row)
        assert list(records.all().items()) == list(NEWEST.items())
        assert sorted(members.all(), key=str) == sorted(MEMBERS, key=str)
        assert members.is_whole()
        assert records.is_whole()


def test_what_is_kept_after_a_rescue_is_newer_than_what_was_rescued(killed, tmp_path: Path) -> None:
    put(killed | {"journal-wal": flipped(killed["journal-wal"], 0)}, tmp_path)
    with open_plain(tmp_path) as journal:
        journal.keep([], [Record(KEYS[0], b"after")], durable=True)
        again = files(tmp_path)
    for damaged in tmp_path.glob("*.damaged*"):
        damaged.unlink()
    put({name: flipped(there, 0) for name, there in again.items() if name in ("journal", "journal-wal")}, tmp_path)
    with open_plain(tmp_path) as journal:
        assert journal.damage is not None
        assert journal.records() == NEWEST | {KEYS[0]: b"after"}


def test_records_of_another_run_are_not_taken_over(whole, tmp_path: Path) -> None:
    identity = encode_identity(Identity(FORMAT_VERSION, RUN, BASE))
    put({"journal": whole["journal"].replace(identity, bytes(len(identity)))}, tmp_path)
    with Journal.open(tmp_path / "journal", b"x" * 32, BASE) as journal:
        assert journal.damage is not None
        assert (journal.records(), journal.members(), journal.next_incarnation()) == ({}, [], 1)


def test_the_journal_of_a_newer_release_is_refused(tmp_path: Path, monkeypatch) -> None:
    with monkeypatch.context() as newer:
        newer.setattr("seedflood.storage.journal.FORMAT_VERSION", FORMAT_VERSION + 1)
        open_plain(tmp_path).close()
    with pytest.raises(ConfigError, match=f"journal format {FORMAT_VERSION + 1}, this release reads {FORMAT_VERSION};"):
        open_plain(tmp_path)


def test_the_journal_of_an_older_release_is_refused_and_not_touched(tmp_path: Path) -> None:
    """Format 5 has other tables."""
    with sqlite3.connect(tmp_path / "journal") as connection:
        connection.execute("CREATE TABLE meta (key INTEGER PRIMARY KEY, record BLOB NOT NULL)")
        connection.execute("CREATE TABLE epochs (epoch INTEGER PRIMARY KEY, frontier BLOB, coefficients BLOB)")
        connection.execute("INSERT INTO meta VALUES (1, ?)", (encode_identity(Identity(5, RUN, BASE)),))
    connection.close()
    before = (tmp_path / "journal").read_bytes()
    with pytest.raises(ConfigError, match=f"journal format 5, this release reads {FORMAT_VERSION};"):
        open_plain(tmp_path)
    assert files(tmp_path) == {"journal": before}
