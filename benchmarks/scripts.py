"""A script's loop beside the daemon's own: what a step costs, and the memory of the process.

One host, the same model, rows and batch size; all rows have as many tokens, so neither saves padding. Processor time of
a step is the difference between a long and a short run of whole processes, by their number of steps; memory is the peak
of the long one. In turn, so that a machine that becomes slower meanwhile is slower for both.

    python -m benchmarks scripts
"""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from benchmarks.measure import Metric, make_metric, shared_folder
from seedflood.cluster.ports import reserve_ports
from seedflood.config import RunSettings, spell
from seedflood.embedded import MODEL_FOLDER, texts

REPETITIONS = 5
STEPS = {"embedded": (20, 420), "tiny_opt": (10, 70)}
"""Of the short and the long run."""

TOKENS = 32
BATCH_SIZE = 16
TARGET = 1.05

LOOP = """
import sys
import torch
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer
import seedflood

folder, rows = sys.argv[1:]
model = AutoModelForCausalLM.from_pretrained(folder, dtype="float32")
tokenizer = AutoTokenizer.from_pretrained(folder)


def collate(batch):
    tokens = torch.tensor(batch)
    return {"input_ids": tokens, "labels": tokens}


with open(rows) as file:
    texts = [json.loads(line)["text"] for line in file]
tokens = tokenizer(texts, truncation=True, max_length=TOKENS).input_ids  # before the loop, as the daemon has them
with seedflood.join(model, "peers.toml") as swarm:
    optimizer = swarm.optimizer()
    for batch in swarm.share(DataLoader(tokens, batch_size=BATCH_SIZE, collate_fn=collate)):
        if ESTIMATE == "gradient":
            model(**batch).loss.backward()
            optimizer.step()
        else:
            optimizer.step(lambda: model(**batch).loss)
"""


PEAK = """
import atexit
from pathlib import Path


def note_peak():
    status = Path("/proc/self/status").read_text()
    Path("peak").write_text(status.partition("VmHWM:")[2].split()[0])


atexit.register(note_peak)
"""
"""What a process begins with. The kernel's own count of a child begins with the memory of this program."""

DAEMON = """
import runpy

runpy.run_module("seedflood", run_name="__main__")
"""


class Cost(NamedTuple):
    """Of a process: its processor seconds, and its peak memory in kilobytes."""

    seconds: float
    kilobytes: int


def run() -> dict[str, Metric]:
    models = {"embedded": MODEL_FOLDER, "tiny_opt": shared_folder() / "models" / "tiny-opt"}
    metrics: dict[str, Metric] = {}
    with TemporaryDirectory(prefix="seedflood-scripts-") as home:
        rows = Path(home) / "train.jsonl"
        rows.write_text("".join(json.dumps({"text": text}) + "\n" for text in long_texts(512)))
        for name, model in models.items():
            for estimate in ("gradient", "two-sided"):
                seconds, memory = _measure(Path(home) / name, model, rows, estimate, *STEPS[name])
                key = f"scripts.{name}_{estimate.replace('-', '_')}"
                metrics[f"{key}_seconds"] = make_metric(seconds, TARGET)
                metrics[f"{key}_memory"] = make_metric(memory, TARGET)
    return metrics


def long_texts(count: int) -> list[str]:
    """Texts with more than `TOKENS` tokens, each of several sentences."""
    sentences = [row["text"] for row in texts("train")]
    several = 8
    return [" ".join(sentences[(place + k) % len(sentences)] for k in range(several)) for place in range(count)]


def _measure(
    home: Path, model: Path, rows: Path, estimate: str, few: int, many: int
) -> tuple[list[float], list[float]]:
    """How many times as much a script takes as the daemon: processor time of a step, and memory."""
    seconds: list[float] = []
    memory: list[float] = []
    for number in range(REPETITIONS):
        costs = {}
        for task in ("lm", "own"):
            folder = home / f"{estimate}-{number}-{task}"
            short, long = (_cost(folder / str(steps), model, rows, estimate, task, steps) for steps in (few, many))
            costs[task] = Cost((long.seconds - short.seconds) / (many - few), long.kilobytes)
        print(f"{home.name} {estimate}: {costs}", file=sys.stderr)
        seconds.append(costs["own"].seconds / costs["lm"].seconds)
        memory.append(costs["own"].kilobytes / costs["lm"].kilobytes)
    return seconds, memory


def _cost(folder: Path, model: Path, rows: Path, estimate: str, task: str, steps: int) -> Cost:
    folder.mkdir(parents=True)
    keys = {"model": str(model), "task": task, "clients": 1, "steps": steps, "batch_size": BATCH_SIZE}
    run = RunSettings.place({**keys, "estimate": estimate, "max_length": TOKENS})
    node = {"listen": f"127.0.0.1:{reserve_ports(1)[0]}", "http": "", "threads": 1, "evaluate_examples": 0}
    if task == "own":
        constants = f"import json\nTOKENS, BATCH_SIZE, ESTIMATE = {TOKENS}, {BATCH_SIZE}, {estimate!r}\n"
        command = [sys.executable, "-c", PEAK + constants + LOOP, str(model), str(rows)]
    else:
        node |= {"data": str(rows)}
        command = [sys.executable, "-c", PEAK + DAEMON, "--peers", "peers.toml"]
    (folder / "peers.toml").write_text(spell({"run": run, "node": node}))
    return _spent(command, folder)


def _spent(command: Sequence[str], folder: Path) -> Cost:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log, env=environment)
        _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise RuntimeError(f"it ended with {process.returncode}: {(folder / 'log').read_text()[-2000:]}")
    return Cost(usage.ru_utime + usage.ru_stime, int((folder / "peak").read_text()))
