"""Supervised fine-tuning by TRL, on several hosts. On each of them: `python trl_sft.py peers.toml MODEL`; here:

    .venv/bin/python examples/on_two.py examples/trl_sft.py 20

Needs `pip install trl`.
"""

import sys
from tempfile import mkdtemp

from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import SFTConfig, SFTTrainer

import seedflood
from seedflood.embedded import texts

peers, folder = sys.argv[1:]
model = AutoModelForCausalLM.from_pretrained(folder, dtype="float32")
tokenizer = AutoTokenizer.from_pretrained(folder)

with seedflood.join(model, peers) as swarm:
    args = SFTConfig(
        output_dir=mkdtemp(),
        max_steps=swarm.steps,
        max_grad_norm=0.0,
        max_length=64,
        save_strategy="no",
        logging_steps=5,
        bf16=False,
        report_to=[],
    )
    trainer = SFTTrainer(
        model,
        args=args,
        train_dataset=Dataset.from_list(texts("train")[:512]).shard(swarm.shard.count, swarm.shard.index),
        processing_class=tokenizer,
        optimizers=(swarm.optimizer(), swarm.schedule()),
    )
    seedflood.Callback(swarm).add_to(trainer)
    trainer.train()
print(f"digest {swarm.digest}")
