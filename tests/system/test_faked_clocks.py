"""A closed run of processes, of which one has a clock that is decades off for a while (libfaketime)."""

import sys
import time
from pathlib import Path

import pytest
from ledgers import finish

from seedflood.host.places import KEY_FILE
from seedflood.identity import Identity
from seedflood.protocol.swarm.roster import Entry, Roster
from seedflood.roster_file import SignedRoster, write_roster

PLACES = ("usr/lib/*/faketime/libfaketimeMT.so.1", "usr/lib/faketime/libfaketimeMT.so.1")
"""Where Debian's package libfaketime puts it."""

DAY, YEAR = 86_400, 365 * 86_400


def find_faketime() -> str | None:
    return next((str(found) for place in PLACES for found in Path("/").glob(place)), None)


pytestmark = [
    pytest.mark.system,
    pytest.mark.long,
    pytest.mark.timeout(600),
    pytest.mark.skipif(find_faketime() is None, reason="libfaketime is not installed"),
]


def faked(clock: Path) -> tuple[str, ...]:
    """A node whose wall clock is as this file says, from a second after it has changed."""
    program = "from seedflood.cli import node_main; node_main()"
    return (
        *("env", f"LD_PRELOAD={find_faketime()}", f"FAKETIME_TIMESTAMP_FILE={clock}"),
        *("FAKETIME_CACHE_DURATION=1", "FAKETIME_DONT_FAKE_MONOTONIC=1", sys.executable, "-c", program),
    )


@pytest.fixture
def closed(hosts, tmp_path):
    """Two hosts that are on the roster from yesterday for a year; the second one has the clock of the file `clock`."""
    operator = Identity.load_or_create(tmp_path / "operator.key")
    run = {"steps": 60, "window": "strict", "operator": operator.public_key.hex()}
    made = hosts.make(2, [(0, 1)], run, {"roster": "roster.json"})
    now, entries = int(time.time()), []
    for host in made:
        key = Identity.load_or_create(host.folder / "state" / KEY_FILE).public_key
        entries.append(Entry(host.name, key, not_before=now - DAY, not_after=now + YEAR))
    signed = SignedRoster.sign(operator, "run", Roster(1, tuple(entries)))
    for host in made:
        write_roster(host.folder / "roster.json", signed)
    clock = tmp_path / "clock"
    clock.write_text("+0")
    made[1].command = (*faked(clock), "--peers", str(made[1].folder / "peers.toml"))
    return *made, clock


@pytest.mark.parametrize(("jump", "reads"), [("+43y", "206"), ("-10y", "201")])
def test_a_process_whose_clock_is_decades_off_for_a_while_waits_and_ends_the_run_with_the_others(closed, jump, reads):
    a, b, clock = closed
    a.start()
    b.start()
    b.wait_for("progress", step=5)
    clock.write_text(jump)
    told = b.wait_for("waits for its clock")["reason"]
    assert f"this host's clock reads {reads}" in told
    a.wait_for("waiting")
    clock.write_text("+0")
    b.wait_for("goes on: its clock lets it take part")
    one, other = finish([a, b])
    assert one["digest"] == other["digest"]
    assert one["updates"] == 120


@pytest.mark.parametrize("start", ["+43y", "@1970-01-02 00:00:00"])
def test_a_process_that_starts_with_a_wrong_clock_waits_for_the_right_one(closed, start):
    a, b, clock = closed
    clock.write_text(start)
    a.start()
    b.start()
    b.wait_for("waits for its clock")
    assert b.process.poll() is None
    clock.write_text("+0")
    b.wait_for("goes on: its clock lets it take part")
    one, other = finish([a, b])
    assert one["digest"] == other["digest"]


def test_clocks_of_all_that_jump_at_once_end_nobody(closed):
    a, b, clock = closed
    a.command = (*faked(clock), "--peers", str(a.folder / "peers.toml"))
    a.start()
    b.start()
    b.wait_for("progress", step=5)
    clock.write_text("+43y")
    for host in (a, b):
        host.wait_for("waits for its clock")
    clock.write_text("+0")
    for host in (a, b):
        host.wait_for("goes on: its clock lets it take part")
    assert {one["updates"] for one in finish([a, b])} == {120}
