"""The JobSet: it is one by the schemas of JobSet and Kubernetes, and the command of its pods, as processes, runs hosts
that end with one digest."""

import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import recipe
import yaml
from ledgers import finish
from loopback import REPOSITORY, Loopback
from processes import Host

from seedflood.config import load_settings
from seedflood.errors import ExitCode

FOLDER = REPOSITORY / "deploy" / "kubernetes" / "jobset"
SET: dict[str, Any] = yaml.safe_load((FOLDER / "jobset.yaml").read_text())
KUSTOMIZATION: dict[str, Any] = yaml.safe_load((FOLDER / "kustomization.yaml").read_text())
(HOSTS,) = SET["spec"]["replicatedJobs"]
JOB: dict[str, Any] = HOSTS["template"]["spec"]
POD: dict[str, Any] = JOB["template"]["spec"]
(NODE,) = POD["containers"]
NAMES = [f"{SET['metadata']['name']}-{HOSTS['name']}-0-{number}" for number in range(JOB["completions"])]
"""Of pods, as the controller gives them: of the set, the job, its number and that of the pod."""

KEYS = {
    "": {"apiVersion", "kind", "metadata", "spec"},
    "spec": {"network", "failurePolicy", "replicatedJobs"},
    "network": {"enableDNSHostnames", "publishNotReadyAddresses"},
    "failurePolicy": {"maxRestarts"},
    "replicatedJobs": {"name", "replicas", "template"},
}
"""Of jobset.x-k8s.io/v1alpha2, as far as they are used here: what the test below has looked up in its schema."""


def generated(kind: str) -> dict[str, str]:
    """The files of which kustomize makes a ConfigMap or a Secret, by their names there."""
    (made,) = KUSTOMIZATION[kind]
    return {file.partition("=")[0]: file.rpartition("=")[2] for file in made["files"]}


def test_it_is_a_jobset_by_the_schema_of_its_api():
    models = pytest.importorskip("kubeflow_trainer_api.models", reason="needs the package kubeflow-trainer-api")
    read = models.JobsetV1alpha2JobSet.from_dict(SET)
    assert read.to_dict() == SET  # an unknown key would be left out, and what has a default is written out


def test_its_own_keys_are_known_ones():
    assert (SET["apiVersion"], SET["kind"]) == ("jobset.x-k8s.io/v1alpha2", "JobSet")
    parts = {"": SET, "spec": SET["spec"], "replicatedJobs": HOSTS}
    parts |= {name: SET["spec"][name] for name in ("network", "failurePolicy")}
    assert {name: set(part) for name, part in parts.items()} == KEYS


@pytest.mark.parametrize("name", ["volume.yaml", "door.yaml"])
def test_what_stands_beside_it_is_what_kubernetes_expects(name: str):
    kubernetes_validate.validate(yaml.safe_load((FOLDER / name).read_text()), "1.37", strict=True)


def test_its_job_is_one_that_kubernetes_runs():
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "host"}} | HOSTS["template"]
    for version in ("1.29", "1.37"):
        kubernetes_validate.validate(job, version, strict=True)
    # What the API server checks besides, by the reference of Job.
    assert (JOB["completionMode"], POD["restartPolicy"]) == ("Indexed", "Never")
    assert JOB["parallelism"] == JOB["completions"]
    assert JOB["podReplacementPolicy"] == "Failed"
    assert {rule["onExitCodes"]["containerName"] for rule in rules("FailIndex")} == {NODE["name"]}
    assert JOB["maxFailedIndexes"] == (JOB["completions"] - 1) // 2


def rules(action: str) -> list[dict[str, Any]]:
    return [rule for rule in JOB["podFailurePolicy"]["rules"] if rule["action"] == action]


def test_no_host_is_started_again_that_an_operator_must_repair_first():
    (codes,) = (rule["onExitCodes"]["values"] for rule in rules("FailIndex"))
    assert codes == [ExitCode.USAGE, ExitCode.RUN_MISMATCH, ExitCode.REFUSED, ExitCode.CONFIG]
    assert ExitCode.TRY_AGAIN not in codes
    assert [rule["onPodConditions"][0]["type"] for rule in rules("Ignore")] == ["DisruptionTarget"]


def test_names_agree():
    (settings,), (keys,) = KUSTOMIZATION["configMapGenerator"], KUSTOMIZATION["secretGenerator"]
    volumes = {volume["name"]: volume for volume in POD["volumes"]}
    assert set(volumes) == {mount["name"] for mount in NODE["volumeMounts"]}
    assert volumes["settings"]["configMap"]["name"] == settings["name"]
    assert volumes["keys"]["secret"]["secretName"] == keys["name"]
    claim = yaml.safe_load((FOLDER / "volume.yaml").read_text())
    assert volumes["state"]["persistentVolumeClaim"]["claimName"] == claim["metadata"]["name"]
    hosts = {f"host{number}" for number in range(JOB["completions"])}
    assert set(generated("secretGenerator")) == hosts
    assert set(generated("configMapGenerator")) == {"host.sh", "roster.json"} | {f"{host}.toml" for host in hosts}
    door = yaml.safe_load((FOLDER / "door.yaml").read_text())["spec"]
    assert door["selector"]["jobset.sigs.k8s.io/jobset-name"] == SET["metadata"]["name"]
    ports = {port["name"] for port in NODE["ports"]}
    assert {door["ports"][0]["targetPort"]} | {NODE["livenessProbe"]["httpGet"]["port"]} == ports


