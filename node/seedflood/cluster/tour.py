"""The tour: hosts pre-train a model from scratch by GASLoC, and then fine-tune it by SeedFlood, as one course.

Without other data both runs use what comes with the package: text of the embedded language, and the embedded task. The
text has none of the task's sentences.
"""

from pathlib import Path
from typing import Any

from seedflood.cluster.local import ClusterPlan
from seedflood.cluster.topology import TopologyName
from seedflood.config import merge

BATCH_SIZE, LENGTH, LOCAL_STEPS = 16, 64, 20

PRETRAINING: dict[str, Any] = {
    "mode": "gasloc",
    "batch_size": BATCH_SIZE,
    "objective": {"max_length": LENGTH},
    "gasloc": {
        "initial": "random",
        "local_steps": LOCAL_STEPS,
        "learning_rate": 3e-3,
    },
}

EVALUATIONS = 12
"""How often the first run is evaluated on the way."""


def plan_tour(
    *,
    nodes: int,
    topology: TopologyName,
    model: str,
    texts: str,
    task: str,
    data: str | None,
    steps: tuple[int, int],
    seed: int,
) -> ClusterPlan:
    """The plan of a tour. texts: rows for pre-training. task, data: for fine-tuning. steps: of both runs."""
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
        data=texts,
        steps=-(-pretraining // LOCAL_STEPS) * LOCAL_STEPS,
        train_examples=None,
        seed=seed,
        evaluate_every=max(LOCAL_STEPS, pretraining // EVALUATIONS),
        overrides={"run": merge({"name": "pretrain"}, PRETRAINING)},
        then=then,
    )


def curves_of(result: dict[str, Any]) -> tuple[dict[str, list[tuple[float, float]]], ...]:
    """The curves of both runs by figure. x is tokens of all hosts in the first run, steps in the second."""
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
