"""The commands without a daemon: help, settings, and faults."""

import errno
import fcntl
import hashlib
import io
import json
import os
import subprocess
import sys
import tomllib
from functools import partial
from pathlib import Path

import pytest
from rich.console import Console

from seedflood import cli
from seedflood.cli.faults import run_command
from seedflood.cli.options import parse_overrides
from seedflood.cluster.display import is_sound, show_result
from seedflood.config import RunSettings
from seedflood.errors import ConfigError, ExitCode
from seedflood.host.places import LOCK_FILE, hold, is_held, make_folder


def run(monkeypatch, capsys, entry, *arguments):
    """(exit code, stdout, stderr) of a command."""
    monkeypatch.setattr("sys.argv", ["seedflood", *arguments])
    with pytest.raises(SystemExit) as ended:
        entry()
    captured = capsys.readouterr()
    return ended.value.code or 0, captured.out, captured.err


@pytest.mark.parametrize("entry", [cli.main, cli.node_main])
def test_who_presses_ctrl_c_while_modules_are_read_sees_a_sentence(monkeypatch, capsys, entry):
    class Interrupted:
        @staticmethod
        def find_spec(name, *_):
            if name == "seedflood.cli.commands":
                raise KeyboardInterrupt

    monkeypatch.delattr("seedflood.cli.commands", raising=False)
    monkeypatch.delitem(sys.modules, "seedflood.cli.commands", raising=False)
    monkeypatch.setattr("sys.meta_path", [Interrupted, *sys.meta_path])
    code, _, errors = run(monkeypatch, capsys, entry)
    assert code == ExitCode.TRY_AGAIN
    assert "interrupted" in errors
    assert "Traceback" not in errors


@pytest.mark.parametrize(("entry", "words"), [(cli.main, ("config", "check")), (cli.node_main, ())])
def test_who_presses_ctrl_c_while_a_command_works_sees_a_sentence(monkeypatch, capsys, entry, words):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("seedflood.cli.commands.load_settings", interrupt)
    code, _, errors = run(monkeypatch, capsys, entry, *words)
    assert code == ExitCode.TRY_AGAIN
    assert "interrupted" in errors


def test_a_folder_whose_name_is_no_text_is_told_in_a_sentence(tmp_path):
    folder = os.fsencode(tmp_path) + b"/sur\xff"
    program = [sys.executable, "-c", "from seedflood import cli; cli.main()"]
    ran = subprocess.run(
        [*program, "local", "--nodes", "1", "--steps", "1", "--export", folder], capture_output=True, check=False
    )
    assert ran.returncode == ExitCode.CONFIG
    assert "is no text in UTF-8" in ran.stderr.decode()
    assert "sur\\udcff" in ran.stderr.decode()


@pytest.mark.parametrize("entry", [cli.main, cli.node_main])
def test_help_names_the_exit_codes(monkeypatch, capsys, entry):
    code, out, _ = run(monkeypatch, capsys, entry, "--help")
    assert code == 0
    assert "78 config" in " ".join(out.split())


def test_config_check_says_the_run_id(monkeypatch, capsys, tmp_path):
    path = tmp_path / "peers.toml"
    path.write_text("[run]\nsteps = 3\n")
    code, out, _ = run(monkeypatch, capsys, cli.main, "config", "check", "--peers", str(path))
    assert code == 0
    assert "is valid" in out


@pytest.mark.parametrize("entry", [cli.main, cli.node_main])
def test_a_missing_settings_file_is_one_sentence_and_exit_code_78(monkeypatch, capsys, entry):
    arguments = ["--peers", "/no/peers.toml"]
    code, out, err = run(monkeypatch, capsys, entry, *(["config", "check"] if entry is cli.main else []), *arguments)
    assert code == ExitCode.CONFIG
    assert out == ""
    assert "/no/peers.toml does not exist" in err
    assert "Traceback" not in err


