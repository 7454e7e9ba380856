"""`seedflood continue` makes the folder of the next run, and leaves nothing if it cannot."""

import errno
import json
import os
from pathlib import Path

import pytest

from seedflood import cli, durable, embedded
from seedflood.config import RunSettings, load_settings, spell
from seedflood.errors import ExitCode
from seedflood.host.enrolment import Enrolment
from seedflood.identity import Identity
from seedflood.roster_file import SignedRoster, read_roster, write_roster

RUN = {"name": "first", "model": "embedded", "clients": 2, "steps": 6, "train_examples": 64}
TABLES = {"objective": {"task": "embedded"}, "seedflood": {"estimate": "gradient", "rank": 4}}
GASLOC = {"mode": "gasloc", "steps": 20, "objective": {"task": "lm"}, "gasloc": {"initial": "random", "gamma": 0.5}}
NODE = {"alpha": {"name": "a", "listen": "127.0.0.1:7070", "shard": "1/2", "then": "serve"}, "beta": {}}
PEERS = [{"address": "127.0.0.1:7071"}]


@pytest.fixture
def hosts(tmp_path):
    """The files of two hosts whose run has ended; the second has no [node]."""
    files = [tmp_path / name / "peers.toml" for name in NODE]
    for file, node in zip(files, NODE.values(), strict=True):
        write(file, {**RUN, **TABLES}, node)
        end(file.parent / "seedflood-state")
    return files


def write(file: Path, run, node=None):
    file.parent.mkdir(exist_ok=True)
    tables = {"run": run, **({"node": node} if node else {}), "peers": PEERS}
    file.write_text(spell(tables))


def end(state: Path):
    """What a node leaves when its run has ended, but for its journal."""
    Identity.load_or_create(state / "identity.pem").use()
    (state / "result.json").write_text(json.dumps({"result": {"steps": 6}}))


@pytest.fixture(autouse=True)
def exported(monkeypatch):
    """From which settings a model was made, and where."""
    exported = []

    def export(settings, folder):
        folder.mkdir()
        (folder / "config.json").touch()
        exported.append((settings, folder))

    monkeypatch.setattr("seedflood.offline.exporting.export_model", export)
    return exported


