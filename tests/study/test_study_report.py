"""What is said of results: made-up ones, whose figures are known."""

import math
from dataclasses import replace

import pytest

from study.cell import Result
from study.links import HOME, seconds_to
from study.plan import BYTES, Part, Plan, Study
from study.report import write_report
from study.results import Results
from study.rows import Sizes
from study.summary import Row, all_tries, chosen, halfway, left, rows_of, studies_in, tries_of
from study.timings import Applied, Timing
from study.traffic import Traffic

PARTS = (Part(BYTES, ("dsgd", "adamw")), Part("Clients", ("dsgd",), ({}, {"clients": 4})))
PLAN = Plan("little", {"first": 10, "zeroth": 10}, Sizes(8, 8, 8), (1, 2, 3), PARTS, clients=2)
STUDY = Study(PLAN, "tiny", "sst2", "f" * 16)
TIMING = Timing("tiny", 10**6, "abc123", 8, 32, 0.5, 0.6, 2.0, (Applied(16, 0.001, 0.2), Applied(1024, 0.004, 30.0)))
TRAFFIC = Traffic("tiny", 10**6, "abc123", {"seedflood": 47.0, "dsgd": 8e5})


def point(step, loss, edge_bytes):
    costs = {"measure_seconds": step * 0.5, "exchange_seconds": step * 0.25, "hops": step, "edge_bytes": edge_bytes}
    return {"steps": step, "loss": loss, "consensus_error": 0.0, "forwards": step, "backwards": step, **costs}


def result_of(cell, loss):
    sent = 0 if cell.method == "adamw" else 1e6
    course = (point(0, 1.0, 0), point(5, loss and (1 + loss) / 2, sent / 2), point(10, loss, sent))
    test = {"accuracy": 0.5 + cell.seed / 10, "loss": loss} if cell.is_test else None
    return Result(cell, "abc123", 2.0, course, test)


def tried(cell):
    """The third rate of DSGD is the best one. AdamW's higher ones diverge."""
    rate = dict(cell.options)["rate"]
    return result_of(cell, None if cell.method == "adamw" and rate > 1e-4 else abs(rate - 0.03))


@pytest.fixture
def results(tmp_path):
    """Everything, but for one seed with four clients. One run of AdamW diverged."""
    kept = Results(tmp_path)
    for cell in all_tries(STUDY, kept):
        kept.add(tried(cell))
    for cell in STUDY.cells(chosen(STUDY, kept)):
        if (cell.clients, cell.seed) != (4, 3):
            kept.add(result_of(cell, None if cell.method == "adamw" and cell.seed == 3 else 0.5))
    return kept


def test_the_try_with_the_least_validation_loss_is_chosen(results):
    assert chosen(STUDY, results) == {"dsgd": {"rate": 0.03}, "adamw": {"rate": 1e-4}}


def test_a_method_without_all_its_tries_is_left_out(tmp_path):
    kept = Results(tmp_path)
    for cell in all_tries(STUDY, kept)[:-1]:
        kept.add(tried(cell))
    assert list(chosen(STUDY, kept)) == ["dsgd"]


def test_a_method_is_chosen_for_when_its_further_tries_are_made(tmp_path):
    kept = Results(tmp_path)
    for cell in STUDY.grid_of("dsgd"):
        kept.add(result_of(cell, 1 - dict(cell.options)["rate"]))
    (further,) = left(tries_of(STUDY, "dsgd", kept), kept)
    assert dict(further.options) == {"rate": 0.33}
    assert chosen(STUDY, kept) == {}
    kept.add(result_of(further, 5.0))
    assert chosen(STUDY, kept) == {"dsgd": {"rate": 0.1}}


def test_rows_have_the_spread_over_their_seeds(results):
    dsgd, adamw = rows_of(STUDY, PARTS[0], results)
    assert (dsgd.method, adamw.method) == ("dsgd", "adamw")
    accuracy = dsgd.spread("accuracy")
    assert (accuracy.mean, accuracy.low, accuracy.high) == (pytest.approx(0.7), 0.6, 0.8)
    assert adamw.spread("loss") is None, "one of its runs has diverged"
    assert [(row.setting, len(row.results)) for row in rows_of(STUDY, PARTS[1], results)] == [
        ("base", 3),
        ("clients 4", 2),
    ]


def test_a_row_reaches_a_loss_when_all_its_runs_do():
    cell = replace(STUDY.grid_of("dsgd")[0], is_test=True)
    result = result_of(cell, 0.5)
    assert Row("dsgd", "base", (result, result)).seconds_to(0.8, HOME).mean == seconds_to(result, 0.8, HOME)
    assert Row("dsgd", "base", (result, result_of(cell, 0.9))).seconds_to(0.8, HOME) is None
    assert math.isclose(halfway([Row("dsgd", "base", (result,)), Row("dsgd", "base", (result_of(cell, None),))]), 0.75)


def test_results_tell_which_plans_they_are_of(results):
    longer = replace(PLAN, name="longer", steps={"first": 20, "zeroth": 20})
    assert [study.name for study in studies_in([longer, PLAN], results)] == ["tiny, sst2, little"]
    results.add(tried(replace(STUDY, plan=longer).grid_of("dsgd")[0]))
    assert [study.name for study in studies_in([longer, PLAN], results)] == ["tiny, sst2, longer", "tiny, sst2, little"]


@pytest.mark.long
def test_the_report_shows_what_is_there_and_is_the_same_again(results, tmp_path):
    path = tmp_path / "page" / "study.md"
    path.parent.mkdir()
    write_report([PLAN], results, {"tiny": TIMING}, {"tiny": TRAFFIC}, path, tmp_path / "figures")
    said = path.read_text()
    assert "8 of 9 cells are measured, by the code of abc123." in said
    assert "| dsgd | 0.7000 (0.6000 to 0.8000) | 0.5000 | 0 | 1,000,000 | 10 | 10 | 5.00 | 2.50 | 3 |" in said
    assert "| adamw | - | - |" in said
    assert "| method | tiny, sst2, little |" in said
    assert "| dsgd | 0.700 (0.600 to 0.800) |\n" in said
    assert "| - | **not measured** | - |" in said
    assert "**rate 0.03: 0.0000**" in said
    assert "rate 0.001: inf" in said
    assert "Seconds to a validation loss of 0.7500" in said
    figures = {one.name: one.read_text() for one in (tmp_path / "figures").iterdir()}
    assert set(figures) == {"tiny-sst2-little-ffffffff-0.svg", "tiny-sst2-little-ffffffff-1.svg", "updates.svg"}
    assert all(f"(../figures/{name})" in said for name in figures)
    assert ">dsgd<" in figures["tiny-sst2-little-ffffffff-0.svg"]
    assert ">adamw<" not in figures["tiny-sst2-little-ffffffff-0.svg"], "it has diverged"
    assert ">clients 4<" in figures["tiny-sst2-little-ffffffff-1.svg"]
    assert "| method | tiny, 1,000,000 parameters |\n| --- | --- |\n| seedflood | 47 |\n| dsgd | 800,000 |\n\n" in said
    assert "| tiny | 1,000,000 | 0.5 | 0.6 | 2 | 0.001 / 0.2 | 0.004 / 30 |" in said
    assert ">tiny, dense<" in figures["updates.svg"]
    write_report([PLAN], results, {"tiny": TIMING}, {"tiny": TRAFFIC}, path, tmp_path / "figures")
    assert path.read_text() == said
    assert {one.name: one.read_text() for one in (tmp_path / "figures").iterdir()} == figures
