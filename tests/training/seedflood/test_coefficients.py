"""What the coefficients of epochs are does not depend on where they are: in memory or in the file."""

import errno

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from reference import some_updates, tiny_base, tiny_settings

from seedflood.errors import JournalError
from seedflood.training.seedflood import shelf
from seedflood.training.seedflood.coefficients import KEPT_EPOCHS, EpochCoefficients
from seedflood.training.seedflood.replica import Replica
from seedflood.training.seedflood.subspace import Slot, Subspace

pytestmark = pytest.mark.usefixtures("drawn_once")

SUBSPACE = Subspace([Slot("w", (5, 3)), Slot("b", (5,))], run_seed=1, rank=3)
MANY = KEPT_EPOCHS + 4


def number(value):
    """Coefficients that tell one number."""
    return torch.full((SUBSPACE.numbers,), value, dtype=torch.int64)


def filled(folder, epochs=MANY):
    """Epoch k holds k + 1."""
    coefficients = EpochCoefficients(SUBSPACE, folder)
    for epoch in range(epochs):
        coefficients.add(epoch, number(epoch + 1))
    return coefficients


@given(changes=st.lists(st.tuples(st.integers(0, 30), st.integers(-3, 3), st.booleans()), max_size=80))
def test_they_are_what_was_added_wherever_they_are(changes):
    coefficients, expected = EpochCoefficients(SUBSPACE, None), {}
    for epoch, value, is_digested in changes:
        coefficients.add(epoch, number(value))
        expected[epoch] = expected.get(epoch, 0) + value
        if is_digested:
            list(coefficients.digests())
    digests = [(epoch, SUBSPACE.digest(number(value))) for epoch, value in sorted(expected.items()) if value]
    assert list(coefficients.digests()) == digests
    assert list(coefficients) == sorted(expected)
    assert all(torch.equal(coefficients[epoch], number(expected.get(epoch, 0))) for epoch in range(32))
    assert list(coefficients.digests()) == digests


def test_old_epochs_leave_memory_and_nothing_is_left_in_the_folder(tmp_path):
    coefficients = filled(tmp_path)
    assert len(coefficients._kept) == KEPT_EPOCHS
    assert list(tmp_path.iterdir()) == []


def test_a_digest_reads_nothing_back(tmp_path):
    coefficients = filled(tmp_path)
    coefficients._shelf._file.truncate(0)
    assert len(list(coefficients.digests())) == MANY


def test_what_was_only_read_back_is_not_written_again(tmp_path):
    coefficients = filled(tmp_path)
    for _ in range(3):
        assert all(torch.equal(coefficients[epoch], number(epoch + 1)) for epoch in range(MANY))
    assert coefficients._shelf._end == sum(place.size for place in coefficients._places.values())
    assert len(coefficients._places) == MANY


def spoil(file):
    file.seek(10)
    file.write(b"\xff")


def cut(file):
    file.truncate(10)


def swap(file):
    """A whole sum, and another one."""
    file.seek(0)
    file.write(SUBSPACE.pack(number(9)))


@pytest.mark.parametrize("damage", [spoil, cut, swap])
def test_what_the_disk_has_changed_is_told_and_not_used(tmp_path, damage):
    coefficients = filled(tmp_path)
    before = list(coefficients.digests())
    damage(coefficients._shelf._file)
    with pytest.raises(JournalError, match="start the node again"):
        coefficients.add(0, number(1))
    assert list(coefficients.digests()) == before


class FullDisk:
    """Takes so many bytes."""

    def __init__(self, file, space):
        self.file, self.space = file, space
        self.seek, self.read, self.close = file.seek, file.read, file.close

    def write(self, data):
        if self.space == 0:
            raise OSError(errno.ENOSPC, "no space")
        written = self.file.write(data[: self.space])
        self.space -= written
        return written


def test_while_the_disk_is_full_everything_stays_in_memory(tmp_path, monkeypatch):
    open_file, disks = shelf.tempfile.TemporaryFile, []

    def open_full(**options):
        disks.append(FullDisk(open_file(**options), len(SUBSPACE.pack(number(1))) + 5))
        return disks[-1]

    monkeypatch.setattr(shelf.tempfile, "TemporaryFile", open_full)
    coefficients = filled(tmp_path)
    assert len(coefficients._kept) == MANY - 1
    disks[0].space = 1 << 20
    coefficients.add(MANY, number(MANY + 1))
    assert len(coefficients._kept) == KEPT_EPOCHS
    assert all(torch.equal(coefficients[epoch], number(epoch + 1)) for epoch in range(MANY + 1))


def test_without_a_folder_to_write_to_everything_stays_in_memory(tmp_path):
    coefficients = filled(tmp_path / "nothing")
    assert len(coefficients._kept) == MANY


def test_a_late_update_of_an_epoch_on_the_disk_counts_like_any_other(tmp_path):
    updates = some_updates(200, steps=400)
    late, early = Replica(tiny_base(), tiny_settings(), tmp_path), Replica(tiny_base(), tiny_settings())
    early.apply(updates)
    late.apply(updates[1::2])
    late.open_epoch(40)
    late.apply(updates[::2])
    early.open_epoch(40)
    assert late.digest() == early.digest()
    expected = early.weights()
    for name, weight in late.weights().items():
        torch.testing.assert_close(weight, expected[name], rtol=0, atol=1e-4)
