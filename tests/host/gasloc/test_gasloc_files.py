"""Files of what hosts exchange: what comes in goes on where it stopped, and what is kept is what was kept."""

import hashlib

import numpy as np
import pytest

from seedflood.errors import JournalError
from seedflood.host.gasloc.files import FileContent, Incoming, KeptParts, digest_of

DIGEST = bytes(range(32))


def test_a_content_goes_on_in_another_life_where_it_stopped(tmp_path):
    sink = Incoming(tmp_path).open(DIGEST, 10)
    sink.write(b"abc")
    sink.write(memoryview(b"de"))
    del sink
    again = Incoming(tmp_path).open(DIGEST, 10)
    assert again.held == 5
    again.write(b"fghij")
    assert again.path.read_bytes() == b"abcdefghij"


def test_what_is_longer_than_was_offered_begins_anew(tmp_path):
    Incoming(tmp_path).open(DIGEST, 10).write(b"abcde")
    assert Incoming(tmp_path).open(DIGEST, 4).held == 0


def test_two_partners_that_offer_the_same_bytes_write_two_files(tmp_path):
    incoming = Incoming(tmp_path)
    one, other = incoming.open(DIGEST, 4), incoming.open(DIGEST, 4)
    one.write(b"ab")
    other.write(b"abcd")
    assert (one.path.read_bytes(), other.path.read_bytes()) == (b"ab", b"abcd")
    assert sorted(incoming.all()) == sorted([one.path, other.path])


def test_a_file_that_cannot_be_written_is_a_fault_of_the_disk(tmp_path):
    sink = Incoming(tmp_path / "incoming").open(DIGEST, 4)
    (tmp_path / "incoming").rmdir()
    with pytest.raises(JournalError):
        sink.write(b"ab")
    assert sink.held == 0


def filled(difference):
    difference[:] = np.arange(len(difference))


def test_what_is_kept_is_found_again_until_it_is_dropped(tmp_path):
    parts = KeptParts(tmp_path)
    parts.keep(3, 7, 5, filled)
    again = KeptParts(tmp_path)
    assert again.load(3, 7, 5).tolist() == [0, 1, 2, 3, 4]
    assert again.load(3, 8, 5) is None
    assert again.load(3, 7, 6) is None
    again.drop(3, 7)
    again.drop(3, 7)
    assert again.load(3, 7, 5) is None


def test_what_the_disk_has_changed_is_not_used(tmp_path):
    parts = KeptParts(tmp_path)
    parts.keep(3, 7, 5, filled)
    (path,) = tmp_path.iterdir()
    data = bytearray(path.read_bytes())
    data[4] ^= 1
    path.write_bytes(data)
    assert parts.load(3, 7, 5) is None


def test_parts_that_nobody_needs_are_cleared_away(tmp_path):
    parts = KeptParts(tmp_path)
    for partner in (7, 8, 9):
        parts.keep(3, partner, 5, filled)
    parts.drop_others([(3, 8), (2, 7)])
    assert [parts.load(3, partner, 5) is not None for partner in (7, 8, 9)] == [False, True, False]


def test_a_file_is_sent_as_it_was_when_it_was_opened(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"0123456789")
    content = FileContent(path)
    path.unlink()
    path.write_bytes(b"other")
    assert (content.size, bytes(content.read(3, 4))) == (10, b"3456")
    assert content.digest == hashlib.sha256(b"0123456789").digest()
    assert digest_of(path) == hashlib.sha256(b"other").digest()
