"""Runs that follow each other: what a later file takes from an earlier one, and where a host keeps each run."""

from pathlib import Path

import pytest

from seedflood.config import SERVE, check_course, current, load_course, load_settings, pick
from seedflood.errors import ConfigError

FIRST = """
[run]
name = "first"
clients = 3
[run.objective]
task = "lm"
[node]
name = "alpha"
listen = "127.0.0.1:0"
state = "state"
shard = "1/3"
data = "texts"
then = "later/second.toml"
[[peers]]
address = "127.0.0.1:7070"
"""
SECOND = """
[run]
name = "second"
model = "previous"
clients = 3
[run.objective]
task = "embedded"
"""


@pytest.fixture
def write(tmp_path: Path):
    def write(first: str = FIRST, second: str = SECOND) -> Path:
        (tmp_path / "later").mkdir(exist_ok=True)
        (tmp_path / "later" / "second.toml").write_text(second)
        (tmp_path / "first.toml").write_text(first)
        return tmp_path / "first.toml"

    return write


def test_a_run_that_follows_another_cannot_begin_with_random_weights(write):
    second = SECOND.replace("[run]\n", '[run]\nmode = "gasloc"\n').replace("embedded", "lm")
    load_course(write(second=second))
    with pytest.raises(ConfigError, match='begins with what the run before it has learned, so take initial = "random"'):
        load_course(write(second=f'{second}[run.gasloc]\ninitial = "random"\n'))


def test_a_file_alone_is_a_course_of_one_run(write):
    (stage,) = load_course(write(first='[run]\nname = "alone"\n'))
    assert (stage.settings.run.name, stage.next_run) == ("alone", None)
    assert stage.settings.node.export is None


@pytest.mark.parametrize(
    ("own", "meant"), [("", "first.json"), ('[node]\nroster = "second.json"\n', "later/second.json")]
)
def test_a_later_run_has_the_roster_of_the_first_unless_its_file_names_another(write, own, meant):
    def close(text):
        return text.replace("[run]\n", f'[run]\noperator = "{"ab" * 32}"\n')

    path = write(close(FIRST).replace("[node]\n", '[node]\nroster = "first.json"\n'), own + close(SECOND))
    assert [stage.settings.node.roster for stage in load_course(path)] == [
        path.parent / "first.json",
        path.parent / meant,
    ]


def test_a_later_file_takes_from_the_one_before_all_but_what_is_of_one_run(write):
    first, second = load_course(write())
    node = second.settings.node
    assert (node.name, node.listen, node.shard) == ("alpha", "127.0.0.1:0", "1/3")
    assert second.settings.peers == first.settings.peers
    assert (node.data, node.then) == (None, None)
    assert (second.settings.run.objective.task, second.settings.run.model) == ("embedded", "previous")


def test_a_flag_that_is_of_one_run_is_for_the_first_one(write):
    first, second = load_course(write(), {"node": {"data": "elsewhere", "name": "beta"}})
    assert [one.settings.node.data for one in (first, second)] == ["elsewhere", None]
    assert [one.settings.node.name for one in (first, second)] == ["beta", "beta"]


def test_each_run_has_a_folder_in_that_of_the_first_and_the_model_lies_where_the_next_one_looks(write, tmp_path):
    first, second = load_course(write())
    state = tmp_path / "state"
    assert first.settings.node.state == second.key_folder == state
    assert second.settings.node.state == state / f"run-{second.runs[1]}"
    assert first.settings.node.export == second.settings.node.model_path == state / "model"
    assert first.next_run == second.runs[1] == second.settings.run.run_id().hex()[:16]


def test_a_model_that_is_exported_anyway_is_not_written_twice(write):
    first, second = load_course(write(), {"node": {"export": "/out"}})
    assert first.settings.node.export == second.settings.node.model_path == Path("/out")
    assert second.settings.node.export is None


def test_an_export_that_is_asked_for_after_a_run_has_ended_does_not_hide_its_model(write, tmp_path):
    (tmp_path / "state/model").mkdir(parents=True)
    first, second = load_course(write(), {"node": {"export": str(tmp_path / "out")}})
    assert second.settings.node.model_path == tmp_path / "state/model"
    (tmp_path / "out").mkdir()
    first, second = load_course(write(), {"node": {"export": str(tmp_path / "out")}})
    assert first.settings.node.export == second.settings.node.model_path == tmp_path / "out"


def test_a_run_has_the_same_id_wherever_a_host_keeps_it(write):
    _, here = load_course(write())
    _, there = load_course(write(), {"node": {"state": "/elsewhere", "name": "beta"}})
    alone = load_settings(write().parent / "later" / "second.toml")
    assert here.runs[1] == there.runs[1] == alone.run.run_id().hex()[:16]


def test_a_host_goes_on_with_the_last_run_that_it_has_begun(write, tmp_path):
    course = load_course(write(), {"node": {"state": str(tmp_path / "state")}})
    assert current(course).position == 0
    course[1].settings.node.state.mkdir(parents=True)
    assert current(course).position == 1


def test_a_run_is_picked_by_its_name(write):
    course = load_course(write())
    assert pick(course, None).run.name == "first"
    assert pick(course, "second").run.name == "second"
    course[1].state.mkdir(parents=True)
    assert pick(course, None).run.name == "second"
    assert pick(course, "first").run.name == "first"
    with pytest.raises(ConfigError, match="no run is named third; there are first, second"):
        pick(course, "third")


def test_what_a_run_leaves_behind_need_not_be_there_before_it_has_run(write, tmp_path):
    (tmp_path / "texts").mkdir()
    for name in ("train.jsonl", "validation.jsonl.gz"):
        (tmp_path / "texts" / name).touch()
    check_course(load_course(write(), {"node": {"state": str(tmp_path / "s"), "data": str(tmp_path / "texts")}}))


@pytest.mark.parametrize(
    ("first", "second", "sentence"),
    [
        (FIRST, "[run]\nstep = 1\n", 'second.toml: [run] has no key "step"'),
        (FIRST, SECOND + '[node]\nstate = "x"\n', "take the key out"),
        (FIRST, SECOND + '[node]\nthen = "../first.toml"\n', "leads back to"),
        (FIRST.replace("second.toml", "none.toml"), SECOND, "none.toml does not exist; correct [node] then of "),
        (SECOND, SECOND, "none is before it"),
        (FIRST, FIRST.replace('then = "later/second.toml"', "").replace('state = "state"', ""), "are the same"),
    ],
)
def test_a_course_that_cannot_be_is_refused_with_a_sentence(write, first, second, sentence):
    with pytest.raises(ConfigError) as raised:
        load_course(write(first, second))
    assert sentence in str(raised.value)


def test_a_host_may_stay_after_its_run_and_serve_is_no_file(tmp_path):
    path = tmp_path / "peers.toml"
    path.write_text('[node]\nthen = "serve"\n')
    (stage,) = load_course(path)
    assert stage.settings.node.then == SERVE
    path.write_text('[node]\nthen = "./serve"\n')
    (tmp_path / "serve").write_text('[run]\nname = "second"\n')
    assert [one.settings.run.name for one in load_course(path)] == ["run", "second"]