@pytest.mark.parametrize(
    "command",
    [
        "cli.node_main, 'seedflood-node', '--data', './rows'",
        "cli.main, 'seedflood', 'local', '--data', './rows', '--task', 'sst2'",
        "cli.main, 'seedflood', 'evaluate', '--model', 'embedded', '--data', './rows'",
        "study.main, 'study', '--dry-run', '--out', 'out', '--data', './rows'",
    ],
)
def test_a_missing_file_is_told_before_torch_is_imported(tmp_path, command):
    (tmp_path / "rows").mkdir()
    (tmp_path / "peers.toml").write_text("[run]\n")
    program = (
        f"import sys; sys.path.append({str(Path(__file__).parents[1])!r})\n"
        "from seedflood import cli; from study import __main__ as study\n"
        f"entry, *sys.argv = {command}\n"
        "try: entry()\n"
        "except SystemExit as ended: print(ended.code, 'torch' in sys.modules)"
    )
    ran = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "rows is empty; put rows there, or correct [node] data" in ran.stderr
    assert ran.stdout.split() == [str(int(ExitCode.CONFIG)), "False"]


@pytest.mark.parametrize(
    ("score", "sentence"),
    [
        ("best", 'There is no score "best": use one of exact,'),
        ("regex:(", 'The score "regex:(" has no valid pattern'),
        ("mine.py:best", 'score = "mine.py:best" is a file: name its whole path, the same on all hosts'),
    ],
)
def test_a_score_that_cannot_be_used_is_told_before_pytorch_is_imported(monkeypatch, capsys, tmp_path, score, sentence):
    (tmp_path / "rows.csv").write_text("prompt,answer\n" + "".join(f"{k},a\n" for k in range(40)))
    (tmp_path / "peers.toml").write_text(
        f'[run.objective]\ntask = "reward"\nscore = "{score}"\n[node]\ndata = "rows.csv"\n'
    )
    monkeypatch.setattr("seedflood.cluster.local.start_nodes", None)
    local = ("--task", "reward", "--data", str(tmp_path / "rows.csv"), "--set", f"run.objective.score={score}")
    for command in (
        (cli.main, "config", "check", "--peers", str(tmp_path / "peers.toml")),
        (cli.node_main, "--peers", str(tmp_path / "peers.toml")),
        (cli.main, "local", *local),
    ):
        code, _, err = run(monkeypatch, capsys, *command)
        assert code == ExitCode.CONFIG
        assert sentence in err.replace('\\"', '"')
    assert not (tmp_path / "seedflood-state").exists()


@pytest.mark.parametrize(
    ("allow_code", "digest", "sentence"),
    [
        ("false", hashlib.sha256(b"").hexdigest(), 'mine.py:best" is code: set allow_code = true in [node]'),
        ("true", "0" * 64, "mine.py has the SHA-256 e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"),
    ],
)
def test_a_score_in_a_file_that_may_not_run_is_told_before_anything_starts(
    monkeypatch, capsys, tmp_path, allow_code, digest, sentence
):
    (tmp_path / "rows.csv").write_text("prompt,answer\n" + "".join(f"{k},a\n" for k in range(40)))
    (tmp_path / "mine.py").write_text("")
    monkeypatch.setattr("seedflood.cluster.local.start_nodes", None)
    told = {
        "run.objective.score": f"{tmp_path / 'mine.py'}:best",
        "run.objective.score_sha256": digest,
        "node.allow_code": allow_code,
    }
    flags = [part for key, value in told.items() for part in ("--set", f"{key}={value}")]
    rows = ("--task", "reward", "--data", str(tmp_path / "rows.csv"))
    code, _, err = run(monkeypatch, capsys, cli.main, "local", *rows, *flags)
    assert code == ExitCode.CONFIG
    assert sentence in err


def test_a_second_process_with_the_same_state_folder_is_refused_and_leaves_the_address_of_the_first(
    monkeypatch, capsys, tmp_path
):
    """Before PyTorch is imported and anything is written."""
    (tmp_path / "peers.toml").write_text('[run.objective]\ntask = "embedded"\n')
    (tmp_path / "seedflood-state").mkdir()
    (tmp_path / "seedflood-state" / "http.json").write_text("{}")
    held = os.open(tmp_path / "seedflood-state" / LOCK_FILE, os.O_RDWR | os.O_CREAT)
    fcntl.flock(held, fcntl.LOCK_EX)
    assert is_held(tmp_path / "seedflood-state")
    monkeypatch.setattr("seedflood.host.places.HOLD_SECONDS", 0.0)
    code, _, err = run(monkeypatch, capsys, cli.node_main, "--peers", str(tmp_path / "peers.toml"))
    os.close(held)
    assert code == ExitCode.TRY_AGAIN
    assert "another seedflood process uses the state folder" in err
    assert {path.name for path in (tmp_path / "seedflood-state").iterdir()} == {"http.json", LOCK_FILE}


