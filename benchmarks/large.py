"""A real model, Gemma 3 270M: how soon four daemons on one machine are ready, what memory they have, and a step.

Rows are as long as those of SST-2, and their tokens are drawn. A plain gradient is what activations alone cost: forward
and backward of the model as transformers has it, with respect to the embedded tokens, on the same pieces of the batch
and with the logits of the label words only. Plain forwards are those of a user of transformers, with the logits of all
words.
"""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch.nn import functional

from benchmarks.measure import Metric, make_metric, ratios, resident_kilobytes_max, run_in_turn, shared_folder
from benchmarks.model import OBJECTIVE, make_batch, make_wide_batch, plain_inputs
from benchmarks.processes import Cluster, moment, ring
from seedflood.config import RunSettings
from seedflood.training.causal import CausalModel
from seedflood.training.models import load_model
from seedflood.training.objectives.batches import LabelledBatch
from seedflood.training.seedflood.gradient import CPU_CALL_TOKENS
from seedflood.training.seedflood.replica import Replica

MODEL = "gemma-3-270m"
"""The folder that `make real` fetches it to."""

DAEMONS, STEPS = 4, 100_000
REPETITIONS = 5
READY_SECONDS, WAIT_SECONDS_MAX = 20.0, 900.0
PARTS = ("start", "step", "memory")


def run(parts: Sequence[str] = (), folder: Path | None = None) -> dict[str, Metric]:
    """parts: of `PARTS`; without, all. folder: of `make real`."""
    model = (folder or Path("runs/real")) / MODEL
    jobs: dict[str, Callable[[Path], dict[str, Metric]]] = {"start": _start, "step": _step, "memory": _memory}
    metrics: dict[str, Metric] = {}
    for part in parts or PARTS:
        metrics |= jobs[part](model)
    return metrics


def _start(model: Path) -> dict[str, Metric]:
    """Four at once, each with one thread: seconds from the start of the processes, and the processor time of each. Of
    memory what is its own, and all of it with what they share counted once."""
    run = {"model": str(model), "task": "sst2", "estimate": "gradient", "clients": DAEMONS, "steps": STEPS}
    node = {"data": str(shared_folder() / "data" / "sst2")}
    with (
        TemporaryDirectory(prefix="seedflood-large-") as home,
        Cluster(Path(home), DAEMONS, ring(DAEMONS), run=run, node=node) as cluster,
    ):
        begun = time.time()
        for one in cluster.nodes:
            one.start()
        lines = [one.wait_for("ready", WAIT_SECONDS_MAX)[-1] for one in cluster.nodes]
        pids = [one.pid for one in cluster.nodes]
        return {
            "large.start_seconds": make_metric([moment(line) - begun for line in lines], READY_SECONDS),
            "large.start_processor_seconds": make_metric([one.cpu_seconds() for one in cluster.nodes]),
            "large.own_megabytes": make_metric([_own_megabytes(pid) for pid in pids]),
            "large.all_megabytes": make_metric([sum(_megabytes(pid, "Pss:") for pid in pids)]),
        }


def _own_megabytes(pid: int) -> float:
    return _megabytes(pid, "Private_Clean:") + _megabytes(pid, "Private_Dirty:")


def _megabytes(pid: int, name: str) -> float:
    return int(Path(f"/proc/{pid}/smaps_rollup").read_text().partition(name)[2].split()[0]) * 1024 / 1e6


def _step(model: Path) -> dict[str, Metric]:
    replica, plain = _replica(model), load_model(str(model)).causal
    two_sided = _replica(model, "two-sided")
    draws = {name: count() for name in ("gradient", "plain", "two-sided", "forwards")}

    def forwards() -> None:
        for batch in _halves(next(draws["forwards"])):
            for half in range(2):  # eight rows at once: logits of all words take much memory
                rows = batch.rows(torch.arange(8) + 8 * half)
                _forward(plain, rows)
                _forward(plain, rows)

    def estimate() -> None:
        seed = next(draws["two-sided"])
        for batch in _halves(seed):
            two_sided.measure(0, seed, OBJECTIVE, batch)

    def gradient() -> None:
        for batch in _halves(next(draws["gradient"])):
            replica.measure_gradient(0, OBJECTIVE, batch)

    def plain_gradient() -> None:
        for batch in _halves(next(draws["plain"])):
            _plain_gradient(plain, batch)

    seconds = run_in_turn(
        {
            "gradient": gradient,
            "plain": plain_gradient,
            "two-sided": estimate,
            "forwards": forwards,
        },
        REPETITIONS,
    )
    return {
        "large.gradient_to_plain": make_metric(ratios(seconds["gradient"], seconds["plain"]), 1.1),
        "large.gradient_seconds": make_metric(seconds["gradient"]),
        "large.two_sided_to_forwards": make_metric(ratios(seconds["two-sided"], seconds["forwards"]), 0.4),
        "large.two_sided_seconds": make_metric(seconds["two-sided"]),
    }


def _halves(seed: int) -> Iterator[LabelledBatch]:
    """Two batches of sixteen rows."""
    return (make_batch(2 * seed + half) for half in range(2))


def _replica(model: Path, estimate: str = "gradient") -> Replica:
    return Replica(load_model(str(model)), RunSettings.of(clients=2, estimate=estimate))


@torch.inference_mode()
def _forward(plain: CausalModel, batch: LabelledBatch) -> None:
    plain.module(**plain_inputs(batch)).loss.item()


def _plain_gradient(plain: CausalModel, batch: LabelledBatch) -> None:
    for piece in batch.split(CPU_CALL_TOKENS):
        embedded_BTD = plain.module.get_input_embeddings()(piece.tokens_BT).detach().requires_grad_()
        backbone = getattr(plain.module, plain.module.base_model_prefix)
        hidden_BTD = backbone(inputs_embeds=embedded_BTD, use_cache=False).last_hidden_state
        answer_BD = hidden_BTD[torch.arange(len(hidden_BTD)), piece.lengths_B - 1]
        word_LD = plain.module.get_output_embeddings().weight[list(OBJECTIVE.words)]
        functional.cross_entropy(answer_BD @ word_LD.T, piece.label_B, reduction="sum").backward()  # type: ignore[no-untyped-call]


def _memory(model: Path) -> dict[str, Metric]:
    """Peaks above the imports, each in a process of its own."""
    peaks = {subject: [_peak(subject, model)] for subject in SUBJECTS}
    return {
        "large.memory_to_plain": make_metric(ratios(peaks["gradient"], peaks["plain"]), 1.25),
        **{f"large.{subject}_megabytes": make_metric(peaks[subject]) for subject in SUBJECTS},
    }


def _peak(subject: str, model: Path) -> float:
    """MB (10^6 bytes)."""
    command = [sys.executable, "-m", "benchmarks.large", subject, str(model)]
    ran = subprocess.run(command, capture_output=True, text=True, check=True, cwd=Path(__file__).parent.parent)
    return float(json.loads(ran.stdout.splitlines()[-1]))


def _train(model: Path) -> None:
    replica = _replica(model)
    for _ in range(2):
        replica.measure_gradient(0, OBJECTIVE, make_wide_batch())


def _infer(model: Path) -> None:
    plain = load_model(str(model)).causal
    for _ in range(2):
        _plain_gradient(plain, make_wide_batch())


SUBJECTS: dict[str, Callable[[Path], None]] = {"gradient": _train, "plain": _infer}

if __name__ == "__main__":
    before = resident_kilobytes_max()
    SUBJECTS[sys.argv[1]](Path(sys.argv[2]))
    print(json.dumps((resident_kilobytes_max() - before) * 1024 / 1e6))
