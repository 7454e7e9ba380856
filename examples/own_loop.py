"""A training loop of one's own. On each host: `python own_loop.py peers.toml MODEL`; here, with two processes:

.venv/bin/python examples/on_two.py examples/own_loop.py
"""

import sys

from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer

import seedflood
from seedflood.embedded import texts

peers, folder = sys.argv[1:]
model = AutoModelForCausalLM.from_pretrained(folder, dtype="float32")
tokenizer = AutoTokenizer.from_pretrained(folder)
rows = [row["text"] for row in texts("train")][:512]


def collate(batch):
    tokens = tokenizer(batch, return_tensors="pt", padding=True)
    return {**tokens, "labels": tokens.input_ids.masked_fill(tokens.attention_mask == 0, -100)}


with seedflood.join(model, peers) as swarm:
    optimizer = swarm.optimizer()
    for batch in swarm.share(DataLoader(rows, batch_size=8, collate_fn=collate)):
        loss = model(**batch).loss  # any loss
        loss.backward()
        optimizer.step()  # tells the other hosts, and applies what all of them found
        optimizer.zero_grad()
        if swarm.step % 10 == 0:
            print(f"step {swarm.step}: loss of all hosts {swarm.loss:.3f}, {swarm.bytes_sent:,} bytes sent", flush=True)
print(f"digest {swarm.digest}")