def test_a_state_folder_that_cannot_be_locked_is_not_said_to_be_in_use(monkeypatch, tmp_path):
    def refuse(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    (tmp_path / LOCK_FILE).touch()
    monkeypatch.setattr("fcntl.flock", refuse)
    assert not is_held(tmp_path)
    with pytest.raises(ConfigError, match="No locks available; set"):
        hold(tmp_path)


@pytest.mark.parametrize("command", ["status", "events", "doctor", "replay", "evaluate", "generate", ""])
def test_another_user_than_that_of_the_node_is_told_whose_command_it_is(monkeypatch, capsys, tmp_path, command):
    path, state = tmp_path / "peers.toml", make_folder(tmp_path / "seedflood-state")
    path.write_text("[run]\nsteps = 3\n")

    def closed(use, path, *given, **named):
        if isinstance(path, str | Path) and state in Path(path).parents:
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return use(path, *given, **named)

    for module, name in ((os, "open"), (os, "stat"), (io, "open")):  # for root no file is closed
        monkeypatch.setattr(module, name, partial(closed, getattr(module, name)))
    words = [*command.split(), "--peers", str(path), *(["once"] if command == "generate" else [])]
    code, _, err = run(monkeypatch, capsys, cli.main if command else cli.node_main, *words)
    assert code == ExitCode.CONFIG
    assert f"{state}/" in err
    assert "run the command as the user of the node (sudo -u USER)" in err


def test_a_settings_file_that_says_nothing_is_not_valid(monkeypatch, capsys, tmp_path):
    (tmp_path / "peers.toml").touch()
    code, _, err = run(monkeypatch, capsys, cli.main, "config", "check", "--peers", str(tmp_path / "peers.toml"))
    assert (code, "peers.toml is empty" in err) == (ExitCode.CONFIG, True)


def test_config_show_prints_what_the_layers_make(monkeypatch, capsys, tmp_path):
    path = tmp_path / "peers.toml"
    path.write_text("[run]\nsteps = 3\n")
    code, out, _ = run(
        monkeypatch, capsys, cli.main, "config", "show", "--peers", str(path), "--set", "run.seedflood.rank=8"
    )
    shown = json.loads(out)["run"]
    assert (code, shown["steps"], shown["seedflood"]["rank"]) == (0, 3, 8)


def test_brackets_in_a_fault_are_shown_as_they_are(monkeypatch, capsys, tmp_path):
    path = tmp_path / "peers.toml"
    path.write_text('[run]\nrnk = "[/x]"\n')
    code, _, err = run(monkeypatch, capsys, cli.main, "config", "check", "--peers", str(path))
    assert code == ExitCode.CONFIG
    assert '[run] has no key "rnk"' in err
    code, _, err = run(monkeypatch, capsys, cli.main, "config", "check", "--set", "[/x]")
    assert code == ExitCode.USAGE
    assert "[/x]" in err


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (OSError(errno.EMFILE, "Too many open files"), "too many open files: raise the limit"),
        (OSError(errno.ENFILE, "Too many open files in system"), "too many open files: raise the limit"),
        (RuntimeError("can't start new thread"), "no more threads may be started: raise the limit"),
    ],
)
def test_a_process_that_may_have_no_more_is_told_which_limit_to_raise(capsys, error, sentence):
    def command(prog_name):
        raise error

    with pytest.raises(SystemExit) as ended:
        run_command(command, "seedflood-node")
    assert ended.value.code == ExitCode.TRY_AGAIN
    assert sentence in json.loads(capsys.readouterr().err)["event"]


