"""Texts that a reward likes, by TRL, on several hosts. On each: `python trl_grpo.py peers.toml MODEL`; here:

    .venv/bin/python examples/on_two.py examples/trl_grpo.py 20

Needs `pip install trl`.
"""

import sys
from tempfile import mkdtemp

from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import GRPOConfig, GRPOTrainer

import seedflood
from seedflood.embedded import texts

peers, folder = sys.argv[1:]
model = AutoModelForCausalLM.from_pretrained(folder, dtype="float32")
tokenizer = AutoTokenizer.from_pretrained(folder)
prompts = [{"prompt": " ".join(row["text"].split()[:4])} for row in texts("train")[:256]]


def praise(completions, **_):
    """What a text is worth."""
    return [float("good" in one or "great" in one) for one in completions]


# Far below the default rate, which is for losses that say what is right.
rate = {"run": {"seedflood": {"learning_rate": 2e-3}}}

with seedflood.join(model, peers, rate) as swarm:
    args = GRPOConfig(
        output_dir=mkdtemp(),
        max_steps=swarm.steps,
        max_grad_norm=0.0,
        num_generations=8,
        num_iterations=1,
        max_completion_length=16,
        save_strategy="no",
        logging_steps=5,
        bf16=False,
        report_to=[],
    )
    trainer = GRPOTrainer(
        model,
        reward_funcs=praise,
        args=args,
        train_dataset=Dataset.from_list(prompts).shard(swarm.shard.count, swarm.shard.index),
        processing_class=tokenizer,
        optimizers=(swarm.optimizer(), swarm.schedule()),
    )
    seedflood.Callback(swarm).add_to(trainer)
    trainer.train()
print(f"digest {swarm.digest}")
