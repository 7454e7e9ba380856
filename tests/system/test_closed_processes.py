"""A closed run of processes: a host is removed by a file and SIGHUP, while it trains."""

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


def start_and_remove_the_last(hosts, folder):
    """Three linked hosts that train, of which the operator removes the last one."""
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

    write_roster(a.folder / "roster.json", SignedRoster.sign(operator, "run", roster.removing(["h2"])))
    a.signal(signal.SIGHUP)
    assert a.wait_for("roster")["serial"] == 2
    return a, b, c


def test_a_host_is_removed_by_a_new_roster_and_sighup_and_stays_out_after_kill_9(hosts, tmp_path):
    a, b, c = start_and_remove_the_last(hosts, tmp_path)
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


def test_a_removed_host_is_cut_off_by_the_operators_command_and_sighup(hosts, tmp_path):
    a, b, c = start_and_remove_the_last(hosts, tmp_path)
    assert c.end() == ExitCode.REFUSED
    assert b.wait_for("roster")["serial"] == 2

    def removal(host):
        (found,) = node_in(host.folder / "state").ask("/api/status")["roster"]["removals"]
        return found

    cut = ["roster", "cut", str(a.folder / "roster.json"), "h2", "--key", str(tmp_path / "operator.key"), "--yes"]
    cut += ["--node", node_in(a.folder / "state").address]
    while (ended := run_command(*cut)).returncode == ExitCode.TRY_AGAIN:  # they repair what one of them lacks
        assert "do not hold the same of h2" in ended.stderr
        a.wait_for("progress")
    assert ended.returncode == 0, ended.stderr
    assert "Held alike by: h0, h1." in ended.stdout
    held = removal(a)["held"]
    a.signal(signal.SIGHUP)
    for host in (a, b):
        assert host.wait_for("steps cut off", member="h2")
        assert (removal(host)["state"], removal(host)["held"]) == ("settled", held)
    address = node_in(b.folder / "state").address
    assert "h2: cut off, and settled here" in run_command("peers", "--node", address).stdout
    assert "a cut is final" in " ".join(run_command(*cut).stderr.split())
    path, operator = a.folder / "roster.json", Identity.load(tmp_path / "operator.key")
    write_roster(path, SignedRoster.sign(operator, "run", read_roster(path).roster.removing(["h1"])))
    assert "knows roster 3, and this file is roster 4" in " ".join(run_command(*cut).stderr.split())
