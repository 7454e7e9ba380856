"""A loop of one's own beside the daemon's own tasks: with the same key, rows and order they send the same updates."""

import hashlib
import json
import os
import subprocess
from pathlib import Path

import pytest
import torch
from forks import programs
from torch.nn import functional
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM

import seedflood
from seedflood.cluster.plan import secret_of
from seedflood.config import RunSettings, load_settings, spell
from seedflood.embedded import LABEL_WORDS, MODEL_FOLDER, TEMPLATE, rows
from seedflood.host.places import KEY_FILE
from seedflood.identity import write_key
from seedflood.offline import learned
from seedflood.training.seedflood.compression import decode_coefficients

pytestmark = [pytest.mark.system, pytest.mark.timeout(600)]

RUN = {"estimate": "gradient", "steps": 8, "clients": 1, "batch_size": 8, "learning_rate": 0.01}
NOTHING = hashlib.sha256(b"seedflood replica 1\0").hexdigest()
"""The digest of a run that has learned nothing, or has gone back to its base."""
WORDS = [f" {word}" for word in LABEL_WORDS]
READ = {
    "prompted": {"template": TEMPLATE, "label_words": list(LABEL_WORDS)},
    "completion": {"template": TEMPLATE, "label_column": "word"},
}


@pytest.fixture
def data(tmp_path: Path) -> list[dict[str, str | int]]:
    """What is also in two files: rows to train and rows to evaluate, which are none of these."""
    made = [{**row, "word": WORDS[int(row["label"])]} for row in rows("train")[:104]]
    for name, part in (("train", made[:96]), ("validation", made[96:])):
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in part))
    return made[:96]


def write_host(home: Path, name: str, **keys: object) -> Path:
    """The settings of a host that is a run by itself. All hosts of this module have one key."""
    folder = home / name
    write_key(folder / "state" / KEY_FILE, secret_of(1, 0))
    node = {"name": name, "state": str(folder / "state"), "http": "", "listen": "", "threads": 1}
    if keys["task"] != "own":
        node |= {"data": str(home), "evaluate_examples": 0}
    (folder / "peers.toml").write_text(spell({"run": RunSettings.place(RUN | keys), "node": node}))
    return folder / "peers.toml"


def daemon(peers: Path) -> str:
    """Runs it to its end. Returns the digest."""
    command = [programs() / "seedflood-node", "--peers", str(peers)]
    done = subprocess.run(command, env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    return str(json.loads((peers.parent / "state" / "result.json").read_text())["result"]["digest"])


def next_token_loss(model, tokenizer, batch):
    """Of the word behind the prompt and the end of the text, by transformers: a mean over all of these tokens."""
    texts = [TEMPLATE.format(sentence=sentence) for sentence in batch["sentence"]]
    prompts = [len(tokens) for tokens in tokenizer(texts).input_ids]
    whole = [text + word + tokenizer.eos_token for text, word in zip(texts, batch["word"], strict=True)]
    tokens = tokenizer(whole, return_tensors="pt", padding=True)
    labels = tokens.input_ids.masked_fill(tokens.attention_mask == 0, -100)
    for row, prompt in enumerate(prompts):
        labels[row, :prompt] = -100
    return model(**tokens, labels=labels).loss


def label_word_loss(model, tokenizer, batch):
    """Cross-entropy of the label words alone."""
    texts = [TEMPLATE.format(sentence=sentence) for sentence in batch["sentence"]]
    tokens = tokenizer(texts, return_tensors="pt", padding=True)
    words = [tokenizer(f"it was{word}").input_ids[-1] for word in WORDS]
    last = tokens.attention_mask.sum(dim=1) - 1
    logits = model(**tokens).logits[torch.arange(len(last)), last][:, words]
    return functional.cross_entropy(logits, batch["label"])


LOSSES = {"prompted": label_word_loss, "completion": next_token_loss}


def own_loop(peers: Path, data, tokenizer, loss_of) -> str:
    model = AutoModelForCausalLM.from_pretrained(MODEL_FOLDER, dtype="float32")
    with seedflood.join(model, peers) as swarm:
        optimizer = swarm.optimizer()
        for batch in swarm.share(DataLoader(data, batch_size=8)):
            loss = loss_of(model, tokenizer, batch)
            swarm.report(loss)
            loss.backward()
            optimizer.step()
    return swarm.digest


def updates(peers: Path):
    """The form of the payloads, and the payload of each step."""
    with learned._node(load_settings(peers)) as (trainer, journal):
        told = sorted((one.step, one.value) for page in learned._batches(journal) for one in learned._updates(page))
        return trainer.compression, [payload for _, payload in told]


@pytest.mark.parametrize("task", ["prompted", "completion"])
def test_an_own_loop_learns_what_the_daemon_learns(tmp_path, data, tokenizer, task):
    """Also bit for bit, unless a slope is so small that rounding decides its sign. transformers computes all positions
    with a mask, and the daemon those that are read, of rows that were sorted by length: the same sums in another order.
    """
    ours, theirs = write_host(tmp_path, "own", task="own"), write_host(tmp_path, "daemon", task=task, **READ[task])
    digests = own_loop(ours, data, tokenizer, LOSSES[task]), daemon(theirs)
    compression, own = updates(ours)
    _, native = updates(theirs)
    differing = 0
    for a, b in zip(own, native, strict=True):
        differing += int((decode_coefficients(compression, a) != decode_coefficients(compression, b)).sum())
    assert len(own) == RUN["steps"]
    assert differing <= compression.values * len(own) / 1000
    assert NOTHING not in digests
    if not differing:
        assert digests[0] == digests[1]
