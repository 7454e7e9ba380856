"""What is made of results: claims that are judged, and methods that are chosen. The results are made up."""

from dataclasses import replace

import pytest

from study.cell import Result
from study.choices import choose, spell
from study.claims import CLAIMS, judge
from study.evidence import Evidence
from study.forecast import forecast, measured_speeds, sampled_speeds
from study.methods import METHODS
from study.plan import BYTES, DEFAULT, PRETRAIN, SHORT, Study
from study.results import Results
from study.summary import all_tries, chosen, left
from study.timings import Applied, Timing

STUDY = Study(replace(DEFAULT, seeds=(1, 2)), "tiny", "sst2", "f" * 16)
SENT = {"seedflood": 1e5, "dsgd": 1e7, "choco": 2e5, "dsgd-lora": 1e6, "choco-lora": 5e4, "gasloc": 2e5}
TIMING = Timing("tiny", 10**6, "abc123", 8, 32, 0.5, 0.6, 2.0, (Applied(1024, 0.004, 30.0),))


def accuracy_of(cell):
    """High, but for what the papers say hurts."""
    options = dict(cell.options)
    hurts = [
        cell.method in ("dzsgd", "dzsgd-lora"),
        options.get("rank") in (4, 8),
        options.get("refresh_period") == 1,
        options.get("hops") == 1,
        cell.method in ("d-adam", "dsgd") and cell.local_steps == 1,
    ]
    return 0.7 if any(hurts) else 0.9


def result_of(cell):
    accuracy = accuracy_of(cell)
    costs = {"measure_seconds": 1.0, "exchange_seconds": 1.0, "hops": 8, "edge_bytes": SENT.get(cell.method, 1e6)}
    costs |= {"forwards": 1, "backwards": 1, "consensus_error": 0.0, "steps": cell.steps}
    start = {**dict.fromkeys(costs, 0), "loss": 1.0}
    loss = 1.1 - accuracy - (0.01 if dict(cell.options).get("gamma") == 0.5 else 0)
    test = {"accuracy": accuracy + cell.seed / 1000, "loss": loss} if cell.is_test else None
    return Result(cell, "abc", 2.0, (start, {**costs, "loss": loss}), test)


def fill(study, results):
    while waiting := left(all_tries(study, results), results):
        for cell in waiting:
            results.add(result_of(cell))
    for cell in left(study.cells(chosen(study, results)), results):
        results.add(result_of(cell))


@pytest.fixture
def results(tmp_path):
    kept = Results(tmp_path)
    fill(STUDY, kept)
    return kept


def verdicts(evidence):
    return {one.claim.judge.__name__.strip("_"): (one.verdict, one.figures) for one in judge([evidence])}


def test_claims_hold_where_results_are_as_the_papers_say(results):
    found = verdicts(Evidence(STUDY, results, TIMING))
    assert len(found) == len(CLAIMS)
    assert found.pop("bytes") == (
        "holds in part",
        "bytes per edge: seedflood 100,000, dsgd 10,000,000, choco 200,000, dsgd-lora 1,000,000, choco-lora 50,000",
    )
    assert {verdict for verdict, _ in found.values()} == {"holds"}, found
    assert found["hops"][1].startswith("full 0.901 (0.901 to 0.902), 8 hops")


def test_a_claim_does_not_hold_where_results_speak_against_it(results):
    slow = replace(TIMING, updates=(Applied(1024, 2.0, 30.0),))
    assert verdicts(Evidence(STUDY, results, slow))["aggregation"][0] == "does not hold here"


def test_a_claim_waits_for_all_its_seeds(results, tmp_path):
    few = Results(tmp_path / "few")
    for result in results:
        if not (dict(result.cell.options).get("rank") == 4 and result.cell.seed == 2):
            few.add(result)
    found = verdicts(Evidence(STUDY, few))
    assert found["rank"] == ("not measured", "-")
    assert found["aggregation"] == ("not measured", "-")
    assert found["hops"][0] == "holds"


def test_a_claim_has_a_line_for_each_study_that_measured_it(results):
    other = Study(replace(SHORT, seeds=(1,)), "large", "sst2", "d" * 16)
    fill(other, results)
    found = list(judge([Evidence(STUDY, results, TIMING), Evidence(other, results)]))
    lines = [(one.claim.judge.__name__, one.study) for one in found]
    assert lines[:2] == [("_bytes", "tiny, sst2, default"), ("_bytes", "large, sst2, short")]
    assert [study for name, study in lines if name in ("_rank", "_aggregation")] == ["tiny, sst2, default"] * 2
    assert "not measured" not in {one.verdict for one in found}


