"""`python -m simulation`: what it says, and with which exit code it ends."""

import json

import pytest

from seedflood.errors import ExitCode
from simulation.__main__ import main


def run(monkeypatch, capsys, *arguments):
    """(exit code, stdout, stderr) of the command."""
    monkeypatch.setattr("sys.argv", ["simulation", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    captured = capsys.readouterr()
    return ended.value.code or 0, captured.out, captured.err


@pytest.mark.parametrize("closed", [[], ["--closed"]])
@pytest.mark.parametrize("mode", ["seedflood", "gasloc"])
def test_runs_of_every_mode_can_be_simulated(monkeypatch, capsys, mode, closed):
    how = ["--mode", mode, "--clients", "3", "--steps", "4", "--faults", "none", "--json", *closed]
    code, out, _ = run(monkeypatch, capsys, *how)
    assert (code, json.loads(out)["violations"], json.loads(out)["healed"]) == (0, [], True)


@pytest.mark.parametrize("window", ["strict", "bounded"])
def test_runs_by_reward_can_be_simulated(monkeypatch, capsys, window):
    how = ["--reward", "--clients", "3", "--steps", "4", "--window", window, "--json"]
    code, out, _ = run(monkeypatch, capsys, *how)
    assert (code, json.loads(out)["update_kind"], json.loads(out)["healed"]) == (0, "rewards", True)


@pytest.mark.parametrize(
    ("how", "said"),
    [
        (["--mode", "other"], "choose one of seedflood, gasloc"),
        (["--mode", "gasloc", "--window", "strict"], "--window is for --mode seedflood"),
        (["--mode", "gasloc", "--reward"], "--reward is for --mode seedflood"),
        (["--mode", "gasloc", "--faults", "amnesia"], "unknown fault profile"),
        (["--faults", "cuts"], "add --closed to --faults cuts"),
    ],
)
def test_what_cannot_be_simulated_is_a_usage_error(monkeypatch, capsys, how, said):
    code, _, err = run(monkeypatch, capsys, *how)
    assert code == ExitCode.USAGE
    assert said in " ".join(err.split())
