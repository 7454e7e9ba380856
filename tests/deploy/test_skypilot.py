"""The task for SkyPilot: SkyPilot can read it, and its script, as processes, runs hosts that end with one digest."""

import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
import recipe
import yaml
from ledgers import finish
from loopback import REPOSITORY, Loopback
from processes import Host, Hosts

from seedflood.config import load_settings
from seedflood.errors import ExitCode

FILE = REPOSITORY / "deploy" / "skypilot" / "seedflood.yaml"
TASK: dict[str, Any] = yaml.safe_load(FILE.read_text())
COUNT: int = TASK["num_nodes"]

KEYS = {"name", "num_nodes", "workdir", "resources", "file_mounts", "setup", "run"}
RESOURCES = {"cpus", "memory"}
"""Of a task, as far as they are used here: what the test below has had read by SkyPilot."""

FAILING = """#!/usr/bin/env bash
echo one >>"$CALLS"
exit "$CODE"
"""


def make(loopback: Loopback, options: str) -> None:
    """Runs the first command of the recipe in a clone. Ports and listening addresses are those of this machine."""
    init, *_ = recipe.on_a_cloud()[0].splitlines()
    made = loopback.run("bash", "-ec", f"{init} {options}")
    assert made.returncode == 0, made.stderr
    for number in range(COUNT):
        settings = loopback.folder / "run" / f"host{number}" / "peers.toml"
        assert 'listen = "0.0.0.0:7070"' in settings.read_text()
        own = settings.read_text().replace("0.0.0.0:7070", f"{loopback.address(number)}:7070")
        settings.write_text(own.replace(":7070", f":{loopback.port}"))


def machine(loopback: Loopback, number: int, **more: str) -> tuple[Path, list[str]]:
    """The home of a machine with what SkyPilot copies there, and the command that it runs."""
    home = loopback.folder / f"machine{number}"
    home.mkdir()
    for there, here in TASK["file_mounts"].items():
        place = home / there.removeprefix("~/")
        place.parent.mkdir(exist_ok=True)
        place.symlink_to(loopback.folder / here)
    (home / "seedflood-venv").mkdir()
    (home / "seedflood-venv" / "bin").symlink_to(loopback.tools)
    told = {
        "HOME": str(home),
        "SKYPILOT_NODE_IPS": "\n".join(map(loopback.address, range(COUNT))),
        "SKYPILOT_NODE_RANK": str(number),
        "SEEDFLOOD__NODE__HTTP": "127.0.0.1:0",
    } | more
    script = TASK["run"].replace(":7070", f":{loopback.port}")
    return home, ["env", *(f"{key}={value}" for key, value in told.items()), "bash", "-c", script]


@pytest.fixture
def loopback(tmp_path: Path) -> Loopback:
    return Loopback(tmp_path)


def test_skypilot_reads_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    sky = pytest.importorskip("sky", reason="needs the package skypilot")
    monkeypatch.chdir(tmp_path)
    for folder in TASK["file_mounts"].values():
        Path(folder).mkdir(parents=True)
    task = sky.Task.from_yaml(str(FILE))
    task.validate()
    assert task.num_nodes == COUNT


def test_its_keys_are_known_ones():
    assert (set(TASK), set(TASK["resources"])) == (KEYS, RESOURCES)


def test_each_machine_finds_the_folder_of_its_number_and_the_operator_keeps_his_key():
    numbers = range(COUNT)
    assert TASK["file_mounts"] == {f"~/seedflood-made/host{number}": f"run/host{number}" for number in numbers}
    init, launch, _ = recipe.on_a_cloud()[0].splitlines()
    assert re.findall(r"(host\d)=(host\d):7070", init) == [(f"host{number}",) * 2 for number in numbers]
    assert shlex.split(launch)[-1] == FILE.relative_to(REPOSITORY).as_posix()


def invite(loopback: Loopback, folder: Path) -> Host:
    """A host elsewhere, by the commands of the recipe."""
    loopback.put(sky='#!/bin/sh\n[ "$*" = "status --ip seedflood" ] && echo 127.0.0.1\n')
    newcomer = loopback.folder / "run" / "newcomer.toml"
    newcomer.write_text(newcomer.read_text().replace(":7070", f":{loopback.port}"))
    command = recipe.on_a_cloud()[1].replace(":7070", f":{loopback.port}")
    words = ["bash", "-ec", command.replace("operator.example.org:7171", "127.0.0.1:0")]
    environment = loopback.environment
    with subprocess.Popen(words, cwd=loopback.folder, env=environment, stdout=subprocess.PIPE, text=True) as waiting:
        assert waiting.stdout is not None
        joined = loopback.run("seedflood", "join", waiting.stdout.readline().strip(), "--out", str(folder))
        assert (joined.returncode, waiting.wait(60)) == (0, 0), joined.stderr
    return Host(folder, command=(str(loopback.tools / "seedflood-node"),))


@pytest.mark.system
@pytest.mark.parametrize("is_invited", [False, pytest.param(True, marks=pytest.mark.long)])
def test_its_machines_and_an_invited_host_elsewhere_end_with_one_digest(
    loopback: Loopback, tmp_path: Path, is_invited: bool
):
    make(loopback, "--steps 40")
    hosts = Hosts(tmp_path)
    try:
        for number in range(COUNT):
            home, command = machine(loopback, number)
            hosts.hosts.append(Host(home, command=command))
        if is_invited:
            hosts.hosts.append(invite(loopback, tmp_path / "delta"))
        results = finish([host.start() for host in hosts.hosts])
        settings = [host.folder / "seedflood-host" / "peers.toml" for host in hosts.hosts[:COUNT]]
        assert [load_settings(path).node.shard for path in settings] == ["1/3", "2/3", "3/3"]
        assert len(results) == COUNT + is_invited
        assert (hosts.hosts[0].folder / "seedflood-host" / "model").exists()
        assert not (hosts.hosts[1].folder / "seedflood-host" / "model").exists()
    finally:
        hosts.close()


@pytest.mark.parametrize(
    ("code", "ended", "tries"),
    [
        (ExitCode.OK, 0, 1),
        (ExitCode.TRY_AGAIN, ExitCode.TRY_AGAIN, 6),
        (ExitCode.INTERNAL, ExitCode.INTERNAL, 6),
        (ExitCode.REFUSED, 0, 1),  # the others go on
        (ExitCode.RUN_MISMATCH, ExitCode.RUN_MISMATCH, 1),
        (ExitCode.CONFIG, ExitCode.CONFIG, 1),
        (ExitCode.USAGE, ExitCode.USAGE, 1),
    ],
)
def test_a_node_is_started_again_unless_an_operator_must_repair_it_first(
    loopback: Loopback, tmp_path: Path, code: ExitCode, ended: int, tries: int
):
    make(loopback, "--steps 40")
    (loopback.tools / "seedflood-node").unlink()
    loopback.put(sleep="#!/bin/sh\n", **{"seedflood-node": FAILING})
    calls = tmp_path / "calls"
    _, command = machine(loopback, 1, CALLS=str(calls), CODE=str(int(code)))
    assert loopback.run(*command).returncode == ended
    assert len(calls.read_text().splitlines()) == tries
