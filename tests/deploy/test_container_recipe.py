"""The recipe of docs/how-to/hosts.md with containers: hosts of the README's closed run, each as one container that its
command starts.

One engine stands for three hosts here, so containers get the host's name, a network takes the place of published ports,
and each node takes one of the cores. All else is as it is written.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import recipe
from containers import Container, docker

pytestmark = [pytest.mark.docker, pytest.mark.timeout(900)]


@pytest.fixture
def containers(image: str, tmp_path: Path) -> Iterator[dict[str, Container]]:
    network = f"seedflood-recipe-{os.getpid()}"
    made: dict[str, Container] = {}
    docker("network", "create", network)
    try:
        init, *_ = recipe.closed_run()
        (tmp_path / ".venv").symlink_to(sys.prefix)
        subprocess.run(["bash", "-c", init], cwd=tmp_path, check=True, timeout=120)
        for host in ("alpha", "beta", "gamma"):
            made[host] = Container(f"{network}-{host}")
            start(made[host], network, tmp_path / "run" / host)
        yield made
    finally:
        for container in made.values():
            docker("rm", "--force", "--volumes", container.name)
        docker("network", "rm", network)


def start(container: Container, network: str, folder: Path) -> None:
    (command,) = [line for line in recipe.script("As a container") if line.startswith("docker run")]
    for said, meant in {
        "docker run": "docker run --env SEEDFLOOD__NODE__THREADS=1 --env OMP_NUM_THREADS=1",
        "--name seedflood": f"--name {container.name}",
        "--publish 7070:7070": f"--network {network} --network-alias {folder.name}.example.org",
        "--publish 127.0.0.1:7071:7071": "",
    }.items():
        assert said in command
        command = command.replace(said, meant)
    subprocess.run(["bash", "-c", command], cwd=folder, check=True, timeout=120)


def test_three_hosts_of_a_closed_run_end_with_one_digest(containers: dict[str, Container]):
    look = "cd /etc/seedflood\n" + recipe.command("Look").replace(".venv/bin/", "")
    for container in containers.values():
        container.wait_for("progress", step=1)
        shown = container.run("sh", "-ec", look)
        assert all(name in shown for name in containers)
        assert "serial 1" in shown
    assert [container.wait() for container in containers.values()] == [0] * 3
    assert len({container.result()["digest"] for container in containers.values()}) == 1
