"""What a local cluster runs: a folder with a peers.toml for each node, all checked before anything is started."""

import hashlib
import os
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from seedflood.cluster.ports import reserve_ports
from seedflood.cluster.topology import TopologyName, make_topology
from seedflood.config import PREVIOUS, RunSettings, check_course, detach, load_course, merge, spell
from seedflood.errors import ConfigError
from seedflood.host.places import KEY_FILE
from seedflood.identity import write_key

THEN_FILE = "then.toml"

EVALUATIONS = 8
"""How often the second run is evaluated on the way."""


@dataclass(frozen=True, slots=True)
class ClusterPlan:
    """What to run. overrides: settings by section, for every node. train_examples: None for all. then: settings of a
    second run, by section, with absolute paths; its model may be "previous", the result of the first. relays: how many
    of the nodes, the last ones, only relay."""

    nodes: int
    topology: TopologyName
    model: str
    task: str
    data: str | None
    steps: int
    train_examples: int | None
    seed: int
    evaluate_every: int
    export: Path | None = None
    overrides: dict[str, Any] = field(default_factory=dict)
    then: dict[str, Any] | None = None
    relays: int = 0

    @property
    def clients(self) -> int:
        """The nodes that train."""
        return self.nodes - self.relays


def make_home(folder: Path | None) -> Path:
    """The folder of a cluster, which is new or empty. Raises ConfigError."""
    if folder is None:
        return Path(tempfile.mkdtemp(prefix="seedflood-"))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        is_used = any(folder.iterdir())
    except OSError as error:
        raise ConfigError(f"{folder} cannot be used as --folder: {error.strerror}; name another one.") from None
    if is_used:
        raise ConfigError(f"{folder} is not empty; name a new folder, so that no earlier run is mixed in.")
    return folder


def write_settings(plan: ClusterPlan, home: Path) -> dict[Path, tuple[int, ...]]:
    """Writes one folder with a peers.toml per node. Returns the folders, each with how many steps its runs have. Raises
    ConfigError."""
    if plan.clients < 1:
        raise ConfigError(f"{plan.relays} relays of {plan.nodes} nodes leave none that trains; start more nodes.")
    names = [f"node-{k + 1}" if k < plan.clients else f"relay-{k + 1}" for k in range(plan.nodes)]
    ports = reserve_ports(plan.nodes)
    edges = make_topology(plan.topology, plan.nodes, seed=plan.seed)
    written = {}
    for k, name in enumerate(names):
        folder = home / name
        folder.mkdir(parents=True, exist_ok=True)
        usual = {"run": _run_section(plan), "node": _node_section(plan, k, name, ports[k])}
        sections = merge(usual, detach(merge(_told(plan, k), plan.overrides), Path()))
        neighbours = sorted(b if a == k else a for a, b in edges if k in (a, b))
        peers = {"peers": [{"address": f"127.0.0.1:{ports[j]}"} for j in neighbours]}
        (folder / "peers.toml").write_text(spell(sections | peers), encoding="utf-8")
        if plan.then is not None:
            (folder / THEN_FILE).write_text(spell(_then_sections(plan, k)), encoding="utf-8")
        try:
            course = load_course(folder / "peers.toml")
            check_course(course)
        except ConfigError as error:  # nobody has written this file
            raise ConfigError(str(error).removeprefix(f"{folder / 'peers.toml'}: ")) from None
        first = course[0]
        write_key(first.key_folder / KEY_FILE, secret_of(first.settings.run.seed, k))
        written[folder] = tuple(stage.settings.run.steps for stage in course)
    return written


def secret_of(seed: int, k: int) -> bytes:
    """What the key of a node on this machine follows from: 32 bytes. Which rows a host takes, and in which directions
    it looks, follow from its key. So with keys by chance two runs of one seed would not end with the same model. Such a
    key is no secret, but these nodes listen on this machine alone."""
    return hashlib.sha256(f"seedflood local {seed} {k}".encode()).digest()


def _told(plan: ClusterPlan, k: int) -> dict[str, Any]:
    """What the operator has told of models and rows: paths begin at the working directory."""
    node: dict[str, Any] = {} if plan.data is None else {"data": plan.data}
    if plan.export is not None and plan.then is None and k == 0:
        node["export"] = str(plan.export)
    return {"run": {"model": plan.model}, "node": node}


def _run_section(plan: ClusterPlan) -> dict[str, Any]:
    return {
        "name": "local",
        "seed": plan.seed,
        "clients": plan.clients,
        "steps": plan.steps,
        "objective": {"task": plan.task},
    } | ({} if plan.train_examples is None else {"train_examples": plan.train_examples})


def _node_section(plan: ClusterPlan, k: int, name: str, port: int) -> dict[str, Any]:
    return {
        "name": name,
        "listen": f"127.0.0.1:{port}",
        "state": "state",
        "shard": f"{min(k + 1, plan.clients)}/{plan.clients}",
        "threads": max(1, (os.cpu_count() or 1) // plan.nodes),
        "progress_seconds": 0.5,
        "evaluate_every": plan.evaluate_every if k == 0 else 0,
        **({"role": "relay"} if k >= plan.clients else {}),
        **({"then": THEN_FILE} if plan.then is not None else {}),
    }


def _then_sections(plan: ClusterPlan, k: int) -> dict[str, Any]:
    """Settings of the second run. Those that it does not have are as in the first run. Raises ConfigError."""
    assert plan.then is not None, "nothing follows"
    usual = {"run": {"name": "then", "model": PREVIOUS, "seed": plan.seed, "clients": plan.clients}}
    sections = merge(usual, plan.then)
    if (clients := sections["run"]["clients"]) != plan.clients:
        raise ConfigError(f"the run of --then is for {clients} hosts, and {plan.clients} train here: change clients.")
    steps = sections["run"].get("steps", RunSettings.model_fields["steps"].default)
    node: dict[str, Any] = {"evaluate_every": max(1, steps // EVALUATIONS) if k == 0 else 0}
    if plan.export is not None and k == 0:
        node["export"] = str(plan.export.resolve())
    return merge({"run": {}, "node": node}, sections)
