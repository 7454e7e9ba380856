"""The event log writes every line, keeps within its room, and ends alone."""

import json
import threading

import pytest

from seedflood.operations import eventlog
from seedflood.operations.eventlog import EventLog, Line, event_files, read_lines

ORIGIN = "0123456789abcdef"


@pytest.fixture
def make_log(tmp_path):
    made = []

    def make(bytes_max=1_000_000):
        made.append(
            EventLog(
                tmp_path,
                node="a",
                run="r",
                bytes_max=bytes_max,
                names=lambda: {ORIGIN: "ada"},
            )
        )
        return made[-1]

    yield make
    for log in made:
        log.close()


def line(number, **facts):
    return Line(float(number), "tick", "info", {"number": number, **facts})


def lines_in(folder):
    return [json.loads(one) for one in read_lines(event_files(folder))]


def test_every_line_is_written_in_order_with_time_node_and_run(tmp_path, make_log):
    log = make_log()
    for number in range(5):
        log.write(line(number))
    log.close()
    head, *told = lines_in(tmp_path)
    assert (head["event"], head["names"]) == ("members", {ORIGIN: "ada"})
    assert [one["number"] for one in told] == list(range(5))
    assert told[3] == {
        "time": "1970-01-01T00:00:03.000000Z", "event": "tick", "level": "info", "node": "a", "run": "r", "number": 3
    }  # fmt: skip


def test_what_was_told_before_a_flush_is_in_the_file_after_it(tmp_path, make_log):
    log = make_log()
    for number in range(3):
        log.write(line(number))
        assert log.flush().wait(60)
        assert lines_in(tmp_path)[-1]["number"] == number
    log.close()
    assert log.flush().wait(60)


def test_costly_facts_are_spelled_by_the_writer(tmp_path, make_log):
    log = make_log()
    log.write(Line(0, "tick", "info", lambda: {"number": 7}))
    log.close()
    assert lines_in(tmp_path)[-1]["number"] == 7


def test_old_files_go_when_the_room_is_full_and_each_begins_with_the_names(tmp_path, make_log):
    log = make_log(bytes_max=8000)
    for number in range(200):
        log.write(line(number))
    log.close()
    files = event_files(tmp_path)
    assert [path.name for path in files] == [
        "events.3.jsonl", "events.2.jsonl", "events.1.jsonl", "events.jsonl"
    ]  # fmt: skip
    assert sum(path.stat().st_size for path in files) <= 8000
    assert all(json.loads(path.read_bytes().splitlines()[0])["event"] == "members" for path in files)
    numbers = [one["number"] for one in lines_in(tmp_path) if one["event"] == "tick"]
    assert numbers == list(range(numbers[0], 200))
    assert numbers[0] > 0


def test_a_line_that_a_crash_has_cut_spoils_no_other(tmp_path, make_log):
    (tmp_path / "events.jsonl").write_bytes(b'{"event":"whole"}\n{"event":"cu')
    log = make_log()
    log.write(line(1))
    log.close()
    decoded = [eventlog.decode(one) for one in read_lines(event_files(tmp_path))]
    assert [one["event"] for one in decoded if one is not None] == ["whole", "members", "tick"]


def test_on_a_full_disk_lines_are_lost_with_one_warning_and_the_log_goes_on_once_there_is_space(
    tmp_path, monkeypatch, make_log, caplog
):
    monkeypatch.setattr(eventlog, "RETRY_SECONDS", 0.0)
    place = tmp_path / "events.jsonl"
    place.symlink_to("/dev/full")
    log = make_log()
    for number in range(3):
        log.write(line(number))
    assert log.flush().wait(60)
    place.unlink()
    place.write_bytes(b'{"event":"cu')
    for number in range(3, 5):
        log.write(line(number))
    log.close()
    warnings = [record.msg for record in caplog.records]
    assert [(one["event"], one.get("reason"), one.get("lines_lost")) for one in warnings] == [
        (eventlog.BROKEN, "No space left on device", None), ("the event log goes on", None, 3)
    ]  # fmt: skip
    assert log.lost == 3
    half, head, gap, *told = [eventlog.decode(one) for one in read_lines(event_files(tmp_path))]
    assert (half, head["event"], gap["level"], gap["lines_lost"]) == (None, "members", "warning", 3)
    assert [one["number"] for one in told] == [3, 4]


def test_a_broken_disk_is_not_tried_again_with_every_line(tmp_path, monkeypatch, make_log):
    monkeypatch.setattr(eventlog, "RETRY_SECONDS", 1e9)
    (tmp_path / "events.jsonl").symlink_to("/dev/full")
    log = make_log()
    for number in range(3):
        log.write(line(number))
        assert log.flush().wait(60)
        (tmp_path / "events.jsonl").unlink(missing_ok=True)
    assert log.lost == 3
    assert not event_files(tmp_path)


def test_more_than_may_wait_is_lost_counted_and_told(tmp_path, monkeypatch, make_log):
    monkeypatch.setattr(eventlog, "WAITING_MAX", 10)
    is_asked, may_go = threading.Event(), threading.Event()

    def hang():
        is_asked.set()
        may_go.wait(60)
        return {}

    log = make_log()
    log.write(Line(0.0, "slow", "info", hang))
    assert is_asked.wait(60)
    for number in range(15):
        log.write(line(number))
    assert log.lost == 5
    may_go.set()
    log.close()
    _, slow, gap, *told = lines_in(tmp_path)
    assert (slow["event"], gap["event"], gap["lines_lost"]) == ("slow", eventlog.LACKS, 5)
    assert [one["number"] for one in told] == list(range(10))


def test_a_disk_that_hangs_holds_up_neither_who_writes_nor_the_end(tmp_path, monkeypatch, make_log):
    monkeypatch.setattr(eventlog, "CLOSE_SECONDS", 0.01)
    may_go = threading.Event()
    log = make_log()
    log.write(Line(0.0, "slow", "info", lambda: {"hung": not may_go.wait(60)}))
    for number in range(100):
        log.write(line(number))
    log.close()
    log.write(line(100))
    assert log.lost == 1, "what comes after the end"
    may_go.set()


def test_only_the_owner_may_read_it(tmp_path, make_log):
    log = make_log()
    log.write(line(1))
    log.close()
    assert (tmp_path / "events.jsonl").stat().st_mode & 0o777 == 0o600
