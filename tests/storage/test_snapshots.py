"""A snapshot comes back as it was saved or is passed over."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import save_file

from fullness import fill
from seedflood.errors import DiskFullError, JournalError
from seedflood.storage.snapshots import Snapshots, load_digest

ARRAYS = {
    "weight": np.arange(12, dtype=np.float32).reshape(3, 4).T,
    "sums": np.array([-(2**62), 5], dtype=np.int64),
    "scalar": np.float64(0.5) * np.ones(()),
    "none": np.zeros((0, 3), dtype=np.int64),
}
FACTS = {"run": "r", "frontier": "é 1:5"}


def anything(facts: dict[str, str]) -> bool:
    return True


def same(found: dict[str, np.ndarray], saved: dict[str, np.ndarray]) -> bool:
    return found.keys() == saved.keys() and all(
        found[name].dtype == one.dtype and found[name].shape == one.shape and np.array_equal(found[name], one)
        for name, one in saved.items()
    )


def test_a_snapshot_comes_back_as_it_was_saved(tmp_path: Path) -> None:
    Snapshots(tmp_path / "snapshots", keep=2).save(1000, ARRAYS, FACTS)
    found = Snapshots(tmp_path / "snapshots", keep=2).load_latest(anything)
    assert found is not None
    assert (found.step, found.facts) == (1000, FACTS)
    assert same(found.arrays, ARRAYS)


def test_a_snapshot_that_cannot_be_opened_is_not_set_aside(tmp_path: Path) -> None:
    """It may be another user's, or lie on a disk that is not there now; in GASLoC it is the replica."""
    snapshots = Snapshots(tmp_path, keep=2)
    snapshots.save(7, ARRAYS, FACTS)
    away = tmp_path / "step-000000009.safetensors"
    away.symlink_to(away)
    with pytest.raises(JournalError, match=r"cannot open the snapshot .*step-000000009"):
        snapshots.load_latest(anything)
    assert away.is_symlink()


def test_a_snapshot_carries_a_digest_of_facts_and_arrays(tmp_path: Path) -> None:
    snapshots = Snapshots(tmp_path, keep=9)
    changed = {**ARRAYS, "sums": np.array([-(2**62), 6], dtype=np.int64)}
    digests = []
    for step, (arrays, facts) in enumerate([(ARRAYS, FACTS), (ARRAYS, FACTS), (changed, FACTS), (ARRAYS, {})]):
        snapshots.save(step, arrays, facts)
        newest = snapshots.newest()
        assert newest is not None
        digests.append(load_digest(newest))
    assert digests[0] == digests[1]
    assert len(set(digests)) == 3
    assert {len(digest) for digest in digests} == {32}


def test_a_file_of_another_hand_carries_none(tmp_path: Path) -> None:
    save_file({"sums": np.arange(3)}, tmp_path / "other")
    with pytest.raises(ValueError, match="hexadecimal"):
        load_digest(tmp_path / "other")


def test_a_folder_without_snapshots_has_none(tmp_path: Path) -> None:
    assert Snapshots(tmp_path, keep=2).load_latest(anything) is None


def test_only_the_newest_are_kept(tmp_path: Path) -> None:
    snapshots = Snapshots(tmp_path, keep=2)
    for step in (5, 1_000_000_000, 70):
        snapshots.save(step, ARRAYS, FACTS)
    assert {file.name for file in tmp_path.iterdir()} == {"step-000000070.safetensors", "step-1000000000.safetensors"}


def test_what_does_not_fit_is_passed_over_for_the_one_before(tmp_path: Path) -> None:
    snapshots = Snapshots(tmp_path, keep=3)
    snapshots.save(1, ARRAYS, {"run": "mine"})
    snapshots.save(2, ARRAYS, {"run": "other"})
    found = snapshots.load_latest(lambda facts: facts["run"] == "mine")
    assert found is not None
    assert found.step == 1
    names = {"step-000000001.safetensors", "step-000000002.safetensors.unusable"}
    assert {file.name for file in tmp_path.iterdir()} == names


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> tuple[Snapshots, Path, bytes]:
    """Two snapshots that hold the same, and the file of the second and what is in it."""
    folder = tmp_path_factory.mktemp("snapshots")
    snapshots = Snapshots(folder, keep=2)
    for step in (1, 2):
        snapshots.save(step, ARRAYS, FACTS)
    path = folder / "step-000000002.safetensors"
    return snapshots, path, path.read_bytes()


@settings(max_examples=200)
@given(data=st.data())
def test_what_the_disk_changed_is_passed_over(two: tuple[Snapshots, Path, bytes], data: st.DataObject) -> None:
    snapshots, path, whole = two
    content = bytearray(whole)
    at = data.draw(st.integers(0, len(content) - 1))
    if data.draw(st.booleans()):
        del content[at:]
    else:
        content[at] ^= 1 << data.draw(st.integers(0, 7))
    path.write_bytes(content)
    found = snapshots.load_latest(anything)
    assert found is not None
    assert found.facts == FACTS
    assert same(found.arrays, ARRAYS)
    assert path.exists() == (found.step == 2)


def test_drafts_of_a_crash_are_removed(tmp_path: Path) -> None:
    for name in ("step-000000001.safetensors.draft", ".tmpA1b2C3"):  # ours, and what safetensors makes beside it
        (tmp_path / name).write_bytes(b"half")
    Snapshots(tmp_path, keep=1)
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_leaves_the_snapshot_before(small_disk: Path) -> None:
    snapshots = Snapshots(small_disk / "snapshots", keep=1)
    snapshots.save(1, ARRAYS, FACTS)
    with pytest.raises(DiskFullError, match="no space to write the snapshot"):
        snapshots.save(2, {"large": np.zeros(1 << 20)}, FACTS)
    fill(small_disk)
    with pytest.raises(DiskFullError):
        snapshots.save(3, {"small": np.zeros(1 << 12)}, FACTS)
    assert [file.name for file in (small_disk / "snapshots").iterdir()] == ["step-000000001.safetensors"]
    assert snapshots.load_latest(anything) is not None


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(JournalError, match="cannot open the snapshots"):
        Snapshots(tmp_path / "file" / "snapshots", keep=1)
