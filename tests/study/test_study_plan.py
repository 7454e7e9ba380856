"""Which cells a study has, its rows, and how results are kept."""

import json
from dataclasses import replace

import pytest

from seedflood.config import ObjectiveSettings
from seedflood.errors import ConfigError, DataError, ExitCode, JournalError, UsageError
from study import extra
from study.__main__ import main
from study.cell import Result
from study.methods import METHODS
from study.plan import DEFAULT, PLANS, SMOKE, Study, check_methods, find_plan
from study.results import FolderInUseError, Results, alone
from study.rows import Sizes, objective_of, split
from study.traffic import Traffic

STUDY = Study(SMOKE, "embedded", "embedded", "0" * 16)
CHOSEN = {name: kind.grid[0] for name, kind in METHODS.items()}


def result_of(cell, loss=0.5):
    return Result(cell, "abc", 1.0, ({"loss": loss},), None)


def test_all_methods_have_as_many_tries_and_name_their_source():
    assert {len(kind.grid) for kind in METHODS.values()} == {DEFAULT.tries}
    assert all(kind.source for kind in METHODS.values())


@pytest.mark.parametrize("name", PLANS)
def test_no_plan_measures_a_cell_twice_or_with_the_seed_of_its_tries(name):
    study = Study(PLANS[name], "embedded", "embedded", "0" * 16)
    tries, cells = [one for method in study.used() for one in study.grid_of(method)], study.cells(CHOSEN)
    assert len(set(tries)) == len(tries)
    assert len(set(cells)) == len(cells)
    assert not {cell.seed for cell in tries} & {cell.seed for cell in cells}
    assert all(cell.is_test for cell in cells)
    assert not any(cell.is_test for cell in tries)


def test_a_part_changes_settings_and_options():
    study = Study(DEFAULT, "embedded", "embedded", "0" * 16)
    cells = study.cells({name: {"times_default": 0.3} for name in METHODS})
    assert {cell.topology for cell in cells} == {"ring", "path", "grid", "star", "complete"}
    assert {dict(cell.options).get("rank") for cell in cells} == {None, 4, 8, 128}
    assert {dict(cell.options)["times_default"] for cell in cells} == {0.3}


def test_names_that_are_not_there_are_refused():
    with pytest.raises(UsageError, match='unknown plan "quick"'):
        find_plan("quick")
    with pytest.raises(UsageError, match='unknown method "sgd"'):
        check_methods(["dsgd", "sgd"])
    with pytest.raises(UsageError, match='unknown task "poems"'):
        objective_of("poems")


def test_results_are_found_again_and_a_torn_line_is_dropped(tmp_path):
    first, second = STUDY.grid_of("dsgd")[0], STUDY.grid_of("choco")[0]
    results = Results(tmp_path)
    results.add(result_of(first))
    results.add(result_of(second))
    whole = results.path.read_bytes()
    results.path.write_bytes(whole[:-7])
    again = Results(tmp_path)
    assert again[first] == result_of(first)
    assert second not in again
    again.add(result_of(second))
    assert results.path.read_bytes() == whole


def test_a_line_that_is_no_result_is_named(tmp_path):
    (tmp_path / "results.jsonl").write_text('{"cell": {}}\n')
    with pytest.raises(DataError, match=r"results.jsonl, line 1: not a result"):
        Results(tmp_path)


def test_a_diverged_try_is_chosen_last():
    cell = STUDY.grid_of("dsgd")[0]
    assert result_of(cell, None).loss > result_of(cell, 99.0).loss


@pytest.mark.parametrize(
    ("method", "grid_best", "further"),
    [
        ("dsgd", {"rate": 0.03}, None),
        ("dsgd", {"rate": 0.1}, {"rate": 0.33}),
        ("dsgd", {"rate": 0.003}, {"rate": 0.0009}),
        ("seedflood", {"times_default": 3.0}, {"times_default": 9.0}),
        ("choco", {"rate": 0.03, "step_size": 0.1}, {"rate": 0.09, "step_size": 0.1}),
    ],
)
def test_a_grid_goes_on_where_its_best_rate_is_at_an_end(method, grid_best, further):
    study = Study(DEFAULT, "embedded", "embedded", "0" * 16)
    made = study.grid_of(method)
    best = made[0].with_options(grid_best)
    assert best in made
    assert study.further_try(made, best) == (None if further is None else best.with_options(further))


