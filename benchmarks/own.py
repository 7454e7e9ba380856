"""A loop of one's own beside the daemon's task "prompted": the same rows, order, run seed and steps, two losses.

tiny-opt on SST-2, one host with 16 rows a step. `words`: the loop computes the cross-entropy of the label words, as the
task does. `tokens`: that of the word among all tokens, what transformers computes with `labels`. Both are judged as
the task is: by the cross-entropy of the label words over all validation rows. The key is the same, so rows are the
same, too. Only `words` has a target.
"""

import json
from collections.abc import Callable, Mapping
from operator import itemgetter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.utils.data import DataLoader

import seedflood
from benchmarks.measure import Metric, make_metric, shared_folder
from benchmarks.processes import Cluster
from seedflood.cluster.plan import secret_of
from seedflood.config import RunSettings, spell
from seedflood.host.places import KEY_FILE
from seedflood.identity import write_key
from seedflood.training.evaluation import evaluate
from seedflood.training.models import load_model
from seedflood.training.shards import choose_rows
from seedflood.training.tasks import load_task

SEEDS = (1, 2, 3)
STEPS, BATCH_SIZE, ROWS = 48, 16, 1024
WORDS = (" terrible", " great")
APART_MAX = 0.02
WAIT_SECONDS_MAX = 1800.0


def run() -> dict[str, Metric]:
    found: dict[str, list[float]] = {}
    for seed in SEEDS:
        with TemporaryDirectory(prefix="seedflood-own-") as home:
            theirs, digest = daemon(Path(home, "daemon"), seed)
            for name, loss_of in LOSSES.items():
                ours, own_digest = own_loop(Path(home, name), seed, loss_of)
                for figure in ("loss", "accuracy"):
                    found.setdefault(f"own.{name}.{figure}", []).append(ours[figure])
                found.setdefault(f"own.{name}.apart", []).append(abs(ours["loss"] - theirs["loss"]))
                found.setdefault(f"own.{name}.equal_digests", []).append(float(own_digest == digest))
        for figure in ("loss", "accuracy"):
            found.setdefault(f"own.daemon.{figure}", []).append(theirs[figure])
    targets = {"own.words.apart": APART_MAX}
    return {name: make_metric(values, targets.get(name)) for name, values in found.items()}


def keys_of(seed: int) -> dict[str, Any]:
    keys = {"model": _model(), "estimate": "gradient", "steps": STEPS, "batch_size": BATCH_SIZE, "seed": seed}
    return {**keys, "train_examples": ROWS, "clients": 1}


def daemon(home: Path, seed: int) -> tuple[Mapping[str, float], str]:
    """What it has learned, and its digest."""
    node = {"data": str(shared_folder() / "data" / "sst2"), "export": str(home / "model"), "listen": ""}
    with Cluster(home, 1, [], run={**keys_of(seed), "task": "sst2"}, node=node) as cluster:
        cluster.nodes[0].start()
        cluster.nodes[0].wait_for("finished", WAIT_SECONDS_MAX)
        cluster.nodes[0].stop()
    result = json.loads((cluster.nodes[0].state / "result.json").read_text())["result"]
    return judge(home / "model"), str(result["digest"])


def own_loop(home: Path, seed: int, loss_of: Callable[[Any, Any, Any], Tensor]) -> tuple[Mapping[str, float], str]:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    write_key(home / "state" / KEY_FILE, secret_of(seed, 0))
    node = {"state": str(home / "state"), "http": "", "listen": "", "threads": 1}
    (home / "peers.toml").write_text(spell({"run": RunSettings.place({**keys_of(seed), "task": "own"}), "node": node}))
    model = AutoModelForCausalLM.from_pretrained(_model(), dtype="float32")
    tokenizer = AutoTokenizer.from_pretrained(_model())
    rows = rows_of_file(tokenizer)
    with seedflood.join(model, home / "peers.toml") as swarm:
        optimizer = swarm.optimizer()
        for batch in swarm.share(DataLoader(rows, batch_size=BATCH_SIZE)):  # type: ignore[arg-type]
            loss = loss_of(model, tokenizer, batch)
            swarm.report(loss)
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
    model.save_pretrained(home / "model")
    tokenizer.save_pretrained(home / "model")
    return judge(home / "model"), swarm.digest


def rows_of_file(tokenizer: Any) -> list[Any]:
    """Those of which a run chooses, in the order of the file: without copies of validation rows."""
    shuffled = [row.columns for row in _task(tokenizer).train_rows]
    places = choose_rows(len(shuffled), None, RunSettings().seed)
    return [row for _, row in sorted(zip(places, shuffled, strict=True), key=itemgetter(0))]


def words_loss(model: Any, tokenizer: Any, batch: Any) -> Tensor:
    """Cross-entropy of the label words behind the prompts."""
    tokens = tokenizer(_prompts(batch), return_tensors="pt", padding=True)
    last = tokens.attention_mask.sum(dim=1) - 1
    logits = model(**tokens).logits[torch.arange(len(last)), last]
    words = [tokenizer(f"it was{word}").input_ids[-1] for word in WORDS]
    return functional.cross_entropy(logits[:, words], batch["label"])


def tokens_loss(model: Any, tokenizer: Any, batch: Any) -> Tensor:
    """Cross-entropy of the right word among all tokens."""
    texts = [prompt + WORDS[label] for prompt, label in zip(_prompts(batch), batch["label"], strict=True)]
    tokens = tokenizer(texts, return_tensors="pt", padding=True)
    place = torch.arange(tokens.input_ids.shape[1])
    is_word = place == tokens.attention_mask.sum(dim=1, keepdim=True) - 1
    loss: Tensor = model(**tokens, labels=tokens.input_ids.masked_fill(~is_word, -100)).loss
    return loss


LOSSES = {"words": words_loss, "tokens": tokens_loss}


def judge(model: Path) -> Mapping[str, float]:
    base = load_model(str(model))
    return evaluate(base.causal, _task(base.tokenizer)).figures


def _task(tokenizer: Any) -> Any:
    return load_task(RunSettings.of(task="sst2"), tokenizer, data=str(shared_folder() / "data" / "sst2"))


def _model() -> str:
    return str(shared_folder() / "models" / "tiny-opt")


def _prompts(batch: Any) -> list[str]:
    return [f"{sentence.strip()} . it was" for sentence in batch["sentence"]]
