"""`seedflood roster`: an operator makes a list, changes it, and is told in a sentence what it cannot do."""

import io
import json
import os
from pathlib import Path

import pytest

from seedflood import cli
from seedflood.cli import rosters
from seedflood.errors import ExitCode
from seedflood.identity import Identity
from seedflood.protocol.origin import fingerprint
from seedflood.protocol.swarm.roster import HOLES_MAX, Cut, Roster
from seedflood.roster_file import SignedRoster, read_roster, write_roster


class Desk:
    """Where the operator works."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self.file = folder / "roster.json"
        self.key = folder / "operator.key"
        self.operator = Identity.load_or_create(self.key)
        self._monkeypatch = monkeypatch
        self._capsys = capsys

    def run(self, command: str, *arguments: str) -> tuple[int, str, str]:
        """(exit code, stdout, stderr)"""
        self._monkeypatch.setattr("sys.argv", ["seedflood", "roster", command, str(self.file), *arguments])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        told = self._capsys.readouterr()
        return int(ended.value.code or 0), told.out, " ".join(told.err.split())

    def sign(self, command: str, *arguments: str) -> tuple[int, str, str]:
        return self.run(command, *arguments, "--key", str(self.key))


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Desk:
    return Desk(tmp_path, monkeypatch, capsys)


KEYS = [Identity.generate().public_key.hex() for _ in range(3)]


def test_an_operator_makes_a_roster_shows_it_and_removes_a_host(desk: Desk) -> None:
    code, out, _ = desk.sign("add", "alpha", KEYS[0], "--run", "two")
    assert (code, "alpha is on the roster, serial 2" in out) == (0, True)
    code, out, _ = desk.sign("add", "beta", KEYS[1], "--role", "relay", "--role", "read", "--until", "2001-02-03")
    assert (code, "beta is on the roster, but its time is over" in out) == (0, True)
    code, out, _ = desk.run("show", "--json")
    shown = json.loads(out)
    assert (shown["operator"], shown["run"], shown["serial"]) == (desk.operator.public_key.hex(), "two", 3)
    assert [(one["name"], one["state"], one["roles"], one["until"]) for one in shown["entries"]] == [
        ("alpha", "valid", "train", None),
        ("beta", "over", "relay, read", "2001-02-03T00:00:00Z"),
    ]
    code, out, _ = desk.sign("remove", "alpha", "--yes")
    assert code == 0
    assert "alpha (origin " in out
    assert "Hosts left: 1." in out
    code, out, _ = desk.run("show")
    assert "removed" in out


def test_who_was_cut_off_is_shown_with_the_steps_that_do_not_count(desk: Desk) -> None:
    for name, key in zip(("alpha", "beta"), KEYS, strict=False):
        desk.sign("add", name, key)
    desk.sign("remove", "alpha", "--yes")
    cut = Cut.keeping([(0, 4), (7, 9)], 0, bytes(32))
    write_roster(
        desk.file, SignedRoster.sign(desk.operator, "run", read_roster(desk.file).roster.cutting("alpha", cut))
    )
    _, out, _ = desk.run("show", "--json")
    shown = [(one["name"], one["state"], one["holes"]) for one in json.loads(out)["entries"]]
    assert shown == [("alpha", "cut off", "5-6, from 10 on"), ("beta", "valid", None)]


def test_what_is_signed_stays_if_no_node_answers(desk: Desk) -> None:
    desk.sign("add", "alpha", KEYS[0])
    code, _, err = desk.sign("remove", "alpha", "--node", "127.0.0.1:1", "--yes")
    assert (code, "no node answers at 127.0.0.1:1" in err) == (ExitCode.TRY_AGAIN, True)
    (entry,) = read_roster(desk.file).roster.entries
    assert (entry.is_removed, entry.cut) == (True, None)
    code, _, err = desk.sign("remove", "alpha", "--yes")
    assert (code, "say --node HOST:PORT to sign which of its updates count" in err) == (ExitCode.USAGE, True)


class Node:
    """Answers as a node that takes every roster. removals: what it shows of removed hosts."""

    address = "127.0.0.1:7071"

    def __init__(self, *removals: dict[str, object]) -> None:
        self.removals = removals

    def send(self, _: str, body: bytes) -> dict[str, object]:
        return {"serial": json.loads(body)["serial"]}

    def ask(self, _: str) -> dict[str, object]:
        return {"node": {"name": "beta"}, "roster": {"removals": self.removals}}


def removal(desk: Desk, held: list[list[int]], others: list[str]) -> dict[str, object]:
    (entry,) = read_roster(desk.file).roster.entries
    facts = {"origin": fingerprint(entry.origin), "held": held, "since": 0, "content": bytes(32).hex()}
    return {**facts, "same": [], "others": others, "unreached": []}


def test_what_cannot_be_signed_of_a_removed_host_is_one_sentence(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rosters, "SETTLE_SECONDS", 0.0)
    desk.sign("add", "alpha", KEYS[0])
    with_holes = [[step, step] for step in range(0, 4 * HOLES_MAX, 2)]
    for node, code, sentence in (
        (Node(removal(desk, [[0, 4]], ["gamma"])), ExitCode.TRY_AGAIN, "gamma and beta do not hold the same of it yet"),
        (Node(removal(desk, with_holes, [])), ExitCode.USAGE, f"its cuts have more than {HOLES_MAX} holes."),
    ):
        monkeypatch.setattr(rosters, "node_at", lambda _, node=node: node)
        ended, _, err = desk.sign("remove", "alpha", "--node", Node.address, "--yes")
        assert (ended, sentence in err) == (code, True), err


def test_hosts_that_keep_no_updates_of_others_have_nothing_to_sign(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    desk.sign("add", "alpha", KEYS[0])
    monkeypatch.setattr(rosters, "node_at", lambda _: Node())
    code, out, _ = desk.sign("remove", "alpha", "--node", Node.address, "--yes")
    assert (code, "nothing of alpha has to be signed" in out) == (0, True)


def test_a_removal_is_asked_about_first(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    desk.sign("add", "alpha", KEYS[0])
    before = desk.file.read_text()
    for answer, ended, sentence in (("n\n", 1, "Aborted"), ("", ExitCode.USAGE, "nobody has answered: say --yes")):
        monkeypatch.setattr("sys.stdin", io.StringIO(answer))
        code, out, err = desk.sign("remove", "alpha")
        assert (code, sentence in err) == (ended, True), err
        assert "its key never returns" in " ".join(out.split())
        assert desk.file.read_text() == before


def test_what_was_signed_while_somebody_was_asked_is_kept(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    desk.sign("add", "alpha", KEYS[0])
    meanwhile = SignedRoster.sign(desk.operator, "run", Roster(9))
    monkeypatch.setattr("typer.confirm", lambda _: write_roster(desk.file, meanwhile) or True)
    code, _, err = desk.sign("remove", "alpha")
    assert (code, "has changed meanwhile: run this again" in err) == (ExitCode.USAGE, True), err
    assert read_roster(desk.file) == meanwhile


def test_a_key_that_others_can_read_signs_nothing(desk: Desk) -> None:
    os.chmod(desk.key, 0o644)
    code, _, err = desk.sign("add", "alpha", KEYS[0])
    assert (code, "can be read by others (mode 0644); run: chmod 600" in err) == (ExitCode.CONFIG, True)
    assert not desk.file.exists()


def test_every_other_fault_is_one_sentence(desk: Desk, tmp_path: Path) -> None:
    desk.sign("add", "alpha", KEYS[0])
    before = desk.file.read_text()
    for arguments, code, sentence in (
        (("add", "beta", "abc"), ExitCode.USAGE, '"PUBLIC-KEY" must be 64 hex digits.'),
        (("add", "no name", KEYS[1]), ExitCode.USAGE, "is no name"),
        (("add", "alpha", KEYS[1]), ExitCode.USAGE, "two entries have the name alpha."),
        (("add", "beta", KEYS[0]), ExitCode.USAGE, "the key of beta is that of alpha, which is on it."),
        (
            ("add", "beta", KEYS[1], "--role", "king"),
            ExitCode.USAGE,
            '"king" is no role (beta); choose of train, relay, read.',
        ),
        (("add", "beta", KEYS[1], "--until", "soon"), ExitCode.USAGE, '"soon" is no time'),
        (("remove", "beta", "--yes"), ExitCode.USAGE, "beta is not on the roster."),
    ):
        ended, _, err = desk.sign(*arguments)
        assert (ended, sentence in err) == (code, True), err
    assert desk.file.read_text() == before
    other = tmp_path / "other.key"
    Identity.load_or_create(other)
    code, _, err = desk.run("remove", "alpha", "--key", str(other))
    assert (code, "is the roster of another operator" in err) == (ExitCode.CONFIG, True)
    code, _, err = desk.run("add", "beta", KEYS[1], "--key", str(tmp_path / "none.key"))
    assert (code, "none.key does not exist; name the operator's" in err) == (ExitCode.CONFIG, True)


def test_a_host_that_is_named_again_gets_other_roles_and_times(desk: Desk) -> None:
    desk.sign("add", "alpha", KEYS[0], "--until", "2001-02-03")
    assert desk.sign("add", "alpha", KEYS[0], "--from", "2001-02-03", "--until", "2101-02-03")[0] == 0
    (entry,) = read_roster(desk.file).roster.entries
    assert (entry.not_before, entry.not_after) == (981158400, 4136832000)


def test_a_roster_that_its_operator_has_not_signed_is_not_shown(desk: Desk) -> None:
    desk.sign("add", "alpha", KEYS[0])
    desk.file.write_text(desk.file.read_text().replace('"alpha"', '"gamma"'))
    code, _, err = desk.run("show")
    assert (code, "is not signed by its operator" in err) == (ExitCode.CONFIG, True)
