"""Closed runs of processes: a host is removed while it trains, by one command, or by a file and SIGHUP."""

import signal

import pytest
from forks import run_command

from seedflood.errors import ExitCode
from seedflood.host.places import KEY_FILE, ROSTER_FILE
from seedflood.identity import Identity
from seedflood.operations.client import node_in
from seedflood.protocol.swarm.roster import Entry, Roster
from seedflood.roster_file import SignedRoster, read_roster, write_roster

pytestmark = [pytest.mark.system]


def start(hosts, folder):
    """Three linked hosts that train in a closed run, and the operator's key."""
    operator = Identity.load_or_create(folder / "operator.key")
    run = {"steps": 100_000, "window": "bounded", "operator": operator.public_key.hex()}
    a, b, c = hosts.make(3, [(0, 1), (1, 2), (0, 2)], run, {"roster": "roster.json"})
    keys = [Identity.load_or_create(host.folder / "state" / KEY_FILE).public_key for host in (a, b, c)]
    roster = Roster(1, tuple(Entry(f"h{k}", key) for k, key in enumerate(keys)))
    for host in (a, b, c):
        write_roster(host.folder / "roster.json", SignedRoster.sign(operator, "run", roster))
    for host in (a, b, c):
        host.start()
    c.wait_for("progress", step=5)
    return (a, b, c), operator, roster


def test_a_host_is_removed_by_a_new_roster_and_sighup_and_stays_out_after_kill_9(hosts, tmp_path):
    (a, b, c), operator, roster = start(hosts, tmp_path)
    write_roster(a.folder / "roster.json", SignedRoster.sign(operator, "run", roster.removing(["h2"])))
    a.signal(signal.SIGHUP)
    assert a.wait_for("roster")["serial"] == 2
    assert c.end() == ExitCode.REFUSED
    assert "the operator has removed this host from the run" in c.last_words
    assert b.wait_for("roster")["serial"] == 2
    assert read_roster(b.folder / "state" / ROSTER_FILE).roster.serial == 2

    b.kill()
    b.start()  # its own file is still the first one
    assert b.wait_for("started")["roster"] == 2
    b.wait_for("replica agrees")
    step = a.step
    a.wait_for("progress", step=step + 5)
    c.start()
    assert c.end() == ExitCode.CONFIG
    assert "the operator has removed this host, h2, from the roster (serial 2)" in c.last_words

    (a.folder / "roster.json").write_text("{}")
    a.signal(signal.SIGHUP)
    assert 'has no "seedflood_roster"' in a.wait_for("not reloaded")["reason"]


def test_one_command_removes_a_host_everywhere_and_says_what_counts_of_it(hosts, tmp_path):
    (a, b, c), _, _ = start(hosts, tmp_path)
    file = tmp_path / "roster.json"
    file.write_text((a.folder / "roster.json").read_text())
    address = node_in(a.folder / "state").address
    remove = ["roster", "remove", str(file), "h2", "--key", str(tmp_path / "operator.key"), "--node", address]

    ended = run_command(*remove, "--yes")
    assert ended.returncode == 0, ended.stderr
    assert "Held alike by: h0, h1." in ended.stdout
    assert c.end() == ExitCode.REFUSED
    for host in (a, b):
        assert host.wait_for("steps cut off", member="h2")
        (removal,) = node_in(host.folder / "state").ask("/api/status")["roster"]["removals"]
        assert removal["state"] == "settled"
        assert read_roster(host.folder / "state" / ROSTER_FILE) == read_roster(file)
    assert "h2: cut off, and settled here" in run_command("peers", "--node", address).stdout

    ended = run_command(*remove, "--yes")
    assert (ended.returncode, "both are final" in ended.stderr) == (ExitCode.USAGE, True)


def test_a_removal_without_a_node_is_finished_by_naming_one(hosts, tmp_path):
    (a, b, c), operator, roster = start(hosts, tmp_path)
    file = tmp_path / "roster.json"
    write_roster(file, SignedRoster.sign(operator, "run", roster))
    remove = ["roster", "remove", str(file), "h2", "--key", str(tmp_path / "operator.key"), "--yes"]
    ended = run_command(*remove)
    assert (ended.returncode, "Copy the file to one host" in ended.stdout) == (0, True)
    ended = run_command(*remove)
    assert (ended.returncode, "say --node HOST:PORT" in " ".join(ended.stderr.split())) == (ExitCode.USAGE, True)
    ended = run_command(*remove, "--node", node_in(b.folder / "state").address)
    assert ended.returncode == 0, ended.stderr
    assert c.end() == ExitCode.REFUSED
    assert a.wait_for("steps cut off", member="h2")

    known = read_roster(file)
    write_roster(file, SignedRoster.sign(operator, "run", roster))  # an old copy
    ended = run_command(*remove, "--node", node_in(b.folder / "state").address)
    assert (ended.returncode, f"knows roster {known.roster.serial}" in ended.stderr) == (ExitCode.USAGE, True)
