"""`seedflood continue` makes the next run of a course, and changes nothing if it cannot."""

import errno
import json
import os

import pytest

from seedflood import cli, durable, embedded
from seedflood.config import load_course, spell
from seedflood.errors import ExitCode
from seedflood.host.enrolment import Enrolment
from seedflood.identity import Identity

RUN = {"name": "first", "model": "embedded", "clients": 2, "steps": 6, "train_examples": 64}
TABLES = {"objective": {"task": "embedded"}, "seedflood": {"estimate": "gradient", "rank": 4}}
NODE = {"alpha": '[node]  # this host\nname = "a"\n', "beta": ""}


@pytest.fixture
def hosts(tmp_path):
    """The files of two hosts; the second has no [node]."""
    for name in NODE:
        (tmp_path / name).mkdir()
        text = spell({"run": {**RUN, **TABLES}})
        (tmp_path / name / "peers.toml").write_text(f"# mine\n{text}" + NODE[name])
    return [tmp_path / name / "peers.toml" for name in NODE]


@pytest.fixture
def proceed(monkeypatch, capsys):
    def proceed(*words, command="continue"):
        monkeypatch.setattr("sys.argv", ["seedflood", command, *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        return ended.value.code or 0, capsys.readouterr()

    return proceed


def test_hosts_get_the_same_next_run_which_begins_with_what_the_last_one_ended_with(
    proceed, hosts, tmp_path, monkeypatch
):
    (tmp_path / "more.jsonl").write_text("".join(json.dumps(row) + "\n" for row in embedded.rows("train")[:8]))
    monkeypatch.chdir(tmp_path)
    code, said = proceed(*hosts, "--steps", "9", "--data", "more.jsonl", "--set", "run.seedflood.rank=8")
    assert code == 0, said.err
    courses = [load_course(one) for one in hosts]
    assert courses[0][-1].runs == courses[1][-1].runs
    first, following = (stage.settings for stage in courses[0])
    assert (following.run.name, following.run.model, following.run.steps) == ("first-2", "previous", 9)
    assert following.run.objective == first.run.objective
    assert (following.run.seedflood.estimate, following.run.seedflood.rank) == ("gradient", 8)
    assert following.node.data == str(tmp_path / "more.jsonl")
    assert following.node.model_path == first.node.export
    assert hosts[0].read_text().startswith("# mine\n")
    assert said.out.count(f"id {courses[0][-1].runs[-1]}") == 2
    assert all(f"seedflood-node --peers {host}" in said.out for host in hosts)


def test_a_run_that_was_continued_is_continued_again(proceed, hosts):
    for _ in range(2):
        assert proceed(hosts[0])[0] == 0
    assert load_course(hosts[0])[-1].names == ("first", "first-2", "first-3")


def test_what_random_weights_have_become_is_trained_on_and_not_drawn_anew(proceed, hosts):
    hosts[0].write_text(
        'run = {name = "first", mode = "gasloc", model = "embedded", clients = 2, steps = 20, '
        'objective = {task = "lm"}, gasloc = {initial = "random", gamma = 0.5}}\n[node]\ndata = "embedded"\n'
    )
    assert proceed(hosts[0])[0] == 0
    gasloc = load_course(hosts[0])[-1].settings.run.gasloc
    assert (gasloc.initial, gasloc.gamma) == ("pretrained", 0.5)


def test_a_closed_run_is_continued_by_its_operator_with_a_roster_for_the_next_one(proceed, tmp_path):
    proceed("alpha=127.0.0.1:7070", "beta", "--out", tmp_path / "run", command="init")
    files = [tmp_path / "run" / name / "peers.toml" for name in ("alpha", "beta")]
    code, said = proceed(*files)
    assert (code, "its operator makes the next one" in " ".join(said.err.split())) == (ExitCode.USAGE, True)
    code, said = proceed(*files, "--key", tmp_path / "run" / "operator.key")
    assert (code, "copy to beta, beside its peers.toml: peers.toml, first-2.toml, first-2.json" in said.out) == (
        0,
        True,
    )
    for file in files:
        settings = load_course(file)[-1].settings
        identity = Identity.load_or_create(file.parent / "seedflood-state" / "identity.pem")
        assert Enrolment.open(settings, identity).gate.may_link(identity.public_key)


@pytest.mark.parametrize("other", ["operator.key", "roster.json"])
def test_key_and_roster_of_another_run_sign_nothing(proceed, tmp_path, other):
    for name in ("run", "another"):
        proceed("alpha=127.0.0.1:7070", "beta", "--out", tmp_path / name, command="init")
    (tmp_path / "run" / other).write_bytes((tmp_path / "another" / other).read_bytes())
    file = tmp_path / "run" / "alpha" / "peers.toml"
    before = {path: path.read_bytes() for path in file.parent.iterdir() if path.is_file()}
    code, said = proceed(file, "--key", tmp_path / "run" / "operator.key")
    assert (code, f"{other} is of operator" in " ".join(said.err.split())) == (ExitCode.CONFIG, True)
    assert {path: path.read_bytes() for path in file.parent.iterdir() if path.is_file()} == before


def test_a_host_that_has_still_to_begin_the_next_run_does_not_get_another_one_behind_it(proceed, hosts):
    (hosts[0].parent / "seedflood-state").mkdir()
    (hosts[0].parent / "seedflood-state" / "journal.sqlite").touch()
    assert proceed(hosts[0])[0] == 0
    code, said = proceed(hosts[0], "--steps", "9")
    assert (code, "run first-2 follows already, and has not begun here" in said.err) == (ExitCode.CONFIG, True)
    load_course(hosts[0])[-1].state.mkdir()
    assert proceed(hosts[0], "--steps", "9")[0] == 0


def test_a_file_that_is_not_there_is_asked_for_as_this_command_takes_it(proceed, tmp_path):
    code, said = proceed(tmp_path / "none.toml")
    assert (code, "name the settings of a host: seedflood continue PEERS.TOML" in said.err) == (ExitCode.USAGE, True)


def test_a_folder_that_cannot_be_written_is_told_in_one_sentence(proceed, hosts, monkeypatch):
    def refuse(path, *_, **__):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(durable, "write", refuse)
    code, said = proceed(hosts[0])
    assert (code, "first-2.toml: Read-only file system" in said.err) == (ExitCode.CONFIG, True)


def test_a_host_that_serves_after_its_run_goes_on_instead(proceed, hosts):
    hosts[0].write_text(hosts[0].read_text() + 'then = "serve"\n')
    assert proceed(hosts[0])[0] == 0
    assert load_course(hosts[0])[-1].names == ("first", "first-2")


def test_another_task_takes_nothing_of_the_last_one(proceed, hosts, tmp_path):
    hosts[0].write_text(hosts[0].read_text().replace('task = "embedded"', 'task = "lm"\ntemplate = "{a}"'))
    hosts[0].write_text(hosts[0].read_text() + 'data = "embedded"\n')
    (tmp_path / "rows.jsonl").write_text('{"messages": []}\n{"messages": [1]}\n')
    proceed(hosts[0], "--task", "chat", "--data", tmp_path / "rows.jsonl")
    objective = load_course(hosts[0])[-1].settings.run.objective
    assert (objective.task, objective.template) == ("chat", None)


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--set", "run.seedflood.rank=0"], ExitCode.CONFIG, '"rank"'),
        (["--data", "./none"], ExitCode.CONFIG, "no file or folder"),
        (["--data", "none.jsonl"], ExitCode.CONFIG, "no file or folder none.jsonl"),
        (["--data", "others.jsonl"], ExitCode.CONFIG, 'no column "sentence"'),
        (["--name", "peers"], ExitCode.CONFIG, "is there already"),
        (["--name", "first"], ExitCode.CONFIG, "has a run first already; choose another --name"),
        (["--set", "node.name=b"], ExitCode.USAGE, "--set is for [run] here"),
    ],
)
def test_what_cannot_be_the_next_run_is_one_sentence_and_changes_nothing(
    proceed, hosts, words, code, said, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "others.jsonl").write_text('{"question": "a"}\n{"question": "b"}\n')
    before = {path: path.read_text() for path in hosts[0].parent.iterdir()}
    ended, told = proceed(hosts[0], *words)
    assert (ended, told.out) == (code, "")
    assert said in " ".join(told.err.split())
    assert {path: path.read_text() for path in hosts[0].parent.iterdir()} == before
