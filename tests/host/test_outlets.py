"""A reader who stops keeps no writer waiting: what does not fit is dropped and counted."""

import logging
import os
import time

import pytest

from seedflood.host import outlets
from seedflood.host.outlets import LINES_LOST, RESULT_LOST, Outlet


@pytest.fixture
def pipe():
    """(reader, writer) as files, of 4096 bytes."""
    reader, writer = os.pipe()
    with os.fdopen(reader, "rb", buffering=0) as reads, os.fdopen(writer, "w", encoding="utf-8") as writes:
        yield reads, writes


def never(outlet):
    return outlet.finish(time.monotonic() + 60.0)


def test_all_that_is_written_arrives_in_its_order(pipe):
    reads, writes = pipe
    outlet = Outlet(writes, is_log=True)
    for k in range(100):
        print(k, file=outlet, flush=True)
    assert never(outlet)
    assert reads.read(1 << 16).split() == [str(k).encode() for k in range(100)]


def test_a_reader_who_stops_keeps_nobody_waiting_and_hears_how_much_was_dropped(pipe, monkeypatch, caplog):
    monkeypatch.setattr(outlets, "WAITING_BYTES_MAX", 1 << 17)
    reads, writes = pipe
    outlet = Outlet(writes, is_log=True)
    for _ in range(300):  # a pipe holds 64 kB
        outlet.write("x" * 1023 + "\n")
    lost = outlet.lost
    assert 300 - lost <= 128 + 64 + 1
    assert not outlet.finish(0.0)
    taken = 0
    while taken < (300 - lost) << 10:
        taken += len(reads.read(1 << 20))
    assert never(outlet)
    assert outlet.lost == lost
    assert [(one.getMessage(), one.levelno) for one in caplog.records] == [(LINES_LOST, logging.WARNING)]
    assert caplog.records[0].lines_lost == lost


def test_a_result_that_nobody_can_have_is_told_at_once(pipe, caplog):
    reads, writes = pipe
    reads.close()
    outlet = Outlet(writes, is_log=False)
    outlet.write("{}\n")
    assert never(outlet)
    assert outlet.lost == 1
    assert RESULT_LOST in caplog.text


def test_a_log_whose_reader_has_left_is_dropped_in_silence(pipe, caplog):
    reads, writes = pipe
    reads.close()
    outlet = Outlet(writes, is_log=True)
    for _ in range(10):
        outlet.write("line\n")
    assert never(outlet)
    assert outlet.lost == 10
    assert not caplog.records


def test_a_pipe_that_another_process_has_made_non_blocking_loses_nothing(pipe):
    reads, writes = pipe
    os.set_blocking(writes.fileno(), False)
    outlet = Outlet(writes, is_log=True)
    outlet.write("x" * (1 << 20))
    taken = 0
    while taken < 1 << 20:
        taken += len(reads.read(1 << 20))
    assert never(outlet)
    assert outlet.lost == 0


def test_what_the_encoding_of_a_terminal_lacks_is_spelled(tmp_path):
    with (tmp_path / "log").open("w", encoding="ascii") as file:
        outlet = Outlet(file, is_log=True)
        outlet.write("Grüße \ud800")
        assert never(outlet)
    assert (tmp_path / "log").read_text() == "Gr\\xfc\\xdfe \\ud800"
