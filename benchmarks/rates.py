"""How near is the default learning rate to the best of five around it, on models from 0.1 to 270 million parameters?

All origins in one process (`Rehearsal`), at the defaults but for the rate. `wide` is tiny-opt with every unit three
times: the same function, with 18.5 million parameters. Every course is kept as a line of a file, so the benchmark goes
on where it was stopped.
"""

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from safetensors.torch import load_file, save_file
from torch import Tensor

from benchmarks.measure import Metric, make_metric, shared_folder
from seedflood.config import NodeSettings, RunSettings
from seedflood.training.seedflood.rehearsal import Rehearsal
from seedflood.training.shards import equal_shares

TIMES = (1.0, 3.0, 1 / 3, 9.0, 1 / 9)
"""The default rate."""

WIDER = 3
ACCURACY_MAX, LOSS_MAX = 0.01, 0.03
"""How far the default may end above the best of the five."""


@dataclass(frozen=True, slots=True)
class Plan:
    """rows: a folder below `../shared/data`. steps: by estimate."""

    clients: int
    steps: Mapping[str, int]
    rows: str = "sst2"
    model: str | None = None
    run: Mapping[str, Any] = field(default_factory=dict)
    evaluated: int = 872
    seeds: Sequence[int] = (1, 2, 3)


OPT: Mapping[str, Any] = {"task": "sst2", "batch_size": 16, "train_examples": 1024}
PLANS: Mapping[str, Plan] = {
    "embedded": Plan(3, {"gradient": 200, "two-sided": 400}, run={"task": "embedded", "train_examples": 1024}),
    "tiny-opt": Plan(4, {"gradient": 48, "two-sided": 200}, model="tiny-opt", run=OPT),
    "wide": Plan(4, {"gradient": 48, "two-sided": 50}, model="wide", run=OPT, evaluated=436, seeds=(1,)),
    "gemma": Plan(2, {"gradient": 24, "two-sided": 48}, model="gemma", run=OPT, evaluated=436),
}
PARTS = tuple(f"{name}/{estimate}" for name, plan in PLANS.items() for estimate in plan.steps)


def run(parts: Sequence[str] = (), folder: Path | None = None) -> dict[str, Metric]:
    """parts: of `PARTS`; without, those that need no other model. folder: of the courses, and of the model for `gemma`
    (`make real` fetches it); a new one if there is none."""
    metrics: dict[str, Metric] = {}
    with TemporaryDirectory(prefix="seedflood-rates-") as home:
        out = folder or Path(home)
        for part in parts or [part for part in PARTS if not part.startswith("gemma")]:
            ends = [[_end(part, seed, times, out, Path(home)) for times in TIMES] for seed in PLANS[_name(part)].seeds]
            accuracy = [max(one["accuracy"] for one in tried) - tried[0]["accuracy"] for tried in ends]
            loss = [tried[0]["loss"] - min(one["loss"] for one in tried) for tried in ends]
            metrics[f"rates.{part}.accuracy_gap"] = make_metric(accuracy, ACCURACY_MAX)
            metrics[f"rates.{part}.loss_gap"] = make_metric(loss, LOSS_MAX)
    return metrics


def _name(part: str) -> str:
    return part.partition("/")[0]


def _end(part: str, seed: int, times: float, out: Path, home: Path) -> dict[str, float]:
    """Accuracy and loss at the end of a course."""
    path, key = out / "rates.jsonl", f"{part} {times:.3g} {seed}"
    lines = path.read_text().splitlines() if path.exists() else []
    done: dict[str, dict[str, float]] = dict(map(json.loads, lines))
    if key not in done:
        done[key] = _follow(part, seed, times, out, home)
        out.mkdir(parents=True, exist_ok=True)
        with path.open("a") as file:
            file.write(json.dumps([key, done[key]]) + "\n")
    return done[key]


def _follow(part: str, seed: int, times: float, out: Path, home: Path) -> dict[str, float]:
    name, _, estimate = part.partition("/")
    plan, shared = PLANS[name], shared_folder()
    keys = {**plan.run, "clients": plan.clients, "steps": plan.steps[estimate], "seed": seed, "estimate": estimate}
    node: dict[str, Any] = {"state": home, "evaluate_examples": plan.evaluated, "device": "cpu"}
    if plan.model is not None:
        folders = {"wide": home / "wide", "gemma": out / "gemma-3-270m"}
        keys["model"] = str(folders.get(plan.model, shared / "models" / plan.model))
        node["data"] = str(shared / "data" / plan.rows)
        if plan.model == "wide" and not folders["wide"].exists():
            widen(shared / "models" / "tiny-opt", folders["wide"])
    hosts = equal_shares(NodeSettings(**node), plan.clients)
    rate = Rehearsal(RunSettings.of(**keys), hosts).learning_rate
    rehearsal = Rehearsal(RunSettings.of(**keys, learning_rate=times * rate), hosts)
    while rehearsal.step < rehearsal.run.steps:
        rehearsal.advance()
    figures = rehearsal.evaluate().figures
    end = {name: round(figures[name], 4) for name in ("accuracy", "loss")} | {"rate": times * rate}
    print(f"{part}, seed {seed}, {times:.3g} times the default rate: {end}", file=sys.stderr, flush=True)
    return end


def widen(source: Path, target: Path) -> None:
    """An OPT with every unit `WIDER` times, which computes the same: what reads a unit reads its copies, each with a
    share of the weight. The last norm makes its units smaller, for the tied logits read all copies whole."""
    target.mkdir(parents=True)
    config = json.loads((source / "config.json").read_text())
    for key in ("hidden_size", "ffn_dim", "num_attention_heads", "word_embed_proj_dim"):
        config[key] *= WIDER
    (target / "config.json").write_text(json.dumps({**config, "dtype": "float32"}))
    for path in source.glob("tokenizer*.json"):
        (target / path.name).write_bytes(path.read_bytes())
    wide = {name: _wider(name, part.float()) for name, part in load_file(source / "model.safetensors").items()}
    save_file(wide, target / "model.safetensors", {"format": "pt"})


def _wider(name: str, part: Tensor) -> Tensor:
    if "decoder.final_layer_norm" in name:
        return part.repeat(WIDER) / WIDER
    if part.dim() == 1:
        return part.repeat(WIDER)
    if "embed" in name:
        return part.repeat(1, WIDER)
    return part.repeat(WIDER, WIDER) / WIDER
