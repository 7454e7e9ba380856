"""What a run has changed, as a LoRA adapter that PEFT loads.

A run changes a matrix by a product of two thin matrices, the parts of all epochs side by side. LoRA holds changes of
matrices alone, so PEFT takes all other parameters as they are after the run. What of it vLLM takes, and how tied
weights are merged: docs/explanation/learning.md.

Shapes: M rows and N columns of a weight as it is stored, R rank of the adapter, K <= R columns of a factor.
"""

import json
import math
import os
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn import functional

from seedflood.training.adapting import CONFIG_FILE, PREFIX, WEIGHTS_FILE
from seedflood.training.folders import writing_folder
from seedflood.training.seedflood.layers import LiveConv1D, LiveEmbedding, LiveLinear, LiveModule, LiveProduct
from seedflood.training.seedflood.replica import Replica
from seedflood.training.seedflood.slots import LiveSlot

RANK_MAX = 512
"""The greatest rank that vLLM takes."""

Modules = Mapping[str, LiveModule]
"""By path."""


@dataclass(frozen=True, slots=True)
class Adapter:
    """config, tensors: of the two files. error: the part of the change that the adapter does not hold, by the Frobenius
    norm over all parameters. is_tied: does it hold the change of a weight in two modules? PEFT would merge it twice."""

    config: dict[str, Any]
    tensors: dict[str, Tensor]
    error: float
    is_tied: bool

    @property
    def rank(self) -> int:
        """R."""
        return int(self.config["r"])

    def write(self, folder: str | os.PathLike[str], card: str = "") -> Path:
        """Writes the two files and a model card. All or nothing; an earlier one of the same run is replaced.
        Raises ConfigError."""
        with writing_folder(folder, CONFIG_FILE, card) as beside:
            (beside / CONFIG_FILE).write_text(json.dumps(self.config, indent=2) + "\n", encoding="utf-8")
            save_file(self.tensors, beside / WEIGHTS_FILE, {"format": "pt"})
        return Path(folder)


class Factors(NamedTuple):
    """A change as a product, and the squared norm of what was cut off."""

    left_MK: Tensor
    right_KN: Tensor
    lost: float = 0.0

    @property
    def size(self) -> float:
        """The squared norm of the whole change."""
        gram = (self.left_MK.T @ self.left_MK) * (self.right_KN @ self.right_KN.T)
        return float(gram.sum()) + self.lost


def make_adapter(replica: Replica, base: str, *, rank: int = RANK_MAX, is_linear_only: bool = False) -> Adapter:
    """The adapter of everything that was applied. base: where PEFT is to find the base model. rank: the greatest that
    is wanted."""
    modules = {path: one for path, one in replica.model.named_modules() if isinstance(one, LiveModule)}
    if is_linear_only:
        modules = _untied_linear(modules)
    targets = {path: one for path, one in modules.items() if _is_target(one)}
    wanted = {one.slots["weight"] for one in targets.values()}
    factors = {slot: _factorise(replica, k, rank) for k, slot in enumerate(replica.slots) if slot in wanted}
    width = max(one.left_MK.shape[1] for one in factors.values())
    tensors: dict[str, Tensor] = {}
    for path, module in targets.items():
        tensors |= _thin(path, module, factors[module.slots["weight"]], width)
    copied = {} if is_linear_only else _copied(modules, targets)
    tensors |= {name: replica.weight(replica.slots.index(slot)) for name, slot in copied.items()}
    config = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": base,
        "inference_mode": True,
        "r": width,
        "lora_alpha": width,
        "lora_dropout": 0.0,
        "fan_in_fan_out": any(isinstance(one, LiveConv1D) for one in targets.values()),
        # They replace those of the base model, also while the adapter is disabled. `lora_bias` would add differences,
        # but PEFT refuses it together with embeddings.
        "bias": "all" if any(name.endswith(".base_layer.bias") for name in copied) else "none",
        "target_modules": sorted(targets),
        # Norms; OPT's embedding of positions, too, which is no plain lookup.
        "modules_to_save": sorted(modules.keys() - targets.keys()) or None,
    }
    return Adapter(config, tensors, _error(replica, factors, set(copied.values())), is_tied=len(wanted) < len(targets))