@pytest.fixture
def proceed(monkeypatch, capsys):
    def proceed(*words, command="continue"):
        monkeypatch.setattr("sys.argv", ["seedflood", command, *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        return ended.value.code or 0, capsys.readouterr()

    return proceed


def test_hosts_get_the_same_next_run_which_begins_with_what_the_last_one_ended_with(
    proceed, hosts, exported, tmp_path, monkeypatch
):
    (tmp_path / "more.jsonl").write_text("".join(json.dumps(row) + "\n" for row in embedded.rows("train")[:8]))
    monkeypatch.chdir(tmp_path)
    code, said = proceed(*hosts, "--steps", "9", "--data", "more.jsonl", "--set", "run.seedflood.rank=8")
    assert code == 0, said.err
    before = load_settings(hosts[0])
    first, second = (load_settings(host.parent / "next" / "peers.toml") for host in hosts)
    assert first.run.run_id() == second.run.run_id()
    assert (first.run.name, first.run.model) == ("first", f"run-{before.run.shown_id()}")
    assert (first.run.steps, first.run.objective) == (9, before.run.objective)
    assert (first.run.seedflood.estimate, first.run.seedflood.rank) == ("gradient", 8)
    assert first.node.data == str(tmp_path / "more.jsonl")
    assert first.node.model_path == exported[0][1] == hosts[0].parent / "next" / "model"
    assert said.out.count(f"id {first.run.shown_id()}") == 2
    assert all(f"seedflood-node --peers {host.parent}/next/peers.toml" in said.out for host in hosts)


def test_a_host_keeps_its_key_its_addresses_and_all_that_is_not_of_one_run(proceed, hosts):
    node = NODE["alpha"] | {"export": "out", "model_path": "base", "state": "kept"}
    (hosts[0].parent / "base").mkdir()
    write(hosts[0], {**RUN, **TABLES}, node)
    (hosts[0].parent / "seedflood-state").rename(hosts[0].parent / "kept")
    assert proceed(hosts[0])[0] == 0
    before, following = load_settings(hosts[0]), load_settings(hosts[0].parent / "next" / "peers.toml")
    assert following.peers == before.peers
    for name in ("name", "listen", "shard", "then"):
        assert getattr(following.node, name) == getattr(before.node, name)
    assert following.node.export is None
    keys = [Identity.load_or_create(one.node.state / "identity.pem") for one in (before, following)]
    assert keys[0].public_key == keys[1].public_key
    assert not keys[1].is_fresh, "it may have been used in that run: the folder may be made twice"
    assert os.stat(following.node.state / "identity.pem").st_mode & 0o777 == 0o600


def test_all_hosts_compute_the_model_alike_whatever_they_trained_on(proceed, hosts, exported):
    write(hosts[0], {**RUN, **TABLES}, {"device": "cuda", "dtype": "bfloat16"})
    assert proceed(hosts[0])[0] == 0
    assert (exported[0][0].node.device, exported[0][0].node.dtype) == ("cpu", "float32")
    assert load_settings(hosts[0].parent / "next" / "peers.toml").node.dtype == "bfloat16"


def test_a_run_that_was_continued_is_continued_again(proceed, hosts, tmp_path):
    assert proceed(hosts[0], "--out", tmp_path / "second")[0] == 0
    second = tmp_path / "second" / "peers.toml"
    end(tmp_path / "second" / "seedflood-state")
    assert proceed(second, "--out", tmp_path / "third")[0] == 0
    third = load_settings(tmp_path / "third" / "peers.toml")
    assert third.run.model == f"run-{load_settings(second).run.shown_id()}"


def test_a_relay_goes_on_without_a_model(proceed, hosts, exported):
    write(hosts[0], {**RUN, **TABLES}, {"role": "relay"})
    assert proceed(*hosts)[0] == 0
    relay, trainer = (load_settings(host.parent / "next" / "peers.toml") for host in hosts)
    assert relay.run.run_id() == trainer.run.run_id()
    assert (relay.node.role, relay.node.model_path, len(exported)) == ("relay", None, 1)


@pytest.fixture
def pre_trained(hosts):
    """A host that has trained by GASLoC, and where its model is."""
    write(hosts[0], RUN | GASLOC, {"data": "embedded", "export": "out"})
    folder = hosts[0].parent / "out"
    folder.mkdir()
    (folder / "README.md").write_text(f"| run | {load_settings(hosts[0]).run.run_id().hex()} |\n")
    (folder / "config.json").touch()
    return hosts[0], folder


def test_what_random_weights_have_become_is_trained_on_and_not_drawn_anew(proceed, pre_trained):
    file, folder = pre_trained
    assert proceed(file)[0] == 0
    following = load_settings(file.parent / "next" / "peers.toml")
    assert (following.run.gasloc.initial, following.run.gasloc.gamma) == ("pretrained", 0.5)
    assert (following.node.model_path, following.node.data) == (folder, "embedded")


def test_a_model_that_was_pre_trained_is_fine_tuned_on_the_rows_of_another_task(proceed, pre_trained):
    file, folder = pre_trained
    code, said = proceed(file, "--task", "places", "--set", "run.mode=seedflood")
    assert code == 0, said.err
    following = load_settings(file.parent / "next" / "peers.toml")
    assert (following.run.mode, following.run.objective.task) == ("seedflood", "places")
    assert (following.node.model_path, following.node.data) == (folder, None)


@pytest.mark.parametrize("card", ["", f"| run | {'0' * 64} |\n"])
def test_a_model_that_no_journal_holds_and_nobody_has_exported_is_asked_for(proceed, pre_trained, card):
    file, folder = pre_trained
    (folder / "README.md").write_text(card)
    code, said = proceed(file)
    assert (code, "keeps its model only in [node] export: set that" in " ".join(said.err.split())) == (78, True)
    assert not (file.parent / "next").exists()


def test_a_closed_run_keeps_its_newest_roster(proceed, tmp_path):
    proceed("alpha=127.0.0.1:7070", "beta", "--out", tmp_path / "run", command="init")
    file = tmp_path / "run" / "alpha" / "peers.toml"
    end(file.parent / "seedflood-state")
    before = read_roster(file.parent / "roster.json")
    operator = Identity.load(tmp_path / "run" / "operator.key")
    newer = SignedRoster.sign(operator, before.run, type(before.roster)(2, before.roster.entries))
    write_roster(file.parent / "seedflood-state" / "roster.json", newer)
    assert proceed(file)[0] == 0
    settings = load_settings(file.parent / "next" / "peers.toml")
    assert read_roster(file.parent / "next" / "roster.json").roster.serial == 2
    identity = Identity.load_or_create(settings.node.state / "identity.pem")
    assert Enrolment.open(settings, identity).access.may_link(identity.public_key)


def test_a_closed_run_cannot_have_another_name_for_its_roster_is_of_this_one(proceed, tmp_path):
    proceed("alpha=127.0.0.1:7070", "beta", "--out", tmp_path / "run", command="init")
    file = tmp_path / "run" / "alpha" / "peers.toml"
    end(file.parent / "seedflood-state")
    code, said = proceed(file, "--set", "run.name=second")
    assert (code, "take run.name out of --set" in " ".join(said.err.split())) == (ExitCode.CONFIG, True)


def test_a_host_whose_run_has_not_ended_is_to_be_started_first(proceed, hosts):
    (hosts[0].parent / "seedflood-state" / "result.json").unlink()
    code, said = proceed(hosts[0])
    assert (code, "run first has not ended here: start the node" in said.err) == (ExitCode.CONFIG, True)
    assert not (hosts[0].parent / "next").exists()


def test_a_file_that_is_not_there_is_asked_for_as_this_command_takes_it(proceed, tmp_path):
    code, said = proceed(tmp_path / "none.toml")
    assert (code, "name the settings of a host: seedflood continue PEERS.TOML" in said.err) == (ExitCode.USAGE, True)


def test_a_folder_that_cannot_be_written_is_told_in_one_sentence(proceed, hosts, monkeypatch):
    def refuse(path, *_, **__):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(durable, "write", refuse)
    code, said = proceed(hosts[0])
    assert (code, "next: Read-only file system" in said.err) == (ExitCode.CONFIG, True)
    assert not (hosts[0].parent / "next").exists()


def test_another_task_takes_nothing_of_the_last_one(proceed, hosts, tmp_path):
    objective = {"task": "lm", "template": "{a}"}
    write(hosts[0], {**RUN, "objective": objective}, {"data": "embedded"})
    (tmp_path / "rows.jsonl").write_text('{"messages": []}\n{"messages": [1]}\n')
    assert proceed(hosts[0], "--task", "chat", "--data", tmp_path / "rows.jsonl")[0] == 0
    following = load_settings(hosts[0].parent / "next" / "peers.toml").run.objective
    assert (following.task, following.template) == ("chat", None)


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--set", "run.seedflood.rank=0"], ExitCode.CONFIG, '"rank"'),
        (["--data", "./none"], ExitCode.CONFIG, "no file or folder"),
        (["--data", "none.jsonl"], ExitCode.CONFIG, "no file or folder none.jsonl"),
        (["--data", "others.jsonl"], ExitCode.CONFIG, 'no column "sentence"'),
        (["--task", "lm"], ExitCode.CONFIG, 'task = "lm" needs rows'),
        (["--out", "."], ExitCode.CONFIG, "is there already; name a new folder with --out"),
        (["--out", "others.jsonl"], ExitCode.CONFIG, "is there already; name a new folder with --out"),
        (["other.toml", "--out", "new"], ExitCode.USAGE, "--out is for one host"),
        (["--set", "node.name=b"], ExitCode.USAGE, "--set is for [run] here"),
    ],
)
def test_what_cannot_be_the_next_run_is_one_sentence_and_leaves_nothing(
    proceed, hosts, words, code, said, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "others.jsonl").write_text('{"question": "a"}\n{"question": "b"}\n')
    before = {path: path.read_text() for path in tmp_path.rglob("*") if path.is_file()}
    ended, told = proceed(hosts[0], *words)
    assert (ended, told.out) == (code, "")
    assert said in " ".join(told.err.split())
    assert {path: path.read_text() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_the_next_run_is_another_one_even_if_nothing_is_changed(proceed, hosts):
    assert proceed(hosts[0])[0] == 0
    following = load_settings(hosts[0].parent / "next" / "peers.toml").run
    assert following.run_id() != RunSettings(**RUN, **TABLES).run_id()
