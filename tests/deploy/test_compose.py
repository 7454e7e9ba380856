"""The clusters of docker/ on a real engine: the closed one trains to its end through a kill and a cut."""

import json
import os
import re
import shutil
import subprocess
import urllib.request
from collections.abc import Iterator
from copy import copy
from pathlib import Path

import pytest
from containers import Container, docker, run_command, run_seedflood, said_in

from seedflood.cluster.ports import reserve_ports

pytestmark = [pytest.mark.docker, pytest.mark.timeout(1800)]

FOLDER = Path(__file__).parents[2] / "docker"
CLOSED = ("compose.yaml", "compose.closed.yaml")
GASLOC = ("compose.yaml", "compose.gasloc.yaml")
NAMES = [f"node-{k}" for k in range(1, 5)]
STEPS = 1500
"""Of the closed run: so many that it outlasts the faults, however long the engine takes for each of them."""


class Cluster:
    """`up`, then its containers by name; `down` leaves nothing."""

    def __init__(self, folder: Path, files: tuple[str, ...]) -> None:
        self.project = f"seedflood-test-{os.getpid()}"
        self._files = [word for file in files for word in ("--file", str(folder / file))]
        self.http_port = reserve_ports(1)[0]
        told = {"COMPOSE_PROJECT_NAME": self.project, "HTTP_PORT": str(self.http_port)}
        self._environment = {**os.environ, **told, "RUN_AS": f"{os.getuid()}:{os.getgid()}"}
        is_v2 = subprocess.run(["docker", "compose", "version"], capture_output=True, check=False).returncode == 0
        self._command = ["docker", "compose"] if is_v2 else ["docker-compose"]
        if not is_v2 and shutil.which("docker-compose") is None:
            pytest.skip("needs Docker Compose, which is not installed")

    def up(self) -> dict[str, Container]:
        self.compose("up", "--detach", "--no-build")
        ids = {name: self.compose("ps", "--quiet", name).strip() for name in NAMES}
        return {
            name: Container(docker("inspect", "--format", "{{.Name}}", one).strip()[1:]) for name, one in ids.items()
        }

    @property
    def network(self) -> str:
        return f"{self.project}_default"

    def compose(self, *words: str) -> str:
        return run_command([*self._command, *self._files, *words], environment=self._environment)

    def down(self) -> None:
        self.compose("down", "--volumes", "--timeout", "0")


@pytest.fixture
def cluster(image: str, tmp_path: Path) -> Iterator[Cluster]:
    """The closed one, with the files that the head of compose.closed.yaml says how to make."""
    folder = tmp_path / "docker"
    shutil.copytree(FOLDER, folder, ignore=shutil.ignore_patterns("run", "wheels"))
    settings = folder / "peers.toml"
    settings.write_text(re.sub(r"(?m)^steps = \d+$", f"steps = {STEPS}", settings.read_text()))
    run_seedflood(said_in(folder / "compose.closed.yaml")[0], folder)
    made = Cluster(folder, CLOSED)
    yield made
    made.down()


@pytest.fixture
def gasloc(image: str) -> Iterator[Cluster]:
    made = Cluster(FOLDER, GASLOC)
    yield made
    made.down()


def test_a_cluster_ends_right_though_one_node_is_killed_and_another_one_loses_its_network(cluster: Cluster):
    nodes = cluster.up()
    first, killed, _, cut = nodes.values()
    for node in nodes.values():
        node.wait_for("progress", step=10)
    assert get(cluster, "/readyz") == "ready\n"
    metrics = get(cluster, "/metrics")
    assert "seedflood_window_step" in metrics
    assert "seedflood_run_closed 1.0" in metrics

    killed.kill_inside()
    killed.wait_for("started")
    killed.wait_for("progress", step=40)
    assert killed.inspect()["RestartCount"] == 1

    docker("network", "disconnect", cluster.network, cut.name)
    for node, lost in ((first, "node-4"), (cut, "node-1")):  # each by name: the one that was killed was silent, too
        copy(node).wait_for("member silent", member=lost)
        copy(node).wait_for("link down", peer=lost)  # before or after it
    for node in nodes.values():  # the one without network, too: it is alive
        node.wait_until_healthy()
    docker("network", "connect", "--alias", "node-4", cluster.network, cut.name)

    # A closed run cannot end without the one that was cut off. Which of its links comes back first is a matter of
    # chance: dials back off by up to half a minute, and the run may end before the last one.
    assert [node.wait() for node in nodes.values()] == [0] * 4
    results = [node.result() for node in nodes.values()]
    assert len({result["digest"] for result in results}) == 1
    assert {result["steps"] for result in results} == {STEPS}
    replay = ("replay", "--peers", "/etc/seedflood/peers.toml", "--json")
    for name in ("node-2", "node-4"):
        replayed = json.loads(
            cluster.compose("run", "--rm", "--no-deps", "-T", "--entrypoint", "seedflood", name, *replay)
        )
        assert replayed["digest"] == results[0]["digest"]


def test_a_cluster_pre_trains_though_one_node_is_killed_on_the_way(gasloc: Cluster):
    nodes = gasloc.up()
    first, killed, *_ = nodes.values()
    first.wait_for("progress", step=100)
    assert 'seedflood_algorithm_figure{name="tokens_per_second"}' in get(gasloc, "/metrics")
    killed.kill_inside()
    assert [node.wait() for node in nodes.values()] == [0] * 4
    results = [node.result() for node in nodes.values()]
    assert {result["run"] for result in results} == {"pretrain"}
    assert len({result["digest"] for result in results}) == 1
    assert killed.inspect()["RestartCount"] == 1


def get(cluster: Cluster, path: str) -> str:
    """What node-1 answers at its published port."""
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(
        f"http://127.0.0.1:{cluster.http_port}{path}", timeout=30
    ) as answer:
        return answer.read().decode()
