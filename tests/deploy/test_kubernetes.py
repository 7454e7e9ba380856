"""The manifests: what refers to each other agrees, and pods, made of them by hand on a Docker engine, form a ring."""

import base64
import json
import os
import shutil
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from containers import Container, docker, run_command, run_seedflood, said_in

REPOSITORY = Path(__file__).parents[2]
BASE = REPOSITORY / "deploy" / "kubernetes" / "base"
START = BASE / "start.sh"

Manifests = dict[str, dict[str, Any]]


def render(folder: Path) -> Manifests:
    """The manifests of a folder by kind."""
    if shutil.which("kubectl") is None:
        pytest.skip("needs kubectl, which is not installed")
    text = run_command(["kubectl", "kustomize", str(folder)])
    return {manifest["kind"]: manifest for manifest in yaml.safe_load_all(text)}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All folders, with the files that the head of closed/kustomization.yaml says how to make."""
    made = tmp_path_factory.mktemp("deploy") / "kubernetes"
    shutil.copytree(BASE.parent, made, ignore=shutil.ignore_patterns("run"))
    init, apply = said_in(made / "closed" / "kustomization.yaml")
    assert apply == "kubectl apply --kustomize ."
    run_seedflood(init, made / "closed")
    return made


@pytest.fixture(scope="module", params=["base", "gpu", "gasloc", "closed"])
def manifests(request: pytest.FixtureRequest, folders: Path) -> Manifests:
    return render(folders / request.param)


def node_of(manifests: Manifests) -> dict[str, Any]:
    return manifests["StatefulSet"]["spec"]["template"]["spec"]["containers"][0]


def environment_of(manifests: Manifests, pod: str) -> dict[str, str]:
    """What a pod's node is given, with its name filled in."""
    found = {}
    for one in node_of(manifests)["env"]:
        if "value" not in one:
            assert one["valueFrom"] == {"fieldRef": {"fieldPath": "metadata.name"}}
        found[one["name"]] = one.get("value", pod)
    return found


def test_everything_is_about_the_same_pods(manifests: Manifests):
    stateful = manifests["StatefulSet"]["spec"]
    labels = stateful["template"]["metadata"]["labels"]
    assert stateful["selector"]["matchLabels"] == labels
    assert manifests["Service"]["spec"]["selector"] == labels
    assert manifests["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"] == labels
    policy = manifests["NetworkPolicy"]["spec"]
    assert policy["podSelector"]["matchLabels"] == labels
    assert policy["ingress"][0]["from"] == [{"podSelector": {"matchLabels": labels}}]
    assert policy["egress"][0]["to"] == [{"podSelector": {"matchLabels": labels}}]
    assert (
        stateful["serviceName"]
        == manifests["Service"]["metadata"]["name"]
        == manifests["StatefulSet"]["metadata"]["name"]
    )


def test_as_many_pods_as_clients_take_part(manifests: Manifests):
    told = environment_of(manifests, "seedflood-0").get("SEEDFLOOD__RUN__CLIENTS")
    settings = manifests["ConfigMap"]["data"].get("seedflood-0.toml")
    clients = tomllib.loads(settings)["run"]["clients"] if settings is not None else int(told or 0)
    assert clients == manifests["StatefulSet"]["spec"]["replicas"]


def test_names_of_ports_and_volumes_are_those_of_the_container(manifests: Manifests):
    node, pod = node_of(manifests), manifests["StatefulSet"]["spec"]
    ports = {port["name"]: port["containerPort"] for port in node["ports"]}
    assert {port["targetPort"] for port in manifests["Service"]["spec"]["ports"]} == set(ports)
    assert {node[probe]["httpGet"]["port"] for probe in ("startupProbe", "livenessProbe", "readinessProbe")} == {"http"}
    rules = manifests["NetworkPolicy"]["spec"]
    assert [rule["ports"][0]["port"] for rule in rules["ingress"]] == ["grpc", "http"]
    assert rules["egress"][0]["ports"][0]["port"] == ports["grpc"]
    claims = {claim["metadata"]["name"] for claim in pod["volumeClaimTemplates"]}
    volumes = {volume["name"] for volume in pod["template"]["spec"]["volumes"]}
    assert {mount["name"] for mount in node["volumeMounts"]} == claims | volumes


def test_a_pod_of_a_closed_run_is_given_its_own_key_and_settings_and_the_operator_keeps_his(folders: Path):
    closed = render(folders / "closed")
    pods = {f"seedflood-{number}" for number in range(closed["StatefulSet"]["spec"]["replicas"])}
    assert set(closed["Secret"]["data"]) == pods
    assert set(closed["ConfigMap"]["data"]) == {"start.sh", "roster.json"} | {f"{pod}.toml" for pod in pods}
    (keys,) = [mount for mount in node_of(closed)["volumeMounts"] if mount["name"] == "keys"]
    assert keys["subPathExpr"] == "$(POD_NAME)"


