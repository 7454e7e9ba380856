"""What any algorithm keeps in a journal is there again after a crash, as a whole or not at all."""

import errno
import os
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from journals import BASE, RUN, open_plain

from fullness import fill
from seedflood.errors import ConfigError, DiskFullError, ExhaustedError, JournalError
from seedflood.protocol.origin import STEP_MAX
from seedflood.protocol.swarm.messages import INCARNATION_MAX, Member
from seedflood.protocol.swarm.outputs import Record
from seedflood.storage.disk import disk_errors
from seedflood.storage.journal import Journal

RELAXED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # two shared cores

values = st.binary(max_size=40) | st.integers(0, 9000).map(bytes)
records = st.builds(Record, st.sampled_from([b"a", b"b", b"\0", b"k" * 64]), values)
turns = st.lists(
    st.tuples(
        st.sampled_from(["keep", "keep durably", "fail", "commit", "reopen", "kill"]), st.lists(records, max_size=4)
    ),
    max_size=9,
)


@settings(RELAXED, max_examples=60)
@given(turns)
def test_records_are_the_newest_of_each_key_whatever_is_undone_reopened_or_killed(script) -> None:
    there: dict[bytes, bytes] = {}
    safe: dict[bytes, bytes] = {}
    with tempfile.TemporaryDirectory() as name:
        lives = (Path(name) / str(number) for number in range(len(script) + 1))
        folder = next(lives)
        folder.mkdir()
        journal = open_plain(folder)
        for what, said in script:
            match what:
                case "keep" | "keep durably":
                    journal.keep([], said, durable=what == "keep durably")
                    for key, value in said:
                        there.pop(key, None)
                        there[key] = value
                case "fail":
                    with pytest.raises(JournalError):
                        journal.keep([], failing(said), durable=True)
                    there = dict(safe)
                case "commit":
                    journal.commit()
                case "reopen":
                    journal.close()
                    journal = open_plain(folder)
                case "kill":
                    left = next(lives)
                    copy(folder, left)
                    journal.close()
                    there, folder = dict(safe), left
                    journal = open_plain(folder)
            if what in ("keep durably", "commit", "reopen"):
                safe = dict(there)
            assert journal.damaged is None
            assert list(journal.records().items()) == list(there.items())
            assert journal.size()["records"] == len(there)
        journal.close()


def failing(said: list[Record]) -> Iterator[Record]:
    yield from said
    raise sqlite3.OperationalError("disk I/O error")


def copy(source: Path, target: Path) -> None:
    """What a kill -9 would leave now."""
    target.mkdir()
    for name in ("journal", "journal-wal"):
        if (source / name).exists():
            shutil.copy(source / name, target / name)


def test_what_is_kept_durably_is_on_the_disk_before_anyone_is_told(tmp_path: Path, monkeypatch) -> None:
    with open_plain(tmp_path) as journal:
        forced: list[int] = []
        monkeypatch.setattr("seedflood.storage.store.os.fdatasync", forced.append)
        journal.keep([], [Record(b"a", b"1")], durable=False)
        journal.commit()
        assert forced == []
        journal.keep([], [Record(b"a", b"2")], durable=True)
        assert len(forced) == 1


def test_a_mebibyte_under_a_key_of_64_bytes_is_kept(tmp_path: Path) -> None:
    large = Record(b"k" * 64, os.urandom(1 << 20))
    with open_plain(tmp_path) as journal:
        journal.keep([], [large], durable=True)
    with open_plain(tmp_path) as journal:
        assert journal.damaged is None
        assert journal.records() == {large.key: large.value}


def test_values_that_were_replaced_take_no_room_for_long(tmp_path: Path) -> None:
    with open_plain(tmp_path) as journal:
        for number in range(40):
            journal.keep([], [Record(b"k", bytes([number]) * (1 << 18))], durable=True)
            journal.commit()
    assert (tmp_path / "journal").stat().st_size < 4 << 18


