"""A whole study in small, by real processes."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from study.__main__ import main

METHODS = "seedflood,dsgd"
OF_CHECKOUT = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
"""Where a script elsewhere finds the study."""

KILLED = """
import os, signal, sys
from pathlib import Path
from study import harness
from study.plan import SMOKE, Study
from study.results import Results
from study.rows import objective_of, split

def told(doing, ended, done, total):
    if ended is not None:
        os.kill(os.getpid(), signal.SIGKILL)

if __name__ == "__main__":
    out = Path(sys.argv[1])
    rows = split(objective_of("embedded"), None, SMOKE.rows, out / "rows")
    study = Study(SMOKE, "embedded", "embedded", rows.digest, sys.argv[2].split(","))
    harness.run(study, rows, Results(out), 1, told)
"""


def test_a_dry_run_in_a_fresh_folder_says_how_long_it_takes_and_how_it_knows(tmp_path, monkeypatch, capsys):
    arguments = ["--dry-run", "--plan", "smoke", "--out", str(tmp_path), "--methods", METHODS, "--json"]
    monkeypatch.setattr("sys.argv", ["study", *arguments])
    with pytest.raises(SystemExit):
        main()
    facts = json.loads(capsys.readouterr().out)
    assert facts["Accuracy against bytes"] == "2 of 2 cells left"
    assert 0 <= facts["hours"] < 1
    assert facts["hours rest on"].startswith("a few steps of dsgd and seedflood, measured just now")
    assert not (tmp_path / "results.jsonl").exists()


@pytest.mark.long
def test_a_study_that_is_killed_goes_on_where_it_was(tmp_path, monkeypatch, capsys):
    script = tmp_path / "killed.py"
    script.write_text(KILLED)
    command = [sys.executable, str(script), str(tmp_path), METHODS]
    # It returns when the last process has ended.
    killed = subprocess.run(command, capture_output=True, timeout=120, env=OF_CHECKOUT)
    assert killed.returncode == -signal.SIGKILL
    results = tmp_path / "results.jsonl"
    first = results.read_text()
    assert first.count("\n") == 1

    arguments = ["--plan", "smoke", "--out", str(tmp_path), "--methods", METHODS, "--jobs", "1", "--json"]
    monkeypatch.setattr("sys.argv", ["study", *arguments])
    for _ in range(2):  # the second time there is nothing left to do
        with pytest.raises(SystemExit) as end:
            main()
        assert end.value.code == 0
        assert json.loads(capsys.readouterr().out)["cells"] == 4
        assert results.read_text().startswith(first)
        assert results.read_text().count("\n") == 4
    assert "2 of 2 cells are measured" in (tmp_path / "study.md").read_text()
    final = [one for one in map(json.loads, results.read_text().splitlines()) if one["cell"]["is_test"]]
    assert {one["cell"]["method"] for one in final} == set(METHODS.split(","))
    for one in final:
        assert 0 < one["test"]["loss"] < 2
        assert [point["steps"] for point in one["course"]] == [0, 2, 4]
        assert one["course"][-1]["edge_bytes"] > 0
        assert one["commit"]
