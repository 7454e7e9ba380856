"""Tiny packed tasks, models and trainers."""

import torch
from reference import VOCABULARY, tiny_model, tiny_tokenizer

from seedflood.training.gasloc.initial import draw_weights
from seedflood.training.gasloc.outer import PLAIN, OuterSettings
from seedflood.training.gasloc.packing import PackedTask
from seedflood.training.gasloc.trainer import Trainer
from seedflood.training.gasloc.worker import Worker, WorkerSettings
from seedflood.training.models import prepare_model

LENGTH = 12


def sequences(rows, seed=0):
    """Rows that can be learned: every token follows from the one before it, but for a few."""
    generator = torch.Generator().manual_seed(seed)
    tokens = [torch.randint(VOCABULARY, (rows,), generator=generator)]
    for _ in range(LENGTH - 1):
        is_wild = torch.rand(rows, generator=generator) < 0.1
        wild = torch.randint(VOCABULARY, (rows,), generator=generator)
        tokens.append(torch.where(is_wild, wild, (5 * tokens[-1] + 7) % VOCABULARY))
    return torch.stack(tokens, dim=1).to(torch.int32)


def packed_task(rows=40, batch_size=6, run_seed=3, seed=0):
    return PackedTask(sequences(rows, seed), sequences(10, 99), batch_size=batch_size, run_seed=run_seed)


def worker_of(origin=1, *, family="opt", task=None, seed=0, **settings):
    model = tiny_model(family, seed=seed)
    return Worker(model, task or packed_task(), origin, WorkerSettings(**{"learning_rate": 1e-2, **settings}))


def trainer_of(origin=1, outer: OuterSettings = PLAIN, *, seed=0, is_fresh=False, **settings):
    base = prepare_model(tiny_model("opt", seed=seed), tiny_tokenizer())
    if is_fresh:
        draw_weights(base.model, seed)
    return Trainer(base, packed_task(), origin, WorkerSettings(**{"learning_rate": 1e-2, **settings}), outer)
