"""Preferences by TRL, on several hosts. On each of them: `python trl_dpo.py peers.toml MODEL`; here:

    .venv/bin/python examples/on_two.py examples/trl_dpo.py 20

Needs `pip install trl`.
"""

import sys
from tempfile import mkdtemp

from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import DPOConfig, DPOTrainer

import seedflood
from seedflood.embedded import texts

peers, folder = sys.argv[1:]
model = AutoModelForCausalLM.from_pretrained(folder, dtype="float32")
reference = AutoModelForCausalLM.from_pretrained(folder, dtype="float32")  # here: the daemon loads models, too
tokenizer = AutoTokenizer.from_pretrained(folder)

# What shall be preferred: a sentence as it goes on, to the same words backwards.
words = [row["text"].split() for row in texts("train")[:256]]
rows = [
    {"prompt": " ".join(one[:4]), "chosen": " " + " ".join(one[4:]), "rejected": " " + " ".join(one[:3:-1])}
    for one in words
]

with seedflood.join(model, peers) as swarm:
    args = DPOConfig(
        output_dir=mkdtemp(),
        max_steps=swarm.steps,
        max_grad_norm=0.0,
        max_length=64,
        save_strategy="no",
        logging_steps=5,
        bf16=False,
        report_to=[],
    )
    trainer = DPOTrainer(
        model,
        ref_model=reference,
        args=args,
        train_dataset=Dataset.from_list(rows).shard(swarm.shard.count, swarm.shard.index),
        processing_class=tokenizer,
        optimizers=(swarm.optimizer(), swarm.schedule()),
    )
    seedflood.Callback(swarm).add_to(trainer)
    trainer.train()
print(f"digest {swarm.digest}")
