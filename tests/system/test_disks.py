"""Disks that are full, damaged or lost."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ledgers import check_replays, finish
from processes import Host, Hosts, ring

from fullness import fill
from seedflood.host.places import KEY_FILE

pytestmark = [pytest.mark.system, pytest.mark.timeout(900)]

PATH = [(0, 1), (1, 2)]
Spoil = Callable[[Path], None]
RUN = {"steps": 160, "refresh_period": 24, "window": "strict"}
GRADIENT = {"estimate": "gradient", "steps": 120, "refresh_period": 16, "window": "strict"}
"""By Adam, in strict windows."""


@pytest.mark.long
def test_a_node_with_a_full_disk_relays_until_it_has_space_again(hosts: Hosts, small_disk: Path):
    a, b, c = made = hosts.make(3, PATH, {"steps": 800, "window": "bounded"})
    b.move_state(small_disk)
    for host in made:
        host.start()
    b.wait_for("progress", step=20)
    downs = count_downs(a)
    filler = fill(small_disk)
    assert b.wait_for("disk full")["publishing"] is False
    assert a.wait_for("member silent")["member"] == b.name
    for end in (a, c):
        end.listen()
        for _ in range(50):
            end.wait_for("progress", received=2)  # itself and the other end
    filler.unlink()
    b.wait_for("disk has space again")
    assert a.wait_for("member is back")["member"] == b.name
    assert count_downs(a) == downs
    results = finish(made)
    assert {result["updates"] for result in results} == {3 * 800}
    check_replays(made)


@pytest.mark.long
def test_under_gradients_all_wait_for_a_node_with_a_full_disk_and_lose_nothing(hosts: Hosts, small_disk: Path):
    a, b, c = made = hosts.make(3, PATH, GRADIENT)
    b.move_state(small_disk)
    for host in made:
        host.start()
    b.wait_for("progress", step=40)  # epochs have been closed before
    filler = fill(small_disk)
    assert b.wait_for("disk full")["publishing"] is False
    for end in (a, c):
        end.listen()
        assert end.wait_for("waiting")["waiting_for"] == [b.name]
    filler.unlink()
    b.wait_for("disk has space again")
    results = finish(made)
    assert {result["updates"] for result in results} == {3 * GRADIENT["steps"]}
    check_replays(made)


def count_downs(host: Host) -> int:
    """At the start both ends of a link may dial, and one of the two links gives way."""
    return sum(line.get("event") == "link down" for line in host.events)


def cut_the_log(journal: Path) -> None:
    """The log file ends in the middle of a page, long before it should: to sqlite that looks like a power failure."""
    log = journal.with_name(journal.name + "-wal")
    os.truncate(log, log.stat().st_size * 2 // 3 + 100)


def flip_bits(journal: Path) -> None:
    """In several places of the journal and of its log."""
    log = journal.with_name(journal.name + "-wal")
    for path in (journal, log):
        content = bytearray(path.read_bytes())
        for place in range(len(content) // 5, len(content), max(1, len(content) // 5)):
            content[place] ^= 0x10
        path.write_bytes(content)


def empty(journal: Path) -> None:
    os.truncate(journal, 0)


def tear_the_log(journal: Path) -> None:
    """A power failure amid groups that nobody had forced: one of them is there, and what came before it is not."""
    log = journal.with_name(journal.name + "-wal")
    with log.open("r+b") as file:
        content = file.read()
        frame = 24 + 4096
        end = (len(content) - 32) // frame * frame + 32
        ends = [at for at in range(32, end, frame) if content[at + 4 : at + 8] != bytes(4)]  # of groups
        file.truncate(end)
        file.seek(end)
        file.write(content[ends[-1] : ends[-1] + frame])


def lose(journal: Path) -> None:
    """Everything but the key."""
    key = (journal.parent / KEY_FILE).read_bytes()
    shutil.rmtree(journal.parent)
    journal.parent.mkdir(mode=0o700)
    (journal.parent / KEY_FILE).touch(mode=0o600)
    (journal.parent / KEY_FILE).write_bytes(key)


@pytest.mark.long
def test_a_node_with_a_damaged_journal_says_so_and_gets_it_back(hosts: Hosts):
    b = run_with_spoiled(hosts, empty)
    damage = [line for line in b.events if str(line.get("event")).startswith("the journal was damaged")]
    assert len(damage) == 1
    assert Path(damage[0]["kept_at"]).exists()


@pytest.mark.long
@pytest.mark.parametrize(("spoil", "run"), [(cut_the_log, RUN), (flip_bits, RUN), (lose, GRADIENT)])
def test_a_node_that_forgot_unknowingly_gets_it_back_and_contradicts_nothing(
    hosts: Hosts, spoil: Spoil, run: dict[str, Any]
):
    b = run_with_spoiled(hosts, spoil, run)
    assert not any("equivocation" in str(line) for host in hosts.hosts for line in host.events)
    assert not b.has_said("another host speaks with our key")
    assert b.has_said("the journal lacks a past life of this node") or spoil is not lose


def test_a_power_failure_of_all_that_tears_every_log_loses_nothing_that_was_forced(hosts: Hosts):
    made = hosts.make(3, ring(3), RUN)
    for host in made:
        host.start()
    made[1].wait_for("progress", step=RUN["steps"] // 3)
    for host in made:
        host.kill()
    for host in made:
        tear_the_log(host.journal)
        host.start()
    for host in made:
        host.wait_for("caught up")
    results = finish(made)
    assert {result["updates"] for result in results} == {3 * RUN["steps"]}
    assert [one.is_sound for one in check_replays(made)] == [True] * 3


def run_with_spoiled(hosts: Hosts, spoil: Spoil, run: dict[str, Any] = RUN) -> Host:
    """Kills host 1 of 3 in the middle of a run, spoils its disk, and starts it again; all is well in the end."""
    a, b, c = made = hosts.make(3, ring(3), run)
    for host in made:
        host.start()
    b.wait_for("journal compacted")
    b.wait_for("progress", step=run["refresh_period"] * 11 // 4)
    b.kill()
    spoil(b.journal)
    b.start().wait_for("caught up")
    results = finish(made)
    assert {result["updates"] for result in results} == {3 * run["steps"]}
    assert [one.is_sound for one in check_replays((a, c))] == [True, True]
    assert check_replays([b])
    return b
