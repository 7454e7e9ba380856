"""The base model and the rows of a run, from where this host has them."""

import math
import os
from pathlib import Path
from typing import Any

from seedflood.config import NodeSettings, RunSettings, check_code
from seedflood.training.chat import end_tokens
from seedflood.training.devices import usual_device
from seedflood.training.models import BaseModel, load_model, with_tokens
from seedflood.training.own import OwnTask
from seedflood.training.tasks import Task, load_task


def choose_device(node: NodeSettings) -> str:
    """The device of this process, by its name."""
    return usual_device(int(os.environ.get("LOCAL_RANK", "0"))) if node.device == "auto" else node.device


def load_base(
    run: RunSettings, node: NodeSettings, adapter: Path | None = None, *, room: float = math.inf
) -> BaseModel:
    """The base model of a run, perhaps with the LoRA adapter in a folder. Its digest tells the tokenizer, too. room:
    see `prepare_model`. Raises ModelError."""
    name = run.model if node.model_path is None else str(node.model_path)
    device = choose_device(node)
    dtype = "auto" if node.dtype == "int8" or node.dtype == "nf4" else node.dtype
    base = load_model(name, device=device, dtype=dtype, adapter=adapter, room=room)
    if run.objective.task != "own":  # there tokens are the scripts' own affair
        base.digest = with_tokens(base.digest, base.tokenizer)
    ends = base.causal.ends | _ends_learned(base.tokenizer, run.objective.task, is_first=not base.causal.ends)
    if ends != base.causal.ends:  # whoever loads an export ends texts by these, too
        base.model.generation_config.eos_token_id = sorted(ends)
    return base


def _ends_learned(tokenizer: Any, task: str, *, is_first: bool) -> set[int]:
    """The tokens with which a task teaches a model to end. is_first: the model itself knows none."""
    if task not in ("chat", "completion", "reward") or tokenizer is None:
        return set()
    ends = set(end_tokens(tokenizer)) if task != "completion" else set()
    if tokenizer.eos_token_id is not None and (is_first or task == "completion"):
        ends.add(tokenizer.eos_token_id)
    return ends


def load_rows(run: RunSettings, node: NodeSettings, base: BaseModel) -> Task:
    """The rows of a run's task. Raises DataError or ConfigError."""
    if run.objective.task == "own":
        return OwnTask()
    check_code(run, node)
    size = base.causal.vocabulary_size
    return load_task(run, base.tokenizer, data=node.data, shard=node.shard, vocabulary_size=size)