def test_a_full_disk_loses_the_group_and_nothing_else(small_disk: Path) -> None:
    before = Record(b"a", b"before")
    many = [Record(b"%d" % number, bytes(4000)) for number in range(40)]
    with open_plain(small_disk) as journal:
        journal.keep([], [before], durable=True)
        filler = fill(small_disk)
        for _ in range(3):
            journal_is_full(journal, [Record(b"a", b"after"), *many])
            assert journal.records() == dict([before])
        filler.unlink()
        journal.keep([], many, durable=True)
    with open_plain(small_disk) as journal:
        assert journal.damaged is None
        assert journal.records() == dict([before, *many])


def journal_is_full(journal: Journal, said: list[Record]) -> None:
    with pytest.raises(DiskFullError, match="no space to write the journal"):
        journal.keep([], said, durable=True)


def test_the_newest_statement_of_a_member_is_kept(tmp_path: Path) -> None:
    first = Member(b"k" * 32, "a", 1, signature=bytes(64))
    newer = Member(b"k" * 32, "a", 2, 3, (1, 2**64 - 1), 10, 20, 30, b"state", bytes(64))
    other = Member(b"o" * 32, "o", INCARNATION_MAX, signature=bytes(64))
    with open_plain(tmp_path) as journal:
        journal.keep([first], durable=False)
        journal.keep([newer, other], durable=True)
        journal.keep([first], durable=False)
    with open_plain(tmp_path) as journal:
        assert sorted(journal.members(), key=str) == sorted([newer, other], key=str)


def test_the_last_word_of_a_member_about_its_steps_is_kept_beside_a_newer_statement(tmp_path: Path) -> None:
    spoken = Member(b"k" * 32, "a", 1, 7, signature=bytes(64))
    earlier = Member(b"k" * 32, "a", 1, 6, signature=bytes(64))
    silent = Member(b"k" * 32, "a", 2, first_step=STEP_MAX, signature=bytes(64))
    with open_plain(tmp_path) as journal:
        for member in (spoken, silent, earlier):
            journal.keep([member], durable=True)
    with open_plain(tmp_path) as journal:
        assert sorted(journal.members(), key=str) == sorted([spoken, silent], key=str)


def test_incarnations_are_counted_over_restarts_and_by_the_clock(tmp_path: Path) -> None:
    for expected in (1, 2, 3):
        with open_plain(tmp_path) as journal:
            assert journal.next_incarnation() == expected
    with open_plain(tmp_path) as journal:
        assert journal.next_incarnation(1_800_000_000) == 1_800_000_000
        assert journal.next_incarnation(1_700_000_000) == 1_800_000_001


def test_the_journal_of_another_run_or_model_is_refused(tmp_path: Path) -> None:
    open_plain(tmp_path).close()
    with pytest.raises(ConfigError, match=r"belongs to run 7272727272727272.*another --state folder"):
        Journal.open(tmp_path / "journal", b"x" * 32, BASE)
    with pytest.raises(ConfigError, match="other base model weights"):
        Journal.open(tmp_path / "journal", RUN, b"x" * 32)
    open_plain(tmp_path).close()


def test_a_folder_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(JournalError, match="No such file"):
        open_plain(tmp_path / "missing")


def test_only_the_owner_may_read_it(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        with open_plain(tmp_path) as journal:
            journal.keep([], [Record(b"k", b"v")], durable=True)
            modes = {file.name: file.stat().st_mode & 0o777 for file in tmp_path.iterdir()}
    finally:
        os.umask(before)
    assert set(modes) >= {"journal", "journal-wal"}
    assert set(modes.values()) == {0o600}


def test_close_can_be_repeated(tmp_path: Path) -> None:
    journal = open_plain(tmp_path)
    journal.close()
    journal.close()


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE])
def test_a_process_without_descriptors_is_no_fault_of_the_disk(tmp_path, monkeypatch, number):
    with (
        pytest.raises(ExhaustedError, match="too many open files to write the journal"),
        disk_errors(tmp_path, "write"),
    ):
        raise OSError(number, os.strerror(number))

    def refuse(**_):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("tempfile.TemporaryFile", refuse)
    of_sqlite = sqlite3.OperationalError("unable to open database file")
    of_sqlite.sqlite_errorcode = sqlite3.SQLITE_CANTOPEN
    with pytest.raises(ExhaustedError), disk_errors(tmp_path, "open"):
        raise of_sqlite
