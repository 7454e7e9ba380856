"""A damaged journal is set aside, and an empty one takes its place: nothing is invented, and nothing is half there."""

import contextlib
import os
import shutil
import sqlite3
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from journals import BASE, PERIOD, RUN, bundle, closed, open_journal, open_plain

from fullness import fill
from seedflood.errors import ConfigError, DiskFullError, ExitCode, JournalError
from seedflood.protocol.seedflood.messages import EpochDigest, Vote
from seedflood.protocol.swarm.messages import Member
from seedflood.protocol.swarm.outputs import Record
from seedflood.storage.opening import FORMAT_VERSION
from seedflood.storage.records import RunMark
from seedflood.storage.seedflood.journal import BundleJournal

RELAXED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # two shared cores

TOGETHER = [bundle(7, step) for step in range(2 * PERIOD, 6 * PERIOD)]
"""In four rows."""

ALONE = [bundle(origin, step, updates=1 + step % 3 // 2) for step in range(0, 6 * PERIOD, 2) for origin in (5, 2**63)]
"""Each in a row of its own, since they leave holes, or are of unequal length."""

BUNDLES = TOGETHER + ALONE
MEMBERS = [Member(bytes([k]) * 32, f"m{k}", k, signature=bytes(64)) for k in range(3)]
VOTES = (Vote(7, 0, EpochDigest(bytes(32), bytes(32)), bytes(64)),)
EPOCHS = [
    replace(closed(0, BUNDLES, size=9000), certificate=VOTES),
    closed(1, BUNDLES, size=100),
]
RECORDS = [Record(b"a", b"small"), Record(b"b", bytes(20_000))]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A closed journal: epoch 0 adopted, 1 compacted, the rest as bundles."""
    return write(tmp_path_factory.mktemp("whole"))


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a kill -9 leaves: most of it in the log."""
    return write(tmp_path_factory.mktemp("killed"), is_killed=True)


def write(folder: Path, *, is_killed: bool = False) -> Path:
    left = folder / "left"
    left.mkdir()
    with open_journal(folder) as journal:
        journal.next_incarnation(7)
        journal.append(BUNDLES, MEMBERS[:1], durable=True)
        journal.keep([], RECORDS, durable=True)
        journal.adopt(EPOCHS[0])
        journal.compact(EPOCHS[1])
        journal.commit()
        journal.append([], MEMBERS, durable=True)
        if is_killed:
            copy(folder, left)
    if not is_killed:
        copy(folder, left)
    return left


def copy(source: Path, target: Path) -> None:
    for file in source.glob("journal*"):
        shutil.copy(file, target / file.name)


def change(path: Path, old: bytes, new: bytes) -> None:
    content = path.read_bytes()
    assert old in content
    path.write_bytes(content.replace(old, new))


def content_of(journal: BundleJournal) -> dict[str, object]:
    return {
        "bundles": sorted(journal.replay(), key=str),
        "epochs": list(journal.closed_epochs()),
        "members": sorted(journal.members(), key=str),
        "records": journal.records(),
    }


def expected() -> dict[str, object]:
    return {
        "bundles": sorted([one for one in BUNDLES if one.step >= 2 * PERIOD], key=str),
        "epochs": EPOCHS,
        "members": sorted(MEMBERS, key=str),
        "records": dict(RECORDS),
    }


EMPTY = {"bundles": [], "epochs": [], "members": [], "records": {}}


def open_twice(folder: Path) -> bool:
    """Opens it: all or nothing is there, and it can be used from then on. Was it damaged?"""
    with open_journal(folder) as journal:
        damage = journal.damaged
        assert content_of(journal) == (expected() if damage is None else EMPTY)
        assert journal.next_incarnation() == (8 if damage is None else 1)
        journal.append(BUNDLES, MEMBERS, durable=True)
    with open_journal(folder) as journal:
        assert journal.damaged is None
        assert set(journal.replay()) >= {one for one in BUNDLES if one.step >= 2 * PERIOD}
    if damage is not None:
        assert damage == folder / "journal.damaged"
    return damage is not None


def test_a_whole_journal_is_not_touched(whole: Path, tmp_path: Path) -> None:
    copy(whole, tmp_path)
    assert not open_twice(tmp_path)


def test_what_a_kill_leaves_is_no_damage(killed: Path, tmp_path: Path) -> None:
    copy(killed, tmp_path)
    assert (tmp_path / "journal-wal").stat().st_size > 0
    assert not open_twice(tmp_path)


@settings(RELAXED, max_examples=100)
@given(data=st.data())
def test_a_flipped_bit_anywhere_is_found_or_changes_nothing(whole: Path, data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        copy(whole, folder)
        flip(folder / "journal", data)
        open_twice(folder)


@settings(RELAXED, max_examples=60)
@given(data=st.data())
def test_a_flipped_bit_in_the_log_invents_nothing(killed: Path, data: st.DataObject) -> None:
    """What is before it is kept: groups that others made, one after the other. What is behind it is lost."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        copy(killed, folder)
        flip(folder / "journal-wal", data)
        with open_journal(folder) as journal:
            assert set(journal.replay()) <= set(BUNDLES)


@settings(RELAXED, max_examples=40)
@given(data=st.data())
def test_any_file_cut_anywhere_opens(killed: Path, whole: Path, data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        copy(data.draw(st.sampled_from([whole, killed])), folder)
        path = data.draw(st.sampled_from(sorted(folder.glob("journal*"))))
        os.truncate(path, data.draw(st.integers(0, path.stat().st_size)))
        with open_journal(folder) as journal:
            assert path.name == "journal-wal" or journal.damaged is not None or content_of(journal) == expected()
            assert set(journal.replay()) <= set(BUNDLES)
            journal.append(BUNDLES, durable=True)


def flip(path: Path, data: st.DataObject) -> None:
    content = bytearray(path.read_bytes())
    content[data.draw(st.integers(0, len(content) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    path.write_bytes(content)


@pytest.mark.parametrize("written", [BUNDLES[-2].signature, MEMBERS[1].public_key, b"small", b"0" + bytes(9000)])
def test_a_record_that_changed_is_damage(whole: Path, tmp_path: Path, written: bytes) -> None:
    copy(whole, tmp_path)
    content = (tmp_path / "journal").read_bytes()
    place = content.index(written[:64])
    (tmp_path / "journal").write_bytes(content[:place] + b"?" + content[place + 1 :])
    assert open_twice(tmp_path)


@pytest.mark.parametrize(
    "change",
    [
        "segments SET last = last + 1",
        "segments SET bundles = 2",
        "segments SET skipped = 1",
        "segments SET record = 'text'",
        "epochs SET epoch = epoch + 7",
        "epochs SET coefficients = X'00'",
        "epochs SET certificate = X'00'",
        "members SET record = 17",
        "records SET record = X''",
        "records SET key = X'00' WHERE number = 1",
        "records SET key = 'text' WHERE number = 1",
        "meta SET key = 3 WHERE key = 2",
        "meta SET record = X'00'",
    ],
)
def test_a_row_that_is_not_what_was_written_is_damage(whole: Path, tmp_path: Path, change: str) -> None:
    copy(whole, tmp_path)
    with contextlib.closing(sqlite3.connect(tmp_path / "journal", isolation_level=None)) as connection:
        connection.execute(f"UPDATE {change}")
    assert open_twice(tmp_path)


@pytest.mark.parametrize("content", [b"not a database " * 1000, b"x", bytes(20_000), b""])
def test_a_file_that_is_no_database_is_set_aside(tmp_path: Path, content: bytes) -> None:
    """An empty one, too: a journal is never empty under its name."""
    (tmp_path / "journal").write_bytes(content)
    with open_journal(tmp_path) as journal:
        assert journal.damaged is not None
        assert content_of(journal) == EMPTY
    assert (tmp_path / "journal.damaged").read_bytes() == content


def test_a_log_without_its_file_is_set_aside(killed: Path, tmp_path: Path) -> None:
    copy(killed, tmp_path)
    (tmp_path / "journal").unlink()
    assert open_twice(tmp_path)
    assert (tmp_path / "journal.damaged-wal").exists()


def test_a_log_that_ends_early_is_no_damage(killed: Path, tmp_path: Path) -> None:
    """So it is after a power failure: neighbours have what others said, and what we said was forced."""
    copy(killed, tmp_path)
    os.truncate(tmp_path / "journal-wal", (tmp_path / "journal-wal").stat().st_size - 2000)
    with open_journal(tmp_path) as journal:
        assert journal.damaged is None
        assert journal.next_incarnation() == 8


def test_groups_of_an_earlier_use_of_the_log_are_no_break(tmp_path: Path) -> None:
    left = tmp_path / "left"
    left.mkdir()
    with open_journal(tmp_path) as journal:
        journal.append([bundle(5, step) for step in range(0, 4000, 2)], durable=True)
        journal._store.connection.execute("PRAGMA wal_checkpoint(RESTART)")
        journal.append([bundle(5, 1)], durable=True)
        copy(tmp_path, left)
    assert (left / "journal-wal").stat().st_size > 100_000
    with open_journal(left) as journal:
        assert journal.damaged is None
        assert journal.count() == 2001


def test_a_group_that_was_undone_is_no_break(tmp_path: Path) -> None:
    left = tmp_path / "left"
    left.mkdir()
    with open_journal(tmp_path) as journal:
        journal.append([bundle(5, 0)], durable=True)
        journal._store.connection.execute("PRAGMA cache_size = 10")  # pages: what it does not hold goes to the log
        journal.append([bundle(5, step) for step in range(1, 4000)], durable=False)
        copy(tmp_path, left)
    assert (left / "journal-wal").stat().st_size > 100_000
    with open_journal(left) as journal:
        assert journal.damaged is None
        assert list(journal.replay()) == [bundle(5, 0)]


def test_a_crash_while_a_journal_is_set_aside_is_made_good(killed: Path, tmp_path: Path) -> None:
    copy(killed, tmp_path)
    (tmp_path / "journal").rename(tmp_path / "journal.damaged")
    assert open_twice(tmp_path)
    assert (tmp_path / "journal.damaged-wal").exists()


def test_a_full_disk_keeps_nobody_from_setting_it_aside_later(small_disk: Path, whole: Path) -> None:
    copy(whole, small_disk)
    change(small_disk / "journal", BUNDLES[-2].signature, bytes(64))
    filler = fill(small_disk)
    with pytest.raises(DiskFullError, match="no space to open the journal"):
        open_journal(small_disk)
    filler.unlink()
    with open_journal(small_disk) as journal:
        assert content_of(journal) == EMPTY
    assert (small_disk / "journal.damaged").exists()


def test_a_disk_that_cannot_be_read_is_no_damage(whole: Path, tmp_path: Path, monkeypatch) -> None:
    copy(whole, tmp_path)

    def fail(*_: object) -> bool:
        error = sqlite3.OperationalError("disk I/O error")
        error.sqlite_errorcode = sqlite3.SQLITE_IOERR_READ
        raise error

    with monkeypatch.context() as broken:
        broken.setattr("seedflood.storage.tables.MemberTable.is_whole", fail)
        with pytest.raises(JournalError, match="check that the disk is healthy") as caught:
            open_journal(tmp_path)
        assert caught.value.exit_code == ExitCode.DISK
    assert not open_twice(tmp_path)


Spoil = Callable[[Path], None]


def spoil_schema(path: Path) -> None:
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA writable_schema = ON")
        connection.execute("UPDATE sqlite_master SET sql = replace(sql, '(origin, step)', '(step, origin)')")


def spoil_text(path: Path) -> None:
    change(path, b"CREATE TABLE segments (number", b"CREATE TABLE segments (n\xcfmber")


@pytest.mark.parametrize("spoil", [spoil_schema, spoil_text])
def test_a_schema_that_changed_is_damage(whole: Path, tmp_path: Path, spoil: Spoil) -> None:
    copy(whole, tmp_path)
    spoil(tmp_path / "journal")
    assert open_twice(tmp_path)


def test_the_damaged_journal_of_another_run_is_not_touched(whole: Path, tmp_path: Path) -> None:
    copy(whole, tmp_path)
    change(tmp_path / "journal", BUNDLES[-2].signature, bytes(64))
    before = (tmp_path / "journal").read_bytes()
    with pytest.raises(ConfigError, match="belongs to run"):
        BundleJournal.open(tmp_path / "journal", b"x" * 32, BASE, refresh_period=PERIOD)
    assert (tmp_path / "journal").read_bytes() == before


def test_the_journal_of_a_newer_release_is_refused(tmp_path: Path, monkeypatch) -> None:
    with monkeypatch.context() as newer:
        newer.setattr("seedflood.storage.journal.FORMAT_VERSION", FORMAT_VERSION + 1)
        open_plain(tmp_path).close()
    with pytest.raises(ConfigError, match=f"journal format {FORMAT_VERSION + 1}, this release reads {FORMAT_VERSION};"):
        open_plain(tmp_path)


def test_the_journal_of_an_older_release_is_refused_and_not_touched(tmp_path: Path) -> None:
    """Format 6 has other tables."""
    with sqlite3.connect(tmp_path / "journal") as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("CREATE TABLE meta (key INTEGER PRIMARY KEY, record BLOB NOT NULL)")
        connection.execute("CREATE TABLE epochs (epoch INTEGER PRIMARY KEY, frontier BLOB, coefficients BLOB)")
        connection.execute("INSERT INTO meta VALUES (1, ?)", (RunMark(6, RUN, BASE).packed(),))
    connection.close()
    before = (tmp_path / "journal").read_bytes()
    with pytest.raises(ConfigError, match=f"journal format 6, this release reads {FORMAT_VERSION};"):
        open_plain(tmp_path)
    assert (tmp_path / "journal").read_bytes() == before