def test_the_gpu_overlay_asks_for_a_gpu_and_the_image_that_uses_it():
    node = node_of(render(BASE.parent / "gpu"))
    assert node["image"] == "seedflood:cuda"
    assert node["resources"]["limits"]["nvidia.com/gpu"] == 1


@pytest.mark.parametrize(("number", "following"), [(0, 1), (1, 2), (2, 0)])
def test_a_pod_links_with_the_next_one_and_the_last_one_with_the_first(number: int, following: int):
    environment = os.environ | environment_of(render(BASE), f"seedflood-{number}")
    show = (sys.executable, "-c", "from seedflood.cli import main; main()", "config", "show")
    settings = json.loads(
        run_command(["sh", str(START), *show, "--peers", str(BASE / "peers.toml")], environment=environment)
    )
    assert settings["node"]["name"] == f"seedflood-{number}"
    assert settings["node"]["shard"] == f"{number + 1}/3"
    assert [peer["address"] for peer in settings["peers"]] == [f"seedflood-{following}.seedflood:7070"]
    assert settings["run"]["clients"] == 3


class Pods:
    """Pods of the StatefulSet of a closed run as containers: its command, environment, user, mounts and
    restrictions."""

    def __init__(self, image: str, manifests: Manifests, folder: Path) -> None:
        self.prefix = f"seedflood-pods-{os.getpid()}"
        self.manifests = manifests
        self.pods: list[Container] = []
        self._image = image
        self._folder = folder
        for name, text in manifests["ConfigMap"]["data"].items():
            self._write("settings", name, text.encode())
        for name, text in manifests["Secret"]["data"].items():
            self._write("keys", name, base64.b64decode(text))
        docker("network", "create", self.prefix)

    def _write(self, volume: str, name: str, data: bytes) -> None:
        path = self._folder / volume / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(data)
        path.chmod(0o444)  # the user of the pod may read it, as by fsGroup

    def start(self, number: int) -> Container:
        stateful = self.manifests["StatefulSet"]["spec"]
        pod, node = stateful["template"]["spec"], node_of(self.manifests)
        user, name = pod["securityContext"], f"{stateful['serviceName']}-{number}"
        mounts = {mount["name"]: mount["mountPath"] for mount in node["volumeMounts"]}
        container = Container(f"{self.prefix}-{number}")
        command = [word.replace("$(POD_NAME)", name) for word in node["command"]]
        docker(
            *("run", "--detach", "--name", container.name, "--hostname", name, "--network", self.prefix),
            *("--network-alias", f"{name}.{stateful['serviceName']}"),
            *("--user", f"{user['runAsUser']}:{user['runAsGroup']}", "--read-only", "--cap-drop", "ALL"),
            *("--security-opt", "no-new-privileges", "--stop-timeout", str(pod["terminationGracePeriodSeconds"])),
            *("--volume", f"{self._folder / 'settings'}:{mounts['settings']}:ro", "--volume", mounts["state"]),
            *("--volume", f"{self._folder / 'keys' / name}:{mounts['keys']}:ro"),
            *("--tmpfs", mounts["temporary"], "--env", "OMP_NUM_THREADS=1"),
            *(f"--env={key}={value}" for key, value in environment_of(self.manifests, name).items()),
            *("--entrypoint", command[0], self._image, *command[1:]),
        )
        self.pods.append(container)
        return container

    def probe(self, container: Container, kind: str) -> str:
        """The answer to a probe of the manifest; fails the test if it is not one of success."""
        get = node_of(self.manifests)[kind]["httpGet"]
        ports = {port["name"]: port["containerPort"] for port in node_of(self.manifests)["ports"]}
        url = f"http://127.0.0.1:{ports[get['port']]}{get['path']}"
        script = f"""
from urllib.request import ProxyHandler, build_opener
print(build_opener(ProxyHandler({{}})).open({url!r}).read().decode())
"""
        return container.run("python", "-Ic", script)

    def close(self) -> None:
        for pod in self.pods:
            docker("rm", "--force", "--volumes", pod.name)
        docker("network", "rm", self.prefix)


@pytest.fixture
def start_pods(image: str, folders: Path, tmp_path: Path) -> Iterator[Callable[[], Pods]]:
    made: list[Pods] = []

    def start() -> Pods:
        pods = Pods(image, render(folders / "closed"), tmp_path)
        made.append(pods)
        for number in range(pods.manifests["StatefulSet"]["spec"]["replicas"]):
            pods.start(number)
        return pods

    yield start
    for pods in made:
        pods.close()


@pytest.mark.docker
@pytest.mark.timeout(1200)
def test_pods_find_each_other_get_ready_and_leave_in_peace(start_pods: Callable[[], Pods]):
    pods = start_pods()
    for pod in pods.pods:
        pod.wait_for("progress", step=1)
        assert pods.probe(pod, "livenessProbe").strip() == "alive"
        assert pods.probe(pod, "readinessProbe").strip() == "ready"
    leaving, *staying = pods.pods
    docker("stop", leaving.name)
    assert leaving.wait() == 0
    for pod in staying:
        pod.wait_for("member left")
        pod.wait_for("progress")
