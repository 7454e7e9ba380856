"""Files of what hosts exchange: what comes in goes on where it stopped, and what is kept is what was kept."""

import contextlib
import os
import resource
import signal

import pytest

from seedflood.errors import JournalError
from seedflood.host.gasloc.files import LEFT_MAX, FileContent, Incoming

DIGEST = bytes(range(32))
PEER = 7


def test_a_content_goes_on_where_it_stopped(tmp_path):
    incoming = Incoming(tmp_path)
    sink = incoming.open(PEER, DIGEST, 10)
    sink.write(b"abc")
    sink.write(memoryview(b"de"))
    del sink
    again = incoming.open(PEER, DIGEST, 10)
    assert again.held == 5
    again.write(b"fghij")
    assert again.path.read_bytes() == b"abcdefghij"


def test_what_one_peer_has_sent_is_not_taken_for_what_another_one_offers(tmp_path):
    incoming = Incoming(tmp_path)
    incoming.open(PEER, DIGEST, 10).write(b"garbage")
    assert incoming.open(PEER + 1, DIGEST, 10).held == 0


def test_nothing_outlives_the_process_whose_end_may_have_torn_it(tmp_path):
    incoming = Incoming(tmp_path)
    incoming.open(PEER, DIGEST, 10).write(b"abc")
    again = Incoming(tmp_path)
    assert again.all() == []
    assert again.open(PEER, DIGEST, 10).held == 0


def test_what_is_longer_than_was_offered_begins_anew(tmp_path):
    incoming = Incoming(tmp_path)
    incoming.open(PEER, DIGEST, 10).write(b"abcde")
    assert incoming.open(PEER, DIGEST, 4).held == 0


def test_the_same_bytes_that_are_offered_while_they_are_in_use_get_a_file_of_their_own(tmp_path):
    incoming = Incoming(tmp_path)
    one, other = incoming.open(PEER, DIGEST, 4), incoming.open(PEER, DIGEST, 4)
    one.write(b"ab")
    other.write(b"abcd")
    assert (one.path.read_bytes(), other.path.read_bytes()) == (b"ab", b"abcd")
    assert sorted(incoming.all()) == sorted([one.path, other.path])


def test_parts_of_contents_that_never_end_do_not_fill_the_disk(tmp_path):
    incoming = Incoming(tmp_path)
    used = incoming.open(PEER, DIGEST, 10)
    used.write(b"ab")
    for number in range(20):
        incoming.open(PEER, bytes([number]) * 32, 10).write(b"abc")
    names = {path.name for path in incoming.all()}
    assert used.path.name in names
    assert len(names) <= 1 + LEFT_MAX + 1
    assert incoming.open(PEER, bytes([19]) * 32, 10).held == 3


def test_a_file_that_cannot_be_written_is_a_fault_of_the_disk(tmp_path):
    sink = Incoming(tmp_path / "incoming").open(PEER, DIGEST, 4)
    (tmp_path / "incoming").rmdir()
    with pytest.raises(JournalError):
        sink.write(b"ab")
    assert sink.held == 0


def test_a_write_that_failed_half_way_is_not_taken_for_received(tmp_path):
    incoming = Incoming(tmp_path)
    sink = incoming.open(PEER, DIGEST, 100_000)
    sink.write(b"abc")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
        with pytest.raises(JournalError):
            sink.write(bytes(90_000))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, ignored)
    assert sink.held == sink.path.stat().st_size == 3
    sink.write(b"de")
    assert sink.path.read_bytes() == b"abcde"


def open_files(folder):
    found = []
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # that of the listing itself
            found.append(os.readlink(f"/proc/self/fd/{number}"))
    return [path for path in found if path.startswith(str(folder))]


def test_no_file_stays_open_for_a_content_that_is_whole_or_forgotten(tmp_path):
    incoming = Incoming(tmp_path)
    whole, cut_off = incoming.open(PEER, DIGEST, 3), incoming.open(PEER, bytes(32), 9)
    whole.write(b"abc")
    cut_off.write(b"abc")
    assert open_files(tmp_path) == [str(cut_off.path)]
    del cut_off
    assert open_files(tmp_path) == []


def test_a_file_is_sent_as_it_was_when_it_was_opened(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"0123456789")
    content = FileContent(path, DIGEST)
    path.unlink()
    path.write_bytes(b"other")
    assert (content.size, content.digest, bytes(content.read(3, 4))) == (10, DIGEST, b"3456")