@pytest.mark.parametrize("kind", [MemoryError, RuntimeError, type("OutOfMemoryError", (RuntimeError,), {})])
@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 8 GiB", "CUDA out of memory"),
        (
            "MPS backend out of memory (MPS allocated: 5.05 GiB, max allowed: 6.77 GiB). Tried to allocate 1.00 GiB",
            "MPS backend out of memory (MPS allocated: 5.05 GiB, max allowed: 6.77 GiB)",
        ),
        (
            "[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to "
            "allocate 70368744177664 bytes. Error code 12 (Cannot allocate memory)",
            "DefaultCPUAllocator: can't allocate memory: you tried to allocate 70368744177664 bytes",
        ),
    ],
)
def test_too_little_memory_is_one_sentence_that_says_what_to_do(capsys, kind, text, words):
    def command(prog_name):
        raise kind(text)

    with pytest.raises(SystemExit) as ended:
        run_command(command, "seedflood-node")
    assert ended.value.code == ExitCode.INTERNAL
    said = json.loads(capsys.readouterr().err)["event"]
    assert f"too little memory ({words})" in said
    assert "micro_batch = 1" in said


@pytest.mark.parametrize(
    ("command", "code", "said"),
    [
        ("config show >/dev/full", ExitCode.DISK, "there is no space for what is written"),
        ("events --events . >/dev/full", ExitCode.DISK, "there is no space for what is written"),
        ("doctor >&-", ExitCode.DISK, "stdout is closed"),
        ("config show", 1, ""),
        ("events --events .", 1, ""),
    ],
)
def test_an_output_that_takes_nothing_is_told_but_for_a_reader_who_has_left(tmp_path, command, code, said):
    (tmp_path / "peers.toml").write_text("[run]\n")
    (tmp_path / "events.jsonl").write_text('{"time": "", "level": "info", "event": "x"}\n' * 10)
    reader, writer = os.pipe()
    os.close(reader)
    shell = ["sh", "-c", f'exec "$0" -c "from seedflood.cli import main; main()" {command}', sys.executable]
    ran = subprocess.run(shell, cwd=tmp_path, stdout=writer, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writer)
    assert ran.returncode == code
    assert said in ran.stderr
    assert len(ran.stderr.splitlines()) == bool(said)


def test_an_unknown_option_is_a_usage_error(monkeypatch, capsys):
    code, _, err = run(monkeypatch, capsys, cli.main, "local", "--nods", "3")
    assert code == ExitCode.USAGE
    assert "--nods" in err


def test_evaluate_wants_a_model_or_a_node(monkeypatch, capsys):
    code, _, err = run(monkeypatch, capsys, cli.main, "evaluate")
    assert code == ExitCode.USAGE
    assert "--peers or --model" in " ".join(err.split())


@pytest.mark.parametrize("override", ["rank=3", "run.seedflood.rank"])
def test_a_malformed_override_shows_a_right_one(override):
    with pytest.raises(ConfigError, match=r"--set run\.seedflood\.rank=16"):
        parse_overrides([override])


@pytest.mark.parametrize(
    ("override", "said"),
    [("rnu.steps=3", 'no section or key "rnu"; did you mean "run"?'), ("run.a.b=3", '[run] has no key "a"; known are')],
)
def test_an_override_of_a_section_that_does_not_exist_is_told_as_in_a_file(monkeypatch, capsys, override, said):
    code, _, err = run(monkeypatch, capsys, cli.main, "config", "show", "--set", override)
    assert (code, said in " ".join(err.split())) == (ExitCode.CONFIG, True), err