def test_an_invited_host_dials_the_door(tmp_path: Path):
    cluster = Loopback(tmp_path)
    start, invite = recipe.as_a_jobset()
    cluster.put(kubectl="#!/bin/sh\n")
    apply, *rest = invite.replace("ADDRESS-OF-THE-DOOR", "door.example.org").splitlines()
    made = cluster.run("bash", "-ec", "\n".join([start, apply, *(line for line in rest if "invite" not in line)]))
    assert made.returncode == 0, made.stderr
    assert load_settings(tmp_path / "run" / "newcomer.toml").peers[0].address == "door.example.org:7070"


class Pods:
    """What controllers and a kubelet would make of the manifests, as processes: each pod has an address."""

    def __init__(self, folder: Path, options: str) -> None:
        self.cluster = Loopback(folder)
        self.hosts: list[Host] = []
        init, *_ = recipe.script("As a JobSet")
        for number, name in enumerate(NAMES):
            there = f"host{number}={name}.{SET['metadata']['name']}:7070"
            assert there in init
            init = init.replace(there, f"host{number}={self.cluster.address(number)}:{self.cluster.port}")
        made = self.cluster.run("bash", "-ec", f"{init} {options}")
        assert made.returncode == 0, made.stderr
        shutil.copy(FOLDER / "host.sh", folder)
        for volume, kind in (("settings", "configMapGenerator"), ("keys", "secretGenerator")):
            (folder / volume).mkdir()
            for name, path in generated(kind).items():
                shutil.copy(folder / path, folder / volume / name)

    def start(self, count: int = JOB["completions"]) -> list[Host]:
        self.hosts = [self._pod(number) for number in range(count)]
        return [host.start() for host in self.hosts]

    def _pod(self, number: int) -> Host:
        """What is mounted in it is where a kubelet would have put it."""
        places = {}
        for mount in NODE["volumeMounts"]:
            part = mount.get("subPathExpr", "").replace("$(JOB_COMPLETION_INDEX)", str(number))
            places[mount["mountPath"]] = self.cluster.folder / mount["name"] / part
        state = places["/var/lib/seedflood"]
        state.mkdir(parents=True)
        told = {one["name"]: one["value"] for one in NODE["env"]} | {
            "JOB_COMPLETION_INDEX": str(number),
            "SEEDFLOOD__NODE__STATE": str(state),  # as the image has it, and what follows
            "SEEDFLOOD__NODE__HTTP": "127.0.0.1:0",
            "PATH": self.cluster.environment["PATH"],
        }
        command = [self._mounted(word, places) for word in NODE["command"]]
        return Host(state, command=("env", *(f"{key}={value}" for key, value in told.items()), *command))

    @staticmethod
    def _mounted(word: str, places: dict[str, Path]) -> str:
        path = next((path for path in places if word.startswith(path)), None)
        return word if path is None else str(places[path]) + word.removeprefix(path)

    def close(self) -> None:
        """By SIGTERM: if a shell is killed, its node stays."""
        for host in self.hosts:
            if host.process is not None and host.process.poll() is None:
                host.signal(signal.SIGTERM)
                host.end()
            host.close()


@pytest.fixture
def pods(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Pods]:
    made = Pods(tmp_path, request.param)
    yield made
    made.close()


@pytest.mark.system
@pytest.mark.parametrize("pods", ["--steps 40"], indirect=True)
def test_pods_that_are_moved_go_on_also_without_their_state_and_all_end_with_one_digest(pods: Pods):
    first, moved, lost = pods.start()
    for host in (moved, lost):
        host.wait_for("progress", step=1)
        host.signal(signal.SIGTERM)
        assert host.end() == ExitCode.TRY_AGAIN  # with 0 the Job would count it as finished
    shutil.rmtree(lost.folder)
    lost.folder.mkdir()
    first.wait_for("no steps left")
    for host in (moved, lost):
        host.start()
    finish(pods.hosts)
    assert [(host.folder / "model").exists() for host in pods.hosts] == [True, False, False]


@pytest.mark.system
@pytest.mark.parametrize("pods", [""], indirect=True)
def test_a_pod_ends_with_the_code_of_its_node(pods: Pods):
    settings = pods.cluster.folder / "settings" / "host0.toml"
    settings.write_text(settings.read_text().replace('task = "embedded"', 'task = "none"'))
    (host,) = pods.start(1)
    assert host.end() == ExitCode.CONFIG
