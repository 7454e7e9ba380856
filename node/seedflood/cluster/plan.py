"""What a local cluster runs: a folder with a peers.toml for each node, all checked before anything is started."""

import hashlib
import os
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from seedflood.cluster.ports import reserve_ports
from seedflood.cluster.topology import TopologyName, make_topology
from seedflood.config import check_settings, detach, load_settings, merge, spell
from seedflood.errors import ConfigError
from seedflood.host.places import KEY_FILE
from seedflood.identity import write_key


@dataclass(frozen=True, slots=True)
class ClusterPlan:
    """What to run. overrides: settings by section, for every node. train_examples: None for all. relays: how
    many of the nodes, the last ones, only relay."""

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


def write_settings(plan: ClusterPlan, home: Path) -> dict[Path, int]:
    """Writes one folder with a peers.toml per node. Returns the folders, each with how many steps its run has. Raises
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
        sections = merge(usual, detach(merge(_own_settings(plan, k), plan.overrides), Path()))
        neighbours = sorted(b if a == k else a for a, b in edges if k in (a, b))
        peers = {"peers": [{"address": f"127.0.0.1:{ports[j]}"} for j in neighbours]}
        (folder / "peers.toml").write_text(spell(sections | peers), encoding="utf-8")
        try:
            settings = load_settings(folder / "peers.toml")
            check_settings(settings)
        except ConfigError as error:  # nobody has written this file
            raise ConfigError(str(error).removeprefix(f"{folder / 'peers.toml'}: ")) from None
        write_key(settings.node.state / KEY_FILE, secret_of(settings.run.seed, k))
        written[folder] = settings.run.steps
    return written


def secret_of(seed: int, k: int) -> bytes:
    """What the key of a node on this machine follows from: 32 bytes. Which rows a host takes, and in which directions
    it looks, follow from its key. So with keys by chance two runs of one seed would not end with the same model. Such a
    key is no secret, but these nodes listen on this machine alone."""
    return hashlib.sha256(f"seedflood local {seed} {k}".encode()).digest()


def _own_settings(plan: ClusterPlan, k: int) -> dict[str, Any]:
    """What the operator has given as models and rows: paths begin at the working directory."""
    node: dict[str, Any] = {} if plan.data is None else {"data": plan.data}
    if plan.export is not None and k == 0:
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
    }
