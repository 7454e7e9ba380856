"""The tour: hosts pre-train a model from scratch by GASLoC, and then fine-tune it by SeedFlood, as one course.

Without data of the reader's own everything is generated: text of the embedded language, and the embedded task, none of
whose sentences the text has.
"""

import json
from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from typing import Any

from seedflood import embedded
from seedflood.cluster.local import ClusterPlan
from seedflood.cluster.topology import TopologyName
from seedflood.embedded import grammar

TEXTS, VALIDATION_TEXTS, TEXTS_SEED = 60_000, 600, 7

BATCH_SIZE, LENGTH, LOCAL_STEPS = 16, 64, 20

PRETRAINING: dict[str, Any] = {
    "mode": "gasloc",
    "batch_size": BATCH_SIZE,
    "objective": {"max_length": LENGTH},
    "gasloc": {
        "initial": "random",
        "local_steps": LOCAL_STEPS,
        "learning_rate": 3e-3,
        "warmup_steps": 100,
    },
}

EVALUATIONS = 12
"""While it pre-trains."""


def write_texts(folder: Path) -> None:
    """Text of the embedded language, as rows."""
    held_out = {str(row["sentence"]) for split in embedded.SPLITS for row in embedded.rows(split)}
    texts = grammar.texts(TEXTS_SEED, held_out)
    folder.mkdir(parents=True)
    for name, count in (("validation", VALIDATION_TEXTS), ("train", TEXTS)):
        _write_rows(folder / f"{name}.jsonl", islice(texts, count))


def plan_tour(
    *,
    nodes: int,
    topology: TopologyName,
    model: str,
    texts: Path,
    task: str,
    data: str | None,
    steps: tuple[int, int],
    seed: int,
) -> ClusterPlan:
    """texts: rows to pre-train on. task, data: what is fine-tuned then. steps: of both runs."""
    pretraining, finetuning = (max(count, 1) for count in steps)
    then: dict[str, Any] = {
        "run": {
            "name": "finetune",
            "steps": finetuning,
            "objective": {"task": task},
            "train_examples": 1024,
            "seedflood": {"estimate": "gradient"},
        },
        "node": {"data": str(Path(data).resolve())} if data is not None else {},
    }
    return ClusterPlan(
        nodes=nodes,
        topology=topology,
        model=model,
        task="lm",
        data=str(texts),
        steps=-(-pretraining // LOCAL_STEPS) * LOCAL_STEPS,
        train_examples=None,
        seed=seed,
        evaluate_every=max(LOCAL_STEPS, pretraining // EVALUATIONS),
        overrides={"run": {"name": "pretrain", **PRETRAINING}},
        then=then,
    )


def curves_of(result: dict[str, Any]) -> tuple[dict[str, list[tuple[float, float]]], ...]:
    """Of both runs: points by the name of a figure. Those of the first one stand over tokens of all hosts, those of the
    second one over steps."""
    (before,) = result["earlier"]
    tokens = sum(node["tokens"] for node in before["nodes"]) / max(node["steps"] for node in before["nodes"])
    return _points(before, tokens), _points(result, 1.0)


def _points(run: dict[str, Any], scale: float) -> dict[str, list[tuple[float, float]]]:
    curves: dict[str, list[tuple[float, float]]] = {}
    for one in run["evaluations"]:
        for name, value in one.items():
            if name not in ("run", "step"):
                curves.setdefault(name, []).append((scale * one["step"], value))
    return curves


def _write_rows(path: Path, texts: Iterable[str]) -> None:
    with path.open("w") as file:
        file.writelines(json.dumps({"text": text}) + "\n" for text in texts)
