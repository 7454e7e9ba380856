"""A trainer that is made again after its weights were damaged: the program of each process of a host.

Its arguments are settings of the run, as JSON. Rank 0 prints two digests: of what it has learned, and of the same after
it was made again.
"""

import hashlib
import json
import sys
from pathlib import Path

import torch

from seedflood.config import NodeSettings, RunSettings, find_rank
from seedflood.protocol.seedflood.bundles import Update
from seedflood.protocol.seedflood.messages import ClosedEpoch
from seedflood.training.ranks import Ranks, join_ranks
from seedflood.training.seedflood.trainer import Trainer

RUN = {
    "model": "embedded",
    "task": "embedded",
    "train_examples": 64,
    "batch_size": 4,
    "estimate": "gradient",
    "rank": 4,
    "refresh_period": 3,
    "clients": 1,
}
STEPS = 8
ORIGIN = (1 << 63) + 5


def main() -> None:
    run = RunSettings.of(steps=STEPS, **RUN | json.loads(sys.argv[1]))
    rows = {"data": "rows.jsonl"} if run.objective.task == "reward" else {}
    node = NodeSettings(device="cpu", threads=1, state=Path(), shard="1/2", audit=1.0, **rows)
    ranks = join_ranks(find_rank(), node, lambda _fault: None)
    trainer = Trainer(run, node, ranks)
    damage_before_loading_again(trainer)
    if isinstance(ranks, Ranks) and ranks.number > 0:
        trainer.follow(ranks)
    updates = []
    for step in range(STEPS):
        (value,) = trainer.measure(ORIGIN, step, 1).probes
        updates.append(Update(ORIGIN, step, value))
        if run.objective.ahead and step % 2 == 0:
            assert trainer.write_ahead(ORIGIN, step)
        trainer.replica.apply(updates[-1:])
    closed = [ClosedEpoch(0, (), trainer.replica.sum_epoch(0))]
    learned = digest(trainer)
    trainer.rebuild(closed, [[one for one in updates if one.step >= run.seedflood.refresh_period]])
    print(json.dumps([learned, digest(trainer)]))
    ranks.end()


def damage_before_loading_again(trainer: Trainer) -> None:
    load_again = trainer._load_again

    def damage() -> None:
        with torch.no_grad():
            for slot in trainer.replica.slots:
                (slot.stored._own_HK if slot.stored is not None else slot.parameter).add_(1.0)
        load_again()

    trainer._load_again = damage


def digest(trainer: Trainer) -> str:
    """Of what was applied, of a gradient in the open epoch, of that of a host with other rows, and of the weights."""
    hasher = hashlib.sha256(trainer.digest())
    (value,) = trainer.measure(ORIGIN, STEPS, 1).probes
    hasher.update(value)
    rows = trainer.rows._replace(place=1)
    (value,) = trainer.measure_again(ORIGIN, rows, STEPS, 1).probes
    hasher.update(value)
    for name, weight in sorted(trainer.replica.weights().items()):
        hasher.update(name.encode() + weight.numpy().tobytes())
    return hasher.hexdigest()


if __name__ == "__main__":
    main()
