"""Real processes: signals, and what an operator sees of faults."""

import json
import signal
import socket
import subprocess
import sys

import pytest
from forks import run_command
from ledgers import finish

from seedflood.errors import ExitCode

pytestmark = pytest.mark.system

TRIANGLE = [(0, 1), (1, 2), (0, 2)]


def test_sigterm_drains_and_the_others_go_on(hosts):
    a, b, c = hosts.make(3, TRIANGLE, {"steps": 100}, {"patience_seconds": 1.0})
    for host in (a, b, c):
        host.start()
    c.wait_for("progress", step=10)
    c.signal(signal.SIGTERM)
    assert c.end() == ExitCode.OK
    a.wait_for("member left")
    assert [a.end(), b.end()] == [ExitCode.OK] * 2
    assert a.result()["digest"] == b.result()["digest"]


def test_sigterm_while_waiting_for_neighbours_ends_the_node(hosts):
    a, _ = hosts.make(2, [(0, 1)], {"steps": 10})
    a.start().wait_for("started")
    a.signal(signal.SIGTERM)
    assert a.end() == ExitCode.OK


def test_sighup_dials_the_peers_that_are_in_the_file_now(hosts):
    a, b = hosts.make(2, [(0, 1)], {"steps": 10})
    whole = (a.folder / "peers.toml").read_text()
    (a.folder / "peers.toml").write_text(whole.partition("[[peers]]")[0])
    (b.folder / "peers.toml").write_text((b.folder / "peers.toml").read_text().partition("[[peers]]")[0])
    a.start().wait_for("started")
    b.start().wait_for("started")
    (a.folder / "peers.toml").write_text(whole)
    a.signal(signal.SIGHUP)
    a.wait_for("reloaded")
    assert [a.end(), b.end()] == [ExitCode.OK] * 2
    assert a.result()["digest"] == b.result()["digest"]


def test_sighup_while_loading_is_heard_when_the_model_is_loaded(hosts):
    (a,) = hosts.make(1, [], {"steps": 10}, {"then": "serve"})
    a.start().wait_for("loading")
    file = a.folder / "peers.toml"
    file.write_text(file.read_text() + '\n[[peers]]\naddress = "127.0.0.1:1"\n')
    a.signal(signal.SIGHUP)
    assert a.wait_for("reloaded")["peers"] == ["127.0.0.1:1"]
    a.signal(signal.SIGTERM)
    assert a.end() == ExitCode.OK


def test_sighup_names_the_changes_that_wait_for_a_restart(hosts):
    (a,) = hosts.make(1, [], {"steps": 10}, {"then": "serve"})
    a.start().wait_for("finished")
    file = a.folder / "peers.toml"
    file.write_text(file.read_text().replace("steps = 10", "steps = 11") + '\n[[peers]]\naddress = "127.0.0.1:1"\n')
    a.signal(signal.SIGHUP)
    assert a.wait_for("other changes count after a restart only")["settings"] == ["run.steps"]
    assert a.wait_for("reloaded")["peers"] == ["127.0.0.1:1"]
    a.signal(signal.SIGTERM)
    assert a.end() == ExitCode.OK


def test_sigterm_while_loading_ends_the_node_at_once(hosts):
    (a,) = hosts.make(1, [], {"steps": 10})
    a.start().wait_for("loading")
    a.signal(signal.SIGTERM)
    assert a.end() == ExitCode.OK


@pytest.mark.long
def test_hosts_of_different_dtype_end_with_equal_digests_of_gradients_and_journals_that_replay(hosts):
    a, b = hosts.make(2, [(0, 1)], {"steps": 40, "refresh_period": 8, "estimate": "gradient"})
    settings = b.folder / "peers.toml"
    settings.write_text(settings.read_text().replace("[node]", '[node]\ndtype = "bfloat16"'))
    for host in (a, b):
        host.start()
    digest = finish([a, b])[0]["digest"]
    assert (a.settings.node.dtype, b.settings.node.dtype) == ("auto", "bfloat16")
    for host in (a, b):
        replayed = run_command("replay", "--peers", host.folder / "peers.toml", "--json")
        assert json.loads(replayed.stdout)["digest"] == digest


def test_a_finished_node_started_again_says_its_result_and_exits(hosts):
    a, b = hosts.make(2, [(0, 1)], {"steps": 10})
    assert [host.start().process is not None for host in (a, b)]
    assert [a.end(), b.end()] == [ExitCode.OK] * 2
    digest = a.result()["digest"]
    assert a.start("--set", "node.patience_seconds=1").end() == ExitCode.OK
    assert a.result()["digest"] == digest


