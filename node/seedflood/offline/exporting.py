"""Writes what a node has learned: as a model, or as an adapter of its base model."""

from pathlib import Path
from typing import Any

from seedflood.config import Settings, check_target
from seedflood.host.places import read_result
from seedflood.offline.learned import rebuild
from seedflood.training.adapting import CONFIG_FILE
from seedflood.training.card import Learned, model_card
from seedflood.training.models import BUILT_IN, ExportDtype
from seedflood.training.seedflood.adapter import RANK_MAX, make_adapter
from seedflood.training.seedflood.trainer import Trainer

TIED = (
    "Its embeddings are tied, so do not merge it in PEFT, which would add their change twice: export a model instead."
)
WHOLE = "It has norms and biases as they are after training, so servers that take plain LoRA alone do not load it."


def export_model(settings: Settings, folder: Path, dtype: ExportDtype = "float32") -> dict[str, Any]:
    """Writes a Hugging Face folder; returns facts of it. Raises SeedfloodError."""
    check_target(settings, folder)
    trainer, steps = rebuild(settings.model_copy(update={"node": settings.node.unquantised()}))
    path = trainer.replica.export(folder, card=model_card(_learned(settings, trainer, steps)), dtype=dtype)
    return {"folder": str(path), "steps": steps, "digest": trainer.digest().hex()}


def export_adapter(
    settings: Settings, folder: Path, *, rank: int | None = None, is_linear_only: bool = False
) -> dict[str, Any]:
    """Writes a folder that PEFT loads; returns facts of it, with the part of the change that it does not hold. Raises
    SeedfloodError."""
    check_target(settings, folder, CONFIG_FILE)
    trainer, steps = rebuild(settings.model_copy(update={"node": settings.node.unquantised()}))
    name = str(settings.node.model_path or settings.run.model)
    made = make_adapter(
        trainer.replica, str(BUILT_IN.get(name, name)), rank=rank or RANK_MAX, is_linear_only=is_linear_only
    )
    held = f"The part of the change that this adapter of rank {made.rank} does not hold: {made.error:.2g}."
    note = "" if is_linear_only else f"{WHOLE} {TIED}" if made.is_tied else WHOLE
    path = made.write(folder, model_card(_learned(settings, trainer, steps), "adapter", f"{held} {note}".rstrip()))
    facts = {"folder": str(path), "steps": steps, "digest": trainer.digest().hex()}
    return {**facts, "rank": made.rank, "left_out": made.error, **({"note": note} if note else {})}


def _learned(settings: Settings, trainer: Trainer, steps: int) -> Learned:
    printed = read_result(settings.node.state).items()
    figures = {name: value for name, value in printed if name.endswith(("_before", "_after"))}
    halvings = {"times the learning rate was halved": trainer.replica.halvings} if trainer.replica.halvings else {}
    counts = {f"steps of {settings.run.steps}": steps, **halvings, **trainer.count_rows()}
    return Learned(settings.run, trainer.base_digest, trainer.digest(), counts, figures)
