"""What people see of a cluster while it runs."""

import json
import os
import select
import signal
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest

from seedflood.cluster import display, local
from seedflood.cluster import plan as planning
from seedflood.cluster.display import LoggedNode, Picture
from seedflood.cluster.plan import ClusterPlan, write_settings
from seedflood.cluster.processes import start_nodes
from seedflood.config import load_settings
from seedflood.errors import ConfigError, SeedfloodError
from seedflood.host.places import KEY_FILE
from seedflood.host.seedflood.engine import WORTHLESS
from seedflood.identity import Identity


@pytest.fixture
def plan():
    return ClusterPlan(
        nodes=2,
        topology="ring",
        model="embedded",
        task="lm",
        data="embedded",
        steps=800,
        train_examples=None,
        seed=1,
        evaluate_every=100,
        overrides={"run": {"mode": "gasloc"}},
    )


@pytest.fixture
def cluster(plan, tmp_path):
    return local._Cluster(
        [LoggedNode(one.name, one, steps, False) for one, steps in write_settings(plan, tmp_path).items()], plan.clients
    )


def line_of(cluster):
    return Picture(cluster.hosts, cluster._console)._line()


def test_all_hosts_have_the_same_run_and_the_first_alone_evaluates_on_the_way(cluster):
    settings = [load_settings(host.folder / "peers.toml") for host in cluster.hosts]
    assert len({one.run.run_id() for one in settings}) == 1
    run = settings[0].run
    assert (run.mode, run.steps, run.seed, run.clients) == ("gasloc", 800, 1, 2)
    assert [one.node.evaluate_every > 0 for one in settings] == [True, False]


def test_a_wrong_setting_is_not_said_to_be_in_a_file_that_nobody_wrote(plan, tmp_path):
    with pytest.raises(ConfigError, match=r'^\[run\] has no key "stepz"'):
        write_settings(replace(plan, overrides={"run": {"stepz": 3}}), tmp_path)


def test_what_keys_decide_follows_from_the_seed_so_a_run_can_be_repeated(plan, tmp_path):
    """Rows and directions do."""
    origins = {}
    for name, seed in (("first", 1), ("again", 1), ("other", 2)):
        folders = write_settings(replace(plan, seed=seed), tmp_path / name)
        identities = [Identity.load_or_create(folder / "state" / KEY_FILE) for folder in folders]
        assert all(one.is_fresh for one in identities)
        origins[name] = [one.origin for one in identities]
    assert origins["first"] == origins["again"]
    assert len({*origins["first"], *origins["other"]}) == 4


@pytest.mark.parametrize("event", [WORTHLESS, "score of a text took too long"])
def test_what_is_wrong_with_a_score_is_told_at_once(event):
    assert local._is_of_score({"level": "warning", "event": event})


@pytest.fixture
def relayed(plan):
    return replace(plan, nodes=5, relays=2, overrides={})


def test_the_last_nodes_relay_and_nobody_waits_for_them(relayed, tmp_path):
    settings = [load_settings(folder / "peers.toml") for folder in write_settings(relayed, tmp_path)]
    assert [one.node.role for one in settings] == ["train"] * 3 + ["relay"] * 2
    assert [one.node.name for one in settings[2:]] == ["node-3", "relay-4", "relay-5"]
    assert [one.node.shard for one in settings[:3]] == ["1/3", "2/3", "3/3"]
    assert {(one.run.run_id(), one.run.clients) for one in settings} == {(settings[0].run.run_id(), 3)}


def test_relays_alone_train_nothing(relayed, tmp_path):
    with pytest.raises(ConfigError, match="5 relays of 5 nodes leave none that trains; start more nodes"):
        write_settings(replace(relayed, relays=5), tmp_path)


@pytest.mark.long
def test_a_relay_that_hears_of_no_host_is_ended_and_named(relayed, tmp_path, monkeypatch):
    monkeypatch.setattr(local, "STOP_SECONDS", 1.0)
    monkeypatch.setattr(planning, "make_topology", lambda *_, **__: [(0, 1)])
    alone = replace(relayed, nodes=3, relays=1, steps=4, task="embedded", data=None)
    with pytest.raises(SeedfloodError, match=r"relay-3: no result; was the run too short for it\? \(log: .*relay-3"):
        local.run_cluster(alone, tmp_path / "home")


@pytest.mark.parametrize("digest", ["aa", "bb"])
def test_a_relay_must_tell_the_digest_of_the_hosts_and_has_no_figures(digest):
    shared = {"run_id": "00", "run": "local", "mode": "seedflood", "steps": 8, "links": []}
    host = {**shared, "name": "node-1", "spent_seconds": 2.0, "loss_before": 2.0, "loss_after": 1.0, "digest": "aa"}
    relay = {**shared, "name": "relay-2", "role": "relay", "updates": 8, "digest": digest}
    run = local._describe_run([host, relay], [])
    assert run["digests_equal"] is (digest == "aa")
    assert [one["name"] for one in run["nodes"]] == ["node-1"]
    assert run["relays"] == [{"name": "relay-2", "updates": 8, "digest": digest, "links": []}]


def test_the_progress_of_a_relay_has_no_loss(cluster):
    cluster.hosts[0].learn(progress(8, 800, 5000))
    cluster.hosts[1].learn({"event": "progress", "step": 7, "steps": 800, "updates": 14, "peers": 1})
    assert "step 7/800  loss 2.000" in line_of(cluster)


def progress(step, steps, sent):
    facts = {"event": "progress", "step": step, "steps": steps, "loss": 2.0, "peers": 1, "spent_seconds": 3.0}
    return {**facts, "sent_bytes": sent}