def test_a_node_whose_peers_are_all_of_another_run_exits_and_names_both_runs(hosts):
    a, b = hosts.make(2, [(0, 1)], {"steps": 10})
    settings = b.folder / "peers.toml"
    settings.write_text(settings.read_text().partition("[[peers]]")[0])  # else it may be b that asks first, and goes
    b.start().wait_for("started")
    a.start("--set", "run.seedflood.rank=4")
    assert a.end() == ExitCode.RUN_MISMATCH
    assert b.settings.run.run_id().hex()[:16] in a.last_words
    assert "config check" in a.last_words


def test_a_used_port_is_told_with_its_exit_code(hosts):
    (a,) = hosts.make(1, [], {"steps": 10})
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        a.start("--listen", f"127.0.0.1:{other.getsockname()[1]}")
        assert a.end() == ExitCode.UNAVAILABLE
        assert not a.has_said("loading")
    assert "in use" in a.last_words


def test_a_broken_row_is_told_with_its_file_and_line(hosts, tmp_path):
    data = tmp_path / "rows"
    data.mkdir()
    good = json.dumps({"sentence": "the room was clean", "label": 1})
    (data / "validation.jsonl").write_text(f"{good}\n")
    (data / "train.jsonl").write_text(f'{good}\n{{"sentence": "the \n')
    (a,) = hosts.make(1, [], {"steps": 10, "task": "sst2"}, {"data": str(data)})
    assert a.start().end() == ExitCode.CONFIG
    assert "train.jsonl" in a.last_words
    assert "2" in a.last_words


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("run.model=/no/such/model", "/no/such/model"),
        ("run.stps=3", "steps"),
        ("node.listen=nowhere", "host:port"),
        ("node.device=cuda:99", "cuda"),
    ],
)
def test_a_wrong_setting_is_one_sentence_and_exit_code_78(hosts, setting, words):
    (a,) = hosts.make(1, [], {"steps": 10})
    assert a.start("--set", setting).end() == ExitCode.CONFIG
    assert words in a.last_words
    assert not any("Traceback" in str(line) for line in a.events)


def test_a_journal_of_another_run_is_refused(hosts):
    (a,) = hosts.make(1, [], {"steps": 10})
    assert a.start().end() == ExitCode.OK
    assert a.start("--set", "run.seedflood.rank=4").end() == ExitCode.CONFIG
    assert "belongs to run" in a.last_words


@pytest.mark.long
def test_seedflood_local_runs_a_cluster_to_the_end_and_export_rebuilds_it(tmp_path):
    folder, model = tmp_path / "run", tmp_path / "model"
    arguments = ["local", "--nodes", "3", "--steps", "20", "--folder", str(folder), "--export", str(model), "--json"]
    ran = run_command(*arguments)
    assert ran.returncode == 0, ran.stderr
    result = json.loads(ran.stdout)
    assert result["digests_equal"]
    assert {node["steps"] for node in result["nodes"]} == {20}
    assert {len(node["links"]) for node in result["nodes"]} == {2}
    exported = run_command("evaluate", "--model", str(model), "--task", "embedded", "--json")
    rebuilt = run_command("evaluate", "--peers", str(folder / "node-2" / "peers.toml"), "--json")
    loss, digest = result["nodes"][0]["loss_after"], result["nodes"][0]["digest"]
    card = (model / "README.md").read_text()
    assert all(f"| {told} |" in card for told in (digest, loss))
    assert json.loads(exported.stdout)["loss"] == pytest.approx(loss, abs=2e-3)
    assert json.loads(rebuilt.stdout)["loss"] == pytest.approx(loss, abs=1e-5)


@pytest.mark.long
def test_a_local_cluster_may_have_relays_which_hear_of_the_end_of_all_hosts():
    """The last words of the first of five hosts in a row have four links to go, and each of those hosts ends, too."""
    ran = run_command("local", "--nodes", 7, "--relays", 2, "--topology", "path", "--steps", 8, "--json")
    assert ran.returncode == 0, ran.stderr
    result = json.loads(ran.stdout)
    assert result["digests_equal"]
    assert [one["name"] for one in result["relays"]] == ["relay-6", "relay-7"]
    assert {one["updates"] for one in result["relays"]} == {40}


def test_two_interrupts_end_a_local_cluster_without_a_traceback(tmp_path):
    code = "from seedflood.cli import main; main()"
    command = [sys.executable, "-c", code, "local", "--nodes", "2", "--folder", str(tmp_path / "x")]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    while "importing" not in process.stderr.readline():
        pass
    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == ExitCode.TRY_AGAIN
    assert "stopped before the end" in errors
    assert "Traceback" not in errors


def test_seedflood_local_tells_which_setting_a_node_cannot_use_and_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("{}")
    ran = run_command("local", "--nodes", "2", "--model", str(tmp_path / "model"), "--task", "sst2")
    assert ran.returncode == ExitCode.CONFIG
    assert "seedflood: Cannot load a model from folder" in ran.stderr
    assert not list(tmp_path.glob("seedflood-*"))
    assert "Traceback" not in ran.stderr
