"""Makes a trainer from settings: the base model in float32, with its initial weights, and packed rows of this host."""

import torch

from seedflood.config import NodeSettings, RunSettings
from seedflood.errors import ConfigError
from seedflood.protocol.origin import OriginId
from seedflood.training.devices import usual_dtype
from seedflood.training.gasloc.initial import draw_weights
from seedflood.training.gasloc.outer import OuterSettings
from seedflood.training.gasloc.packing import pack_task
from seedflood.training.gasloc.schedule import Schedule
from seedflood.training.gasloc.trainer import Trainer
from seedflood.training.gasloc.worker import WorkerSettings
from seedflood.training.loading import load_base, load_rows
from seedflood.training.models import BaseModel, digest_model, with_tokens


def load_trainer(run: RunSettings, node: NodeSettings, origin: OriginId) -> Trainer:
    """The trainer of a run on this host. Raises ConfigError, ModelError or DataError."""
    if node.threads is not None:
        torch.set_num_threads(node.threads)
    if node.dtype == "float16":
        raise ConfigError('[node] dtype = "float16" has too small a range for GASLoC: use "bfloat16", or "float32".')
    base = load_base(run, node.model_copy(update={"dtype": "float32"}))
    if run.gasloc.initial == "random":
        draw_weights(base.model, run.seed)
        base.digest = with_tokens(digest_model(base.model), base.tokenizer)
    task = pack_task(load_rows(run, node, base))
    task.validation_ST = task.validation_ST[: node.evaluate_examples or None]
    # Momentum pulls honest replicas further apart than their own steps do.
    is_bounded = run.gasloc.gamma == 0
    outer = OuterSettings(run.gasloc.eta, run.gasloc.gamma, run.gasloc.encoding, is_bounded=is_bounded)
    return Trainer(base, task, origin, _worker_settings(run, node, base), outer)


def _worker_settings(run: RunSettings, node: NodeSettings, base: BaseModel) -> WorkerSettings:
    said, dtype = run.gasloc, usual_dtype(base.device)
    return WorkerSettings(
        learning_rate=said.learning_rate,
        schedule=Schedule(run.steps // 10 if said.initial == "random" else 0, run.steps),
        micro_batch=node.micro_batch,
        is_bfloat16=node.dtype == "bfloat16" or (node.dtype == "auto" and dtype == torch.bfloat16),
        is_checkpointed=node.saves_memory,
    )