def test_hosts_that_are_ready_train_even_if_they_have_told_no_progress_yet(cluster):
    for host in cluster.hosts:
        host.learn({"event": "started"})
        host.learn({"event": "ready", "step": 0})
    assert "training" in line_of(cluster)


def rank_of(pid):
    told = Path(f"/proc/{pid}/environ").read_text().split("\0")
    return dict(one.split("=", 1) for one in told if one).get("LOCAL_RANK")


@pytest.mark.parametrize("has_threads", [False, pytest.param(True, marks=pytest.mark.long)])
async def test_nodes_are_processes_of_their_own_that_share_an_import_and_are_killed_one_by_one(
    cluster, monkeypatch, tmp_path, has_threads
):
    """A library may start a thread when it is imported; then nothing is shared, for who has threads must not fork."""
    if has_threads:
        (tmp_path / "sitecustomize.py").write_text(
            "import threading\nthreading.Thread(target=threading.Event().wait, daemon=True).start()\n"
        )
        monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    one, other = cluster.hosts
    processes, following = await start_nodes([one.folder, other.folder])
    killed, left = processes
    begun = [json.loads(await process.log.readline()) for process in processes]
    assert [line["node"] for line in begun] == [one.name, other.name]
    parent = Path(f"/proc/{killed.parent.pid}/status").read_text()  # noqa: ASYNC240  # nothing waits
    assert ("Threads:\t1\n" in parent) != has_threads
    words = Path(f"/proc/{killed.pid}/cmdline").read_text()  # noqa: ASYNC240
    assert ("seedflood.cli.forks" in words) != has_threads
    if has_threads:  # what is forked shows the environment of its parent
        assert [rank_of(process.pid) for process in processes] == ["0", "1"]
    os.kill(killed.pid, signal.SIGKILL)
    with pytest.raises(SeedfloodError, match=r"failed: it was ended by SIGKILL \(by hand, or for lack of memory\)"):
        await cluster._watch(one, killed)
    assert not left.ended.done()
    left.parent.kill()
    with pytest.raises(SeedfloodError, match=r"failed: it was ended by SIGKILL"):
        await cluster._watch(other, left)
    await following
    with pytest.raises(ProcessLookupError):
        os.kill(killed.pid, 0)


WATCHER = """
import asyncio, sys
from pathlib import Path
from seedflood.cluster.processes import start_nodes

async def watch():
    nodes, following = await start_nodes([Path(sys.argv[1])])
    await nodes[0].log.readline()
    print(nodes[0].pid, nodes[0].parent.pid, flush=True)
    await following

asyncio.run(watch())
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, pytest.param(signal.SIGHUP, marks=pytest.mark.long)])
def test_nodes_end_that_nobody_watches_any_more(cluster, number):
    words = [sys.executable, "-c", WATCHER, str(cluster.hosts[0].folder)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as watcher:
        left = [os.pidfd_open(int(pid)) for pid in watcher.stdout.readline().split()]
        watcher.send_signal(number)
    for process in left:
        assert select.select([process], [], [], 60)[0]
        os.close(process)


def test_paths_of_flags_begin_at_the_working_directory_and_the_folder_of_a_cluster_can_be_moved(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("rows/train.jsonl", "rows/validation.jsonl", "tiny/config.json"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    plan = ClusterPlan(
        *(1, "ring", "tiny", "sst2", "rows", 4, None, 1, 0, Path("out")),
        overrides={"node": {"model_path": "tiny"}},
    )
    write_settings(plan, tmp_path / "home")
    (tmp_path / "home").rename(tmp_path / "moved")
    settings = load_settings(tmp_path / "moved/node-1/peers.toml")
    node = settings.node
    assert (node.state, node.export) == (tmp_path / "moved/node-1/state", tmp_path / "out")
    assert (settings.run.model, node.data) == (str(tmp_path / "tiny"), str(tmp_path / "rows"))
    assert node.model_path == tmp_path / "tiny"


def test_a_fault_that_has_passed_is_not_told_at_the_end():
    node = display.LoggedNode("node-1", Path(), 8, is_first=True)
    for event, level, told in (
        ("the loss has risen", "error", "the loss has risen"),
        ("evaluated", "info", "the loss has risen"),
        (display.RECOVERED, "info", ""),
    ):
        node.learn({"event": event, "level": level, "step": 1})
        assert node.last_words == told


@pytest.mark.parametrize("name", ["file", "file/below"])
def test_a_folder_that_cannot_be_used_is_one_sentence(plan, tmp_path, name):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"cannot be used as --folder: .*; name another one"):
        local.run_cluster(plan, tmp_path / name)


@pytest.mark.parametrize("event", ["started", "ready"])
def test_a_folder_is_kept_once_a_node_trains(plan, tmp_path, monkeypatch, event):
    async def run(self):
        self.hosts[1].learn({"event": event})
        raise ConfigError("out holds something else.")

    monkeypatch.setattr(local._Cluster, "run", run)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with pytest.raises(ConfigError, match="out holds something else") as told:
        local.run_cluster(plan)
    kept = [str(home) for home in tmp_path.glob("seedflood-*")]
    assert len(kept) == (event == "ready")
    assert all(home in str(told.value) for home in kept)
    with pytest.raises(ConfigError, match="out holds something else"):
        local.run_cluster(plan, tmp_path / "home")
    assert any((tmp_path / "home").iterdir()) == (event == "ready"), "else the folder could not be named again"
