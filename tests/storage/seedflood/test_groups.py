"""A group ends as a whole: on the disk, in the operating system's hands, or not at all."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from journals import BASE, PERIOD, RUN, bundle, closed, open_journal

import seedflood
from fullness import fill
from seedflood.errors import DiskFullError, JournalError
from seedflood.protocol.seedflood.bundles import Bundle
from seedflood.storage.seedflood.journal import BundleJournal

MANY = [bundle(1, step) for step in range(1, 20_000)]


def copy(journal: BundleJournal, folder: Path) -> list[int]:
    """The steps that a kill -9 would leave now."""
    folder.mkdir()
    for name in ("journal", "journal-wal"):
        shutil.copy(journal.path.parent / name, folder / name)
    with open_journal(folder) as left:
        assert left.damaged is None
        return [one.step for one in left.replay()]


def test_a_kill_leaves_whole_groups(tmp_path: Path) -> None:
    with open_journal(tmp_path) as journal:
        journal.append([bundle(1, 0)], durable=False)
        journal.append([bundle(1, 1)], durable=False)
        assert copy(journal, tmp_path / "open") == []
        journal.commit()
        assert copy(journal, tmp_path / "ended") == [0, 1]
        journal.append([bundle(1, 2)], durable=False)
        journal.append([bundle(1, 3)], durable=True)
        assert copy(journal, tmp_path / "durable") == [0, 1, 2, 3]


def test_reads_see_the_open_group(tmp_path: Path) -> None:
    with open_journal(tmp_path) as journal:
        journal.append([bundle(1, 0)], durable=False)
        assert list(journal.replay()) == [bundle(1, 0)]
        assert list(journal.read_missing(())) == [[bundle(1, 0)]]
        assert journal.count() == 1


def test_an_append_that_fails_undoes_the_group(tmp_path: Path) -> None:
    with open_journal(tmp_path) as journal:
        journal.append([bundle(1, 0)], durable=True)
        journal.append([bundle(1, 1)], durable=False)
        with pytest.raises(JournalError, match="another bundle at step 0"):
            journal.append([bundle(1, 0, updates=2)], durable=False)
        assert list(journal.replay()) == [bundle(1, 0)]
        journal.commit()
        assert journal.append([bundle(1, 1)], durable=True) == 1


def test_closing_ends_the_group(tmp_path: Path) -> None:
    journal = open_journal(tmp_path)
    journal.append([bundle(1, 0)], durable=False)
    journal.close()
    with open_journal(tmp_path) as journal:
        assert journal.count() == 1


SYNCS = """
import os
import sys
from seedflood.protocol.seedflood.bundles import make_bundle
from seedflood.storage.seedflood.journal import BundleJournal

journal = BundleJournal.open(sys.argv[1], b"r" * 32, b"b" * 32, refresh_period=20)
say = lambda word: os.access("/" + word, os.F_OK)  # a mark in the trace
journal.append([make_bundle(7, 9, ((1, 1),), 0, bytes(64))], durable=True)  # a log that begins is forced by sqlite
say("begin")
for step in range(5):
    journal.append([make_bundle(7, step, ((1, 1),), 0, bytes(64))], durable=False)
say("open-group")
journal.commit()
say("committed")
journal.append([make_bundle(7, 5, ((1, 1),), 0, bytes(64))], durable=False)
journal.append([make_bundle(7, 6, ((1, 1),), 0, bytes(64))], durable=True)
say("durable")
journal.append([make_bundle(7, 6, ((1, 1),), 0, bytes(64))], durable=True)
say("nothing-new")
"""


def test_the_log_is_forced_to_the_disk_after_it_is_written_and_only_when_durable(tmp_path: Path) -> None:
    strace = shutil.which("strace")
    if strace is None:
        pytest.skip("strace is not installed")
    trace = tmp_path / "trace"
    calls = "trace=fsync,fdatasync,pwrite64,access,faccessat,faccessat2"
    script = [sys.executable, "-c", SYNCS, str(tmp_path / "journal")]
    ended = subprocess.run(
        [strace, "-y", "-e", calls, "-o", str(trace), *script],
        capture_output=True,
        check=False,
        env=os.environ | {"PYTHONPATH": str(Path(seedflood.__file__).parent.parent)},
    )
    if ended.returncode and b"ptrace" in ended.stderr:
        pytest.skip("strace may not trace here")
    assert ended.returncode == 0, ended.stderr
    found, rest = {}, trace.read_text()
    for word in ("begin", "open-group", "committed", "durable", "nothing-new"):
        before, _, rest = rest.partition(f'"/{word}"')
        names = re.findall(r"^(\w+)\(\d+<[^>]*journal-wal>", before, re.M)
        found[word] = "".join("S" if name.endswith("sync") else "w" for name in names)
    assert found["open-group"] == ""
    assert re.fullmatch("w+", found["committed"])
    assert re.fullmatch("w+S", found["durable"])
    assert found["nothing-new"] == "S"


def test_a_journal_that_may_not_grow_tells_it_and_goes_on_once_it_may(tmp_path: Path) -> None:
    with open_journal(tmp_path) as journal:
        journal.append([bundle(1, 0)], durable=True)
        journal._store.connection.execute("PRAGMA max_page_count = 16")
        with pytest.raises(DiskFullError, match="no space to write the journal"):
            journal.append(MANY, durable=True)
        assert list(journal.replay()) == [bundle(1, 0)]
        journal._store.connection.execute("PRAGMA max_page_count = 100000")
        assert journal.append(MANY, durable=True) == len(MANY)


@pytest.mark.parametrize("durable", [True, False])
def test_a_full_disk_loses_the_group_and_nothing_else(small_disk: Path, durable: bool) -> None:
    def append(bundles: list[Bundle]) -> None:
        journal.append(bundles, durable=durable)
        journal.commit()

    with open_journal(small_disk) as journal:
        journal.append([bundle(1, 0)], durable=True)
        filler = fill(small_disk)
        for _ in range(3):
            with pytest.raises(DiskFullError, match="no space to write the journal"):
                append(MANY[:1000])
            assert list(journal.replay()) == [bundle(1, 0)]
        filler.unlink()
        assert journal.append(MANY[:1000], durable=True) == 1000
    with open_journal(small_disk) as journal:
        assert journal.damaged is None
        assert list(journal.replay()) == [bundle(1, 0), *MANY[:1000]]


def test_a_sum_that_has_no_space_replaces_nothing(small_disk: Path) -> None:
    bundles = [bundle(1, step) for step in range(PERIOD)]
    with open_journal(small_disk) as journal:
        journal.append(bundles, durable=True)
        filler = fill(small_disk)
        for keep in (journal.compact, journal.adopt):
            with pytest.raises(DiskFullError):
                keep(closed(0, bundles, size=1000))
            assert list(journal.closed_epochs()) == []
            assert list(journal.replay()) == bundles
        filler.unlink()
        assert journal.compact(closed(0, bundles, size=1000)) == PERIOD


def test_opening_on_a_full_disk_is_told(small_disk: Path) -> None:
    fill(small_disk)
    with pytest.raises(DiskFullError, match="no space to open the journal"):
        BundleJournal.open(small_disk / "journal", RUN, BASE, refresh_period=PERIOD)
    assert {file.name for file in small_disk.iterdir()} == {"filler"}