def test_a_situation_has_a_line_for_each_study_that_tells_of_it(results):
    other = Study(replace(SHORT, seeds=(1,)), "large", "sst2", "d" * 16, ["dsgd", "choco"])
    fill(other, results)
    found = [(one.situation.name, one.study) for one in choose([Evidence(STUDY, results), Evidence(other, results)])]
    assert found[:2] == [("phone-grade links", "tiny, sst2, default"), ("phone-grade links", "large, sst2, short")]
    assert found[2:4] == [
        ("no memory for activations", "tiny, sst2, default"),
        ("quantised weights, which a step must not write to", "tiny, sst2, default"),
    ], "DSGD and ChocoSGD can be used in neither"


def test_a_choice_says_how_many_methods_it_is_of(results, tmp_path):
    few = Results(tmp_path / "few")
    for result in results:
        if result.cell.method not in ("dzsgd",):
            few.add(result)
    found = {choice.situation.name: spell(choice)[1] for choice in choose([Evidence(STUDY, few)])}
    assert found["no memory for activations"].endswith("; 2 of 3 methods are measured")


def test_the_soonest_method_that_can_be_used_is_chosen(results):
    found = {choice.situation.name: spell(choice) for choice in choose([Evidence(STUDY, results)])}
    assert found["phone-grade links"][0] == "choco-lora"
    method, figures, _ = found["no memory for activations"]
    assert method == "seedflood"
    assert figures.startswith("20 Mbit/s, 30 ms: seedflood 2.3 s, ")
    assert not any(name in figures for name in ("dsgd", "mezo", "coefficients"))
    assert found["pre-training over unequal links"] == ("-", "not measured", "not measured"), (
        "it has a study of its own"
    )


def test_the_best_methods_in_the_end_stand_beside_the_soonest(results, tmp_path):
    found = {choice.situation.name: spell(choice) for choice in choose([Evidence(STUDY, results)])}
    assert found["no memory for activations"][2] == "seedflood 0.901, dzsgd 0.702, dzsgd-lora 0.702"
    without = Results(tmp_path / "without")
    for result in results:
        method, test = result.cell.method, result.test
        loss = {"loss": 0.25 if method == "diloco" else 0.5} if test else None
        without.add(replace(result, test=loss))
    soonest, _, best = spell(next(choose([Evidence(STUDY, without)])))
    assert soonest == "choco-lora"
    assert best.startswith("diloco loss 0.250, "), "there is no accuracy to compare"


def test_pre_training_is_chosen_for_by_the_study_from_scratch(results):
    scratch = Study(replace(PRETRAIN, seeds=(1,)), "tiny", "lm", "e" * 16)
    fill(scratch, results)
    *others, last = choose([Evidence(STUDY, results), Evidence(scratch, results)])
    assert {one.study for one in others} == {"tiny, sst2, default"}
    assert last.study == "tiny, lm, pretrain"
    assert {name for name, _ in last.seconds} == {"gasloc", "diloco", "d-adam", "dsgd"}
    assert spell(last)[0] == "gasloc"


def test_a_forecast_counts_what_is_left_once(results, tmp_path):
    assert all((share.left, share.seconds) == (0, 0) for share in forecast(STUDY, results, {}))
    few = Results(tmp_path / "few")
    for result in results:
        if result.cell.clients <= 16:
            few.add(result)
    shares = {share.title: share for share in forecast(STUDY, few, measured_speeds(STUDY, few))}
    cells = STUDY.cells(chosen(STUDY, results))
    assert sum(share.cells for share in shares.values()) == len(cells) + len(all_tries(STUDY, results))
    assert shares[BYTES].left == 0
    last = list(shares.values())[-1]
    waiting = [cell for cell in cells if cell.clients > 16]
    assert last.left == len(waiting)
    assert last.seconds == pytest.approx(sum(2.0 * cell.clients / 16 for cell in waiting))


def test_a_forecast_of_a_fresh_folder_rests_on_a_sample_with_gradients_and_one_without(tmp_path):
    fresh = Results(tmp_path)
    assert measured_speeds(STUDY, fresh) == {}
    speeds = sampled_speeds(STUDY, lambda cell: cell.work * (3.0 if METHODS[cell.method].order == "first" else 1.0))
    assert sorted(speeds.values()) == [1.0, 3.0]
    assert {METHODS[name].order for name in speeds} == {"first", "zeroth"}
    shares = {share.title: share for share in forecast(STUDY, fresh, speeds)}
    assert all(share.seconds > 0 for share in shares.values())
    only = replace(STUDY, methods=["dsgd"])
    assert list(sampled_speeds(only, lambda cell: 1.0)) == ["dsgd"]
