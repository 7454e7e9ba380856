"""Memory of a host over two processes: what each of them holds of a model of 1.2 B parameters in float32, to what one
process holds.

One model has the shapes of Llama 3.2 1B, the other is a mixture of 16 experts in each of 32 layers. Weights are drawn,
and so are all bases: singular vectors take minutes, and no memory. Figures are of resident memory without what the
imports took: after loading, and the most during two gradients and the fold of an epoch. The ranks are on one machine,
and load in turn.
"""

import gc
import json
import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
import transformers

from benchmarks.measure import Metric, make_metric
from seedflood import embedded
from seedflood.cluster.ports import reserve_ports
from seedflood.config import NodeSettings, RankPlace, RunSettings, find_rank
from seedflood.errors import RankError
from seedflood.protocol.seedflood.bundles import Update
from seedflood.training.ranks import Ranks, join_ranks
from seedflood.training.seedflood import replica
from seedflood.training.seedflood.trainer import Trainer

RANKS = 2
MEMORY_MAX = 0.55
PERIOD = 2
RUN = {
    "task": "embedded",
    "estimate": "gradient",
    "rank": 8,
    "batch_size": 2,
    "refresh_period": PERIOD,
    "clients": 1,
    "train_examples": 16,
    "steps": 8,
}
CONFIGURATIONS = {
    "llama": transformers.LlamaConfig(
        hidden_size=2048,
        intermediate_size=8192,
        num_hidden_layers=16,
        num_attention_heads=32,
        num_key_value_heads=8,
        head_dim=64,
        vocab_size=128_256,
        max_position_embeddings=512,
        tie_word_embeddings=True,
    ),
    "mixture": transformers.Qwen3MoeConfig(
        hidden_size=1024,
        moe_intermediate_size=768,
        num_experts=16,
        num_experts_per_tok=4,
        num_hidden_layers=32,
        num_attention_heads=16,
        num_key_value_heads=4,
        vocab_size=32_000,
        max_position_embeddings=512,
        tie_word_embeddings=True,
    ),
}


def run() -> dict[str, Metric]:
    metrics: dict[str, Metric] = {}
    for model in CONFIGURATIONS:
        with TemporaryDirectory(prefix="seedflood-ranks-") as home:
            subprocess.run([sys.executable, "-m", "benchmarks.ranks", "make", home, model], check=True)
            whole, parts = _host(home, 1)[0], _host(home, RANKS)
        for name in whole:
            ratio = max(part[name] for part in parts) / whole[name]
            metrics[f"ranks.{model}.{name}_megabytes_of_one"] = make_metric([whole[name]])
            metrics[f"ranks.{model}.{name}_megabytes_of_each"] = make_metric([part[name] for part in parts])
            metrics[f"ranks.{model}.{name}_memory"] = make_metric([ratio], MEMORY_MAX)
    return metrics


def _host(home: str, count: int) -> list[dict[str, float]]:
    """What each process of a host has taken, in MB."""
    address = {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(reserve_ports(1)[0]),
        "WORLD_SIZE": str(count),
        "TORCHELASTIC_RUN_ID": "none",
    }
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", "benchmarks.ranks", "rank", home],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **address, "RANK": str(rank)},
        )
        for rank in range(count)
    ]
    said = [process.communicate()[0] for process in processes]
    return [json.loads(text.splitlines()[-1]) for text in said]


def _make(home: Path, model: str) -> None:
    """A folder of a model."""
    torch.manual_seed(1)
    made: Any = transformers.AutoModelForCausalLM.from_config(CONFIGURATIONS[model])  # type: ignore[no-untyped-call]
    made.to(torch.bfloat16).save_pretrained(home)
    transformers.AutoTokenizer.from_pretrained(str(embedded.MODEL_FOLDER)).save_pretrained(home)


class _Memory:
    """Resident memory of this process, in MB, without what it had at first."""

    def __init__(self) -> None:
        self._before = 0.0
        self._before = self.read("VmRSS")
        self.found: dict[str, float] = {}

    def read(self, name: str) -> float:
        """name: VmRSS, or VmHWM for the most."""
        text = Path("/proc/self/status").read_text().partition(f"{name}:")[2]
        return int(text.split()[0]) * 1024 / 1e6 - self._before

    def loaded(self) -> None:
        gc.collect()
        self.found["loaded"] = self.read("VmRSS")
        Path("/proc/self/clear_refs").write_text("5")  # the most is counted from here on

    def tell(self) -> None:
        self.found["step"] = self.read("VmHWM")
        print(json.dumps(self.found), flush=True)


def _live(home: str, place: RankPlace) -> None:
    """A process of the host."""
    memory = _Memory()

    def end(fault: RankError | None) -> None:
        if place.rank > 0:
            memory.tell()
            os._exit(0 if fault is None else 1)

    node = NodeSettings(device="cpu", dtype="float32", evaluate_examples=0)
    replica.fix_singular_columns = lambda *_: None  # type: ignore[attr-defined]
    ranks = join_ranks(place, node, end)
    trainer = Trainer(RunSettings.of(model=home, **RUN), node, ranks)
    memory.loaded()
    if isinstance(ranks, Ranks) and place.rank > 0:
        trainer.follow(ranks)
    for step in (0, PERIOD):  # the second one folds the epoch of the first
        trainer.replica.apply([Update(1, step, *trainer.measure(1, step, 1).probes)])
    memory.tell()
    ranks.end()


if __name__ == "__main__":
    if sys.argv[1] == "make":
        _make(Path(sys.argv[2]), sys.argv[3])
    else:
        _live(sys.argv[2], find_rank())
