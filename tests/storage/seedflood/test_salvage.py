"""A damaged journal opens with everything that can still be read, and never with anything that was not written."""

import shutil
import sqlite3
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from journals import BASE, PERIOD, bundle, closed, open_journal

from fullness import fill
from seedflood.errors import ConfigError, DiskFullError
from seedflood.protocol.seedflood.messages import Bundle
from seedflood.protocol.swarm.messages import Member
from seedflood.protocol.swarm.outputs import Record
from seedflood.storage.salvage import Damage
from seedflood.storage.seedflood.journal import BundleJournal

TOGETHER = [bundle(7, step) for step in range(2 * PERIOD, 6 * PERIOD)]
"""In four rows."""

ALONE = [bundle(origin, step, updates=1 + step % 3 // 2) for step in range(0, 6 * PERIOD, 2) for origin in (5, 2**63)]
"""Each in a row of its own, since they leave holes, or are of unequal length."""

BUNDLES = TOGETHER + ALONE
MEMBERS = [Member(bytes([k]) * 32, f"m{k}", k, signature=bytes(64)) for k in range(3)]
EPOCHS = [closed(0, BUNDLES, size=9000), closed(1, BUNDLES, size=100)]
RECORDS = [Record(b"a", b"small"), Record(b"b", bytes(20_000))]
COMPACTED = [one for one in BUNDLES if one.step < 2 * PERIOD]


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


def check(folder: Path) -> tuple[Damage | None, list[Bundle]]:
    """Opens it; whatever was damaged, nothing in it is invented, and it can be used from then on."""
    with open_journal(folder) as journal:
        found = [one for batch in journal.read_missing(()) if isinstance(batch, list) for one in batch]
        assert set(found) <= set(BUNDLES)
        assert set(journal.replay()) <= set(BUNDLES)
        assert set(journal.closed_epochs()) <= set(EPOCHS)
        assert set(journal.members()) <= set(MEMBERS)
        assert journal.records().items() <= set(RECORDS)
        damage, count = journal.damage, journal.count()
        journal.append([one for one in BUNDLES if one.step >= 2 * PERIOD], MEMBERS, durable=True)
    with open_journal(folder) as journal:
        assert journal.damage is None
        assert journal.next_incarnation() in (1, 8)
        assert {one for one in BUNDLES if one.step >= 2 * PERIOD} <= set(journal.replay())
    assert damage is None or damage.kept_at.exists()
    assert damage is not None or count == len(BUNDLES) - len(COMPACTED)
    return damage, found


def change(path: Path, old: bytes, new: bytes) -> None:
    content = path.read_bytes()
    assert old in content
    path.write_bytes(content.replace(old, new))


def test_a_whole_journal_is_not_touched(whole: Path, tmp_path: Path) -> None:
    copy(whole, tmp_path)
    assert check(tmp_path)[0] is None


def test_what_a_kill_leaves_is_no_damage(killed: Path, tmp_path: Path) -> None:
    copy(killed, tmp_path)
    assert (tmp_path / "journal-wal").stat().st_size > 0
    assert check(tmp_path)[0] is None


@settings(max_examples=150)
@given(data=st.data())
def test_a_flipped_bit_anywhere_loses_little_and_invents_nothing(whole: Path, data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        copy(whole, folder)
        flip(folder / "journal", data)
        damage, _ = check(folder)
        if damage is not None:
            a_leaf_page = 60
            assert damage.kept["bundles"] >= len(BUNDLES) - len(COMPACTED) - a_leaf_page


@settings(max_examples=100)
@given(data=st.data())
def test_a_flipped_bit_in_the_log_is_found(killed: Path, data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        copy(killed, folder)
        flip(folder / "journal-wal", data)
        check(folder)


@settings(max_examples=60)
@given(data=st.data())
def test_any_file_cut_anywhere_opens(killed: Path, whole: Path, data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        copy(data.draw(st.sampled_from([whole, killed])), folder)
        path = data.draw(st.sampled_from(sorted(folder.glob("journal*"))))
        size = data.draw(st.integers(0, path.stat().st_size))
        path.write_bytes(path.read_bytes()[:size])
        with open_journal(folder) as journal:
            assert set(journal.replay()) <= set(BUNDLES)
            journal.append(BUNDLES, durable=True)
            assert set(journal.replay()) <= set(BUNDLES)


def flip(path: Path, data: st.DataObject) -> None:
    content = bytearray(path.read_bytes())
    content[data.draw(st.integers(0, len(content) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    path.write_bytes(content)


def test_a_record_that_changed_is_lost_alone(whole: Path, tmp_path: Path) -> None:
    copy(whole, tmp_path)
    change(tmp_path / "journal", BUNDLES[-2].signature, bytes(64))
    damage, found = check(tmp_path)
    lost = {*BUNDLES[-2:], *TOGETHER[-PERIOD:]}  # the three origins have one signature at a step
    bundles = len(BUNDLES) - len(COMPACTED) - len(lost)
    assert damage == Damage(
        {"records": 2, "bundles": bundles, "epochs": 2},
        {"records": 0, "bundles": len(lost), "epochs": 0},
        tmp_path / "journal.damaged",
    )
    assert damage.facts().items() >= {"bundles_kept": bundles, "bundles_lost": len(lost)}.items()
    assert set(BUNDLES) - set(COMPACTED) - set(found) == lost


def test_replay_keeps_its_order(whole: Path, tmp_path: Path) -> None:
    copy(whole, tmp_path)
    change(tmp_path / "journal", BUNDLES[-2].signature, bytes(64))
    with open_journal(tmp_path) as journal:
        assert list(journal.replay()) == TOGETHER[:-PERIOD] + [one for one in ALONE[:-2] if one.step >= 2 * PERIOD]


def test_a_sum_that_changed_is_lost_alone(whole: Path, tmp_path: Path) -> None:
    copy(whole, tmp_path)
    change(tmp_path / "journal", b"1" + bytes(100), b"1" + bytes(99) + b"!")
    with open_journal(tmp_path) as journal:
        assert journal.damage is not None
        assert journal.damage.lost == {"records": 0, "bundles": 0, "epochs": 1}
        assert list(journal.closed_epochs()) == [EPOCHS[0]]
        assert {one for one in BUNDLES if one.step >= 2 * PERIOD} <= set(journal.replay())


@pytest.mark.parametrize("content", [b"not a database " * 1000, b"x", bytes(20_000)])
def test_a_file_that_is_no_database_is_put_aside(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "journal").write_bytes(content)
    with open_journal(tmp_path) as journal:
        assert journal.damage is not None
        assert set(journal.damage.kept.values()) == {0}
        assert set(journal.damage.lost.values()) == {None}
        assert journal.count() == 0
    assert (tmp_path / "journal.damaged").read_bytes() == content


def test_an_empty_file_is_a_young_one(tmp_path: Path) -> None:
    (tmp_path / "journal").touch()
    with open_journal(tmp_path) as journal:
        assert journal.damage is None


def test_a_log_without_its_file_is_read(killed: Path, tmp_path: Path) -> None:
    copy(killed, tmp_path)
    (tmp_path / "journal").write_bytes(b"")
    with open_journal(tmp_path) as journal:
        assert journal.damage is not None
        assert journal.count() == len(BUNDLES) - len(COMPACTED)
        assert set(journal.closed_epochs()) == set(EPOCHS)
    assert (tmp_path / "journal.damaged-wal").exists()


def test_a_broken_log_is_read_beyond_the_break(killed: Path, tmp_path: Path) -> None:
    copy(killed, tmp_path)
    log = bytearray((tmp_path / "journal-wal").read_bytes())
    log[32 + 24 + 4000] ^= 1
    (tmp_path / "journal-wal").write_bytes(log)
    with open_journal(tmp_path) as journal:
        assert journal.damage is not None
        assert set(journal.closed_epochs()) == set(EPOCHS)
        assert journal.next_incarnation() == 8


def test_what_was_not_committed_is_not_salvaged(tmp_path: Path) -> None:
    with open_journal(tmp_path) as journal:
        journal.append([bundle(5, 0)], durable=True)
        journal._store.connection.execute("PRAGMA cache_size = 10")  # pages: what it does not hold goes to the log
        journal.append([bundle(5, step) for step in range(1, 4000)], durable=False)
        left = tmp_path / "left"
        left.mkdir()
        copy(tmp_path, left)
    assert (left / "journal-wal").stat().st_size > 100_000
    (left / "journal").write_bytes((left / "journal").read_bytes()[:-1])
    with open_journal(left) as journal:
        assert journal.count() == 1


def test_the_damaged_journal_of_another_run_is_not_touched(whole: Path, tmp_path: Path) -> None:
    copy(whole, tmp_path)
    change(tmp_path / "journal", BUNDLES[-2].signature, bytes(64))
    change(tmp_path / "journal", b"CREATE UNIQUE INDEX", b"CREATE UNIQUE INDEY")
    before = (tmp_path / "journal").read_bytes()
    with pytest.raises(ConfigError, match="belongs to run"):
        BundleJournal.open(tmp_path / "journal", b"x" * 32, BASE, refresh_period=PERIOD)
    assert (tmp_path / "journal").read_bytes() == before


def test_records_of_another_run_are_not_taken_over(whole: Path, tmp_path: Path) -> None:
    copy(whole, tmp_path)
    change(tmp_path / "journal", b"r" * 32, b"?" * 32)
    with BundleJournal.open(tmp_path / "journal", b"x" * 32, BASE, refresh_period=PERIOD) as journal:
        assert journal.damage is not None
        assert (journal.count(), journal.members(), list(journal.closed_epochs())) == (0, [], [])


@pytest.mark.parametrize("is_moved", [False, True])
def test_a_crash_between_salvaging_and_replacing_is_made_good(whole: Path, tmp_path: Path, is_moved: bool) -> None:
    copy(whole, tmp_path)
    shutil.copy(tmp_path / "journal", tmp_path / "journal.salvaged")
    (tmp_path / "journal").write_bytes(b"damaged")
    (tmp_path / "journal-wal").write_bytes(b"its log")
    if is_moved:
        (tmp_path / "journal").rename(tmp_path / "journal.damaged")
    with open_journal(tmp_path) as journal:
        assert journal.damage is not None
        assert journal.damage.kept["bundles"] == len(BUNDLES) - len(COMPACTED)
        assert set(journal.damage.lost.values()) == {None}
        assert set(journal.closed_epochs()) == set(EPOCHS)
    assert not (tmp_path / "journal.salvaged").exists()
    assert (tmp_path / "journal.damaged-wal").read_bytes() == b"its log"
    with open_journal(tmp_path) as journal:
        assert journal.damage is None


def test_a_full_disk_leaves_the_damaged_journal_as_it_is(small_disk: Path, whole: Path) -> None:
    copy(whole, small_disk)
    change(small_disk / "journal", BUNDLES[-2].signature, bytes(64))
    filler = fill(small_disk)
    with pytest.raises(DiskFullError, match="no space to open the journal"):
        open_journal(small_disk)
    filler.unlink()
    damage, _ = check(small_disk)
    assert damage is not None


def test_the_index_is_checked_too(whole: Path, tmp_path: Path) -> None:
    copy(whole, tmp_path)
    with sqlite3.connect(tmp_path / "journal") as connection:
        connection.execute("PRAGMA writable_schema = ON")
        connection.execute("UPDATE sqlite_master SET sql = replace(sql, '(origin, step)', '(step, origin)')")
    connection.close()
    damage, _ = check(tmp_path)
    assert damage is not None


def test_a_schema_that_is_no_text_is_damage(whole: Path, tmp_path: Path) -> None:
    copy(whole, tmp_path)
    change(tmp_path / "journal", b"CREATE TABLE strands (number", b"CREATE TABLE strands (n\xcfmber")
    damage, _ = check(tmp_path)
    assert damage is not None


def test_bundles_that_are_found_in_an_old_row_and_in_new_ones_are_taken_once(tmp_path: Path) -> None:
    """An adoption splits rows; the log still has the page as it was."""
    bundles = [bundle(5, step) for step in range(2 * PERIOD)]
    late = [one for one in bundles if one.step in (3, 4, 17)]
    left = tmp_path / "left"
    left.mkdir()
    with open_journal(tmp_path) as journal:
        journal.append(bundles, durable=True)
        assert journal.adopt(closed(0, [one for one in bundles if one not in late])) == late
        copy(tmp_path, left)
    (left / "journal").write_bytes(b"?" + (left / "journal").read_bytes()[1:])
    with open_journal(left) as journal:
        kept = [one for one in bundles if one in late or one.step >= PERIOD]
        assert journal.damage is not None
        assert journal.damage.kept["bundles"] == len(kept)
        assert sorted(journal.replay()) == kept
        assert journal.count() == len(kept)