def test_a_grid_ends_after_some_further_tries():
    study = Study(DEFAULT, "embedded", "embedded", "0" * 16)
    made = study.grid_of("dsgd")
    while (further := study.further_try(made, made[-1])) is not None:
        made.append(further)
    assert [dict(cell.options)["rate"] for cell in made] == [0.003, 0.01, 0.03, 0.1, 0.33, 1.1, 3.7]


def test_options_do_not_depend_on_their_order():
    cell = STUDY.grid_of("dsgd")[0]
    assert replace(cell, options=()).with_options({"b": 1, "a": 2}) == replace(cell, options=()).with_options(
        {"a": 2, "b": 1}
    )


def test_rows_of_training_validation_and_test_are_disjoint_and_always_the_same(tmp_path):
    objective = ObjectiveSettings(task="embedded")
    found = split(objective, None, Sizes(64, 32, 16), tmp_path / "a")
    parts = [found.tuning / "train.jsonl", found.tuning / "validation.jsonl", found.final / "validation.jsonl"]
    rows = [{json.loads(line)["sentence"] for line in part.read_text().splitlines()} for part in parts]
    assert [len(part) for part in rows] == [64, 32, 16]
    assert len(set.union(*rows)) == 64 + 32 + 16
    assert (found.final / "train.jsonl").read_bytes() == parts[0].read_bytes()
    assert split(objective, None, Sizes(64, 32, 16), tmp_path / "b").digest == found.digest
    assert split(objective, None, Sizes(64, 31, 16), tmp_path / "b").digest != found.digest


def test_too_few_rows_are_refused(tmp_path):
    with pytest.raises(DataError, match="the data has 2,048 training rows in all"):
        split(ObjectiveSettings(task="embedded"), None, Sizes(2000, 500, 100), tmp_path)


def test_a_missing_package_is_named_with_what_installs_it(monkeypatch):
    extra.check_extra()
    monkeypatch.setattr(extra, "PACKAGES", ("matplotlib", "no_such_package"))
    with pytest.raises(ConfigError, match=r'needs no_such_package, .* run "make study"'):
        extra.check_extra()


def test_a_disk_without_space_is_the_disks_fault(tmp_path):
    results = Results(tmp_path)
    results.path.symlink_to("/dev/full")
    with pytest.raises(JournalError, match="No space left on device") as failed:
        results.add(result_of(STUDY.grid_of("dsgd")[0]))
    assert failed.value.exit_code == ExitCode.DISK


def test_a_second_study_of_a_folder_is_told_to_wait(tmp_path):
    with alone(tmp_path), pytest.raises(FolderInUseError, match="wait until it has ended") as failed, alone(tmp_path):
        pass
    assert failed.value.exit_code == ExitCode.TRY_AGAIN
    with alone(tmp_path):
        pass


def test_a_file_that_cannot_be_written_is_one_sentence(tmp_path, monkeypatch, capsys):
    (tmp_path / "figures").write_text("a file where a folder should be")
    monkeypatch.setattr("sys.argv", ["study", "--report-only", "--out", str(tmp_path)])
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == ExitCode.DISK
    assert f"cannot write {tmp_path / 'figures'} (File exists): make room" in capsys.readouterr().err


def test_the_bytes_of_a_step_are_those_of_real_messages(tmp_path, monkeypatch, capsys):
    arguments = ["--plan", "smoke", "--out", str(tmp_path), "--traffic", "--methods", "seedflood,dsgd,choco,adamw"]
    monkeypatch.setattr("sys.argv", ["study", *arguments, "--json"])
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 0
    assert json.loads(capsys.readouterr().out)["cells"] == 0
    traffic = Traffic.read(tmp_path)["embedded"]
    assert set(traffic.step_bytes) == {"seedflood", "dsgd", "choco"}, "a central method sends nothing"
    assert traffic.step_bytes["dsgd"] == 4 * traffic.parameters
    assert traffic.step_bytes["seedflood"] < 100 < traffic.step_bytes["choco"] < traffic.step_bytes["dsgd"]
    (tmp_path / Traffic.FILE).write_text('{"model": "embedded"}\n')
    with pytest.raises(DataError, match="remove it"):
        Traffic.read(tmp_path)