def test_without_a_file_all_settings_are_shown(monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(tmp_path)
    code, out, err = run(monkeypatch, capsys, cli.main, "config", "show", "--set", "run.steps=3")
    assert (code, json.loads(out)["run"]["steps"]) == (0, 3), err


def test_overrides_are_toml_or_text():
    parsed = parse_overrides(
        [
            "run.steps=8",
            "run.seedflood.rank=4",
            "run.seedflood.delay=1",
            "node.name=alpha",
            'run.objective.label_words=["a"]',
        ]
    )
    assert parsed["run"] == {"steps": 8, "seedflood": {"rank": 4, "delay": 1}, "objective": {"label_words": ["a"]}}
    assert parsed["node"] == {"name": "alpha"}


def test_a_file_that_is_no_model_is_told_at_once_and_not_asked_of_the_hub(monkeypatch, capsys, tmp_path):
    (tmp_path / "rows.csv").touch()
    code, _, err = run(monkeypatch, capsys, cli.main, "local", "--model", str(tmp_path / "rows.csv"))
    assert (code, "rows.csv is a file; name the folder of the model as model in [run]" in err) == (
        ExitCode.CONFIG,
        True,
    )


def test_a_key_of_another_table_is_told_where_it_belongs(monkeypatch, capsys):
    code, _, err = run(monkeypatch, capsys, cli.main, "local", "--nodes", "2", "--set", "run.rank=8")
    assert code == ExitCode.CONFIG
    assert err == 'seedflood: [run] has no key "rank"; it belongs to [run.seedflood].\n'


CLASSIFICATION = {"accuracy_before": 0.465, "accuracy_after": 0.992, "loss_before": 0.771, "loss_after": 0.051}
LANGUAGE = {
    "perplexity_before": 1234.5,
    "perplexity_after": 12.345,
    "loss_before": 7.118,
    "loss_after": 2.513,
    "accuracy_before": 0.1,
    "accuracy_after": 0.2,
}


@pytest.mark.parametrize(
    ("figures", "cells"),
    [
        (CLASSIFICATION, ["accuracy", "0.465 → 0.992", "loss", "0.771 → 0.051"]),
        (LANGUAGE, ["perplexity", "1234 → 12.345", "loss", "7.118 → 2.513"]),
        (LANGUAGE | {"perplexity_after": 1e304}, ["1234 → 1e+304", "7.118 → 2.513"]),
    ],
)
def test_the_table_of_a_cluster_fits_a_terminal_of_eighty_columns(figures, cells):
    links = [{"peer": f"node-{k}", "bytes_sent": 65_700, "bytes_received": 160_900} for k in (2, 4)]
    node = {"name": "node-1", "steps": 250, "spent_seconds": 117.4, "digest": "0b0ea459ff", "links": links, **figures}
    console = Console(width=80, record=True, file=io.StringIO())
    show_result({"run_id": "7b6c" * 8, "seconds": 153.5, "nodes": [node], "digests_equal": True}, console)
    shown = console.export_text()
    assert "…" not in shown
    assert "node-4: 65.7 / 160.9" in shown
    assert all(cell in shown for cell in cells)


def test_of_how_many_texts_a_reward_is_stands_below_the_table_of_a_cluster():
    node = {"name": "node-1", "steps": 250, "spent_seconds": 9.0, "digest": "0b0ea459ff", "links": []}
    node |= {"reward_before": 0.25, "reward_after": 0.75, "evaluated": {"rows": 16, "texts": 128}}
    console = Console(width=80, record=True, file=io.StringIO())
    show_result({"run_id": "7b6c" * 8, "seconds": 9.0, "nodes": [node], "digests_equal": True}, console)
    assert "The reward is the mean of 128 texts after 16 rows for validation." in console.export_text()


def test_what_went_wrong_on_the_way_stands_below_the_table_of_a_cluster():
    node = {"name": "node-1", "steps": 250, "spent_seconds": 9.0, "digest": "0b0ea459ff", "links": []}
    console = Console(width=80, record=True, file=io.StringIO())
    errors = {"node-1": "the loss has risen far above its best; see [node]"}
    result = {"run_id": "7b6c" * 8, "seconds": 9.0, "nodes": [node | CLASSIFICATION], "digests_equal": True}
    show_result(result | {"errors": errors}, console)
    assert console.export_text().endswith("\nnode-1 said: the loss has risen far above its best; see [node]\n")


def test_the_table_of_a_cluster_shows_what_a_token_cost():
    node = {"name": "node-1", "steps": 250, "spent_seconds": 9.0, "digest": "0b0ea459ff", "links": []}
    result = {
        "run_id": "7b6c" * 8,
        "mode": "gasloc",
        "seconds": 9.0,
        "nodes": [node | LANGUAGE],
        "digests_equal": True,
        "tokens_per_second": 12_345.6,
        "bytes_per_token": 4.25,
    }
    console = Console(width=80, record=True, file=io.StringIO())
    show_result(result, console)
    shown = console.export_text()
    assert "run 7b6c7b6c7b6c7b6c: 250 steps" in shown
    assert "All together took 12,346 tokens per second, and sent 4.2 bytes for each." in shown


def test_config_check_names_the_run(monkeypatch, capsys, tmp_path):
    (tmp_path / "peers.toml").write_text('[run]\nname = "first"\n')
    code, out, _ = run(monkeypatch, capsys, cli.main, "config", "check", "--peers", str(tmp_path / "peers.toml"))
    assert code == 0
    assert out == f"{tmp_path}/peers.toml is valid: run first, id {RunSettings(name='first').shown_id()}\n"


@pytest.mark.parametrize(
    ("mode", "said"), [("seedflood", "The digests differ."), ("gasloc", "differ, as they may: by 3.0%")]
)
def test_replicas_that_differ_are_a_fault_only_if_they_should_not(mode, said):
    node = {
        "name": "a",
        "steps": 4,
        "spent_seconds": 1.0,
        "digest": "0b0ea459ff",
        "links": [],
        "consensus_distance": 0.03,
    }
    result = {"run_id": "7b6c" * 8, "mode": mode, "seconds": 1.0, "nodes": [node], "digests_equal": False}
    console = Console(width=80, record=True, file=io.StringIO())
    show_result(result, console)
    assert said in console.export_text()
    assert is_sound(result) is (mode == "gasloc")


@pytest.mark.parametrize(
    ("mode", "options", "said"),
    [
        ("seedflood", ["--folder", "kept"], "generate --peers kept/node-1/peers.toml PROMPT"),
        ("gasloc", ["--folder", "kept", "--export", "made"], "generate --model made PROMPT"),
        ("gasloc", ["--folder", "kept"], None),
    ],
)
def test_local_names_a_command_that_can_show_what_the_model_says(monkeypatch, capsys, mode, options, said):
    result = {"run_id": "7b6c" * 8, "mode": mode, "digests_equal": True}
    monkeypatch.setattr("seedflood.cluster.local.run_cluster", lambda plan, folder: result)
    monkeypatch.setattr("seedflood.cluster.display.show_result", lambda result, console: None)
    code, out, _ = run(monkeypatch, capsys, cli.main, "local", *options)
    assert code == 0
    assert said in out if said else "To see" not in out


def test_who_makes_a_run_is_asked_for_the_task_that_columns_do_not_tell(monkeypatch, capsys, tmp_path):
    (tmp_path / "rows.csv").write_text("question,answer\na,b\nc,d\n")
    code, out, err = run(monkeypatch, capsys, cli.main, "local", "--data", str(tmp_path / "rows.csv"))
    assert (code, out) == (ExitCode.CONFIG, "")
    assert "which do not tell what is learned: say --task lm --set 'run.objective.template=\"{answer}\"'" in err


@pytest.mark.parametrize(
    ("host", "place"), [("alpha=127.0.0.1:7070", "{}/rows.csv"), ("alpha=10.0.0.1:7070", "rows.csv")]
)
def test_paths_of_a_new_run_begin_here_if_its_hosts_are_here_and_else_in_their_folders(
    monkeypatch, capsys, tmp_path, host, place
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rows.csv").write_text("text\na\nb\n")
    flags = ("--steps", "7", "--estimate", "gradient", "--model", "facebook/opt-125m")
    code, out, err = run(monkeypatch, capsys, cli.main, "init", host, "--data", "rows.csv", *flags)
    assert code == 0, err
    settings = tomllib.loads((tmp_path / "run/alpha/peers.toml").read_text())
    assert settings["node"]["data"] == place.format(tmp_path)
    assert ("each host looks for its rows there" in out) is (place == "rows.csv")
    told = settings["run"]
    assert (told["steps"], told["model"], told["seedflood"]["estimate"]) == (7, "facebook/opt-125m", "gradient")
    assert "train_examples" not in told


TUNED = ("--rank", "8", "--learning-rate", "0.01", "--batch-size", "4")


@pytest.mark.parametrize(
    ("flags", "algorithm", "expected"),
    [
        (TUNED, "seedflood", {"rank": 8, "learning_rate": 0.01}),
        ((*TUNED[2:], "--set", "run.mode=gasloc"), "gasloc", {"learning_rate": 0.01}),
        ((*TUNED, "--set", "run.seedflood.rank=4"), "seedflood", {"rank": 4, "learning_rate": 0.01}),
        (("--lr", "0.5", "--batch-size", "4"), "seedflood", {"learning_rate": 0.5}),
        (("--size", "small", "--batch-size", "4"), "seedflood", {"estimate": "gradient", "rank": 5}),
        (("--size", "large", "--batch-size", "4"), "seedflood", {"estimate": "gradient", "rank": 32}),
        ((*TUNED, "--size", "small", "--estimate", "gradient"), "seedflood", {"estimate": "gradient", "rank": 8}),
    ],
)
def test_size_rank_rate_and_batch_size_are_options_and_what_is_set_by_key_is_stronger(
    monkeypatch, capsys, tmp_path, flags, algorithm, expected
):
    plans = []
    monkeypatch.setattr("seedflood.cluster.local.run_cluster", lambda plan, _: plans.append(plan) or {}["over"])
    run(monkeypatch, capsys, cli.main, "local", "--nodes", "1", *flags)
    made = tmp_path / "run"
    code, _, err = run(monkeypatch, capsys, cli.main, "init", "alpha", "--out", str(made), *flags)
    assert code == 0, err
    for told in (plans[0].overrides["run"], tomllib.loads((made / "alpha/peers.toml").read_text())["run"]):
        assert told["batch_size"] == 4
        assert {key: told[algorithm][key] for key in expected} == expected


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (("--rank", "0"), "greater than or equal to 1"),
        (("--rank", "2000"), "less than or equal to 1024"),
        (("--batch-size", "0"), "greater than or equal to 1"),
        (("--learning-rate", "0"), "it must be a number above 0, and is 0.0"),
        (("--learning-rate", "nan"), "it must be a number above 0, and is nan"),
        (("--lr", "fast"), "should be a valid number"),
        (("--size", "huge"), "'huge' is not one of"),
        (("--size", "small", "--estimate", "two-sided"), "an update of two-sided has one size"),
        (("--size", "small", "--set", "run.mode=gasloc"), "--estimate, --size and --rank are for"),
        (("--rank", "8", "--set", "run.mode=gasloc"), 'are for mode "seedflood"; with mode "gasloc" leave them out'),
    ],
)
@pytest.mark.parametrize("command", [("local",), ("init", "alpha")])
def test_a_size_rank_rate_or_batch_size_that_cannot_be_is_one_sentence(
    monkeypatch, capsys, tmp_path, command, flags, sentence
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("seedflood.cluster.local.run_cluster", None)
    monkeypatch.setenv("COLUMNS", "200")
    code, _, err = run(monkeypatch, capsys, cli.main, *command, *flags)
    assert code == ExitCode.USAGE
    assert sentence in err


def test_a_new_run_has_the_task_that_its_rows_tell(monkeypatch, capsys, tmp_path):
    (tmp_path / "rows.jsonl").write_text('{"prompt": "a", "completion": "b"}\n{"prompt": "c", "completion": "d"}\n')
    flags = ("--data", str(tmp_path / "rows.jsonl"), "--out", str(tmp_path / "run"))
    code, out, _ = run(monkeypatch, capsys, cli.main, "init", "alpha", *flags)
    assert (code, "rows.jsonl: task completion" in out) == (0, True)
    assert 'task = "completion"' in (tmp_path / "run/alpha/peers.toml").read_text()


@pytest.mark.parametrize(
    ("flags", "task"),
    [((), None), (("--task", "lm"), "lm"), (("--mode", "gasloc"), "lm"), (("--set", "run.objective.task=lm"), "lm")],
)
def test_rows_that_are_on_the_hosts_alone_need_a_task(monkeypatch, capsys, tmp_path, flags, task):
    told = ("init", "alpha", "--data", "rows.jsonl", "--out", str(tmp_path / "run"), *flags)
    code, _, err = run(monkeypatch, capsys, cli.main, *told)
    assert code == (ExitCode.USAGE if task is None else 0), err
    if task is None:
        assert "rows.jsonl is not here, so its rows do not show the task: name it with --task." in " ".join(err.split())
        assert not (tmp_path / "run").exists()
    else:
        assert f'task = "{task}"' in (tmp_path / "run/alpha/peers.toml").read_text()