def _untied_linear(modules: Modules) -> dict[str, LiveModule]:
    """The linear layers whose weight no other module has."""
    owners = Counter(one.slots["weight"] for one in modules.values())
    return {
        path: one for path, one in modules.items() if isinstance(one, LiveProduct) and owners[one.slots["weight"]] == 1
    }


def _is_target(module: LiveModule) -> bool:
    """Can PEFT add a product to the weight of this module? It knows embeddings that look rows up, and scale them."""
    if not isinstance(module, LiveEmbedding):
        return isinstance(module, LiveProduct)
    return module.own_class is nn.Embedding or hasattr(module, "embed_scale")


def _factorise(replica: Replica, index: int, rank: int) -> Factors:
    """The change of a matrix, exact if the rank allows it."""
    shape = replica.slots[index].slot.shape
    width = min(rank, *shape)
    epochs_max = width // replica.subspace.rank
    parts = list(islice(replica.parts(index), epochs_max + 1))
    if not parts:
        return Factors(torch.zeros(shape[0], 1), torch.zeros(1, shape[1]))
    if len(parts) <= epochs_max:
        rights = [basis.v_NR.T for basis, _ in parts if basis.v_NR is not None]
        return Factors(torch.cat([basis.left(a) for basis, a in parts], dim=1), torch.cat(rights))
    change_MN = replica.change(index).to(torch.float64)
    left_MX, values_X, right_XN = torch.linalg.svd(change_MN, full_matrices=False)
    root_K, lost = values_X[:width].sqrt(), float(values_X[width:].square().sum())
    left_MK, right_KN = left_MX[:, :width] * root_K, root_K.unsqueeze(1) * right_XN[:width]
    return Factors(left_MK.to(torch.float32), right_KN.to(torch.float32), lost)


def _thin(path: str, module: LiveModule, factors: Factors, width: int) -> dict[str, Tensor]:
    """The two factors of a module by their names in the file. Each is a copy: a file must not share tensors."""
    missing = width - factors.left_MK.shape[1]
    left_MR = functional.pad(factors.left_MK, (0, missing))
    right_RN = functional.pad(factors.right_KN, (0, 0, 0, missing))
    a, b = (right_RN, left_MR) if isinstance(module, LiveLinear) else (left_MR.T, right_RN.T)
    names = ("lora_A.weight", "lora_B.weight")
    if isinstance(module, LiveEmbedding):
        names = ("lora_embedding_A", "lora_embedding_B")
    contiguous = torch.contiguous_format
    return {
        f"{PREFIX}{path}.{name}": one.clone(memory_format=contiguous) for name, one in zip(names, (a, b), strict=True)
    }


def _copied(modules: Modules, targets: Modules) -> dict[str, LiveSlot]:
    """The parameters that the adapter has as they are, by their names in the file."""
    copied = {
        f"{PREFIX}{path}.base_layer.bias": one.slots["bias"] for path, one in targets.items() if "bias" in one.slots
    }
    for path in modules.keys() - targets.keys():
        copied |= {f"{PREFIX}{path}.{name}": slot for name, slot in modules[path].slots.items()}
    return copied


def _error(replica: Replica, factors: Mapping[LiveSlot, Factors], copied: Collection[LiveSlot]) -> float:
    lost = total = 0.0
    for index, slot in enumerate(replica.slots):
        if slot in factors:
            lost, total = lost + factors[slot].lost, total + factors[slot].size
            continue
        size = float(replica.change(index).square().sum())
        lost, total = lost + (0.0 if slot in copied else size), total + size
    return math.sqrt(lost / total) if total else 0.0
