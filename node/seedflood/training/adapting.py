"""A LoRA adapter, as `seedflood export --adapter` or PEFT writes it, put into its base model.

Each module gets a weight of its own, `W + scale B A`, as PEFT computes it; so weights that were tied are no longer.
Tensors that are there whole (norms, biases, `modules_to_save`) replace those of the base model.
"""

import json
import math
import re
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

from seedflood.config import ADAPTER_FILE
from seedflood.errors import ModelError

CONFIG_FILE, WEIGHTS_FILE = ADAPTER_FILE, "adapter_model.safetensors"
PREFIX = "base_model.model."
"""What PEFT writes before the path of a module."""

FACTORS = {".lora_A.weight": ".lora_B.weight", ".lora_embedding_A": ".lora_embedding_B"}
"""How the names of A and B end."""

FLIPPED = (nn.Embedding, Conv1D)
"""Modules whose weight is stored as the transpose of `B A`."""

OTHER_KINDS = (
    *("use_dora", "use_qalora", "use_bdlora", "kasa_config", "monteclora_config", "arrow_config"),
    *("alora_invocation_tokens", "layer_replication", "target_parameters", "ensure_weight_tying"),
    *("trainable_token_indices", "lora_bias"),
)
"""Settings of PEFT with which a model computes something else than `W + scale B A`."""

PLAIN_BEGINNINGS = (True, False, None, "gaussian", "eva", "orthogonal")
"""Values of `init_lora_weights` that leave the base model as it is."""


def add_adapter(model: nn.Module, folder: Path) -> None:
    """Changes a model (float32, on the CPU) by the adapter in a folder. Raises ModelError."""
    try:
        config = json.loads((folder / CONFIG_FILE).read_text(encoding="utf-8"))
        _check_kind(config, folder)
        whole = {name.removeprefix(PREFIX): one for name, one in load_file(folder / WEIGHTS_FILE).items()}
        pairs = {
            name.removesuffix(end): (whole.pop(name), whole.pop(name.removesuffix(end) + FACTORS[end]))
            for name in list(whole)
            for end in FACTORS
            if name.endswith(end)
        }
        scales = {path: _scale(config, path, len(a)) for path, (a, _) in pairs.items()}
    except OSError as error:
        raise ModelError(
            f"{folder} holds no adapter: it needs {CONFIG_FILE} and {WEIGHTS_FILE} ({error.strerror or error})."
        ) from error
    except (SafetensorError, ArithmeticError, LookupError, TypeError, ValueError, AttributeError, re.error) as error:
        raise ModelError(
            f"The adapter in {folder} is broken ({type(error).__name__}: {error}): export it again."
        ) from error
    try:
        for name, tensor in whole.items():
            _put(model, name.replace(".base_layer.", "."), tensor)
        for path, (a, b) in pairs.items():
            change, is_flipped = scales[path] * (b.float() @ a.float()), isinstance(model.get_submodule(path), FLIPPED)
            _put(model, f"{path}.weight", change.T if is_flipped else change, is_change=True)
    except (AttributeError, RuntimeError) as error:
        raise ModelError(
            f"The adapter in {folder} is of another base model ({error}): name with --model the one that it is of, "
            f"{config.get('base_model_name_or_path')}."
        ) from error


def _check_kind(config: dict[str, Any], folder: Path) -> None:
    """Raises ModelError for an adapter that is not plain LoRA."""
    kind = config["peft_type"]
    others = [f"{kind}"] if kind != "LORA" else [name for name in OTHER_KINDS if config.get(name)]
    if (beginning := config.get("init_lora_weights")) not in PLAIN_BEGINNINGS:
        others.append(f"init_lora_weights = {beginning}")
    if others:
        raise ModelError(
            f"The adapter in {folder} is not plain LoRA ({', '.join(others)}), which is all that is read: merge it "
            "into its base model with PEFT, and name that with --model."
        )


def _scale(config: dict[str, Any], path: str, rank: int) -> float:
    """The factor of `B A` in a module."""
    patterns = (config.get("alpha_pattern") or {}).items()
    alphas = (alpha for key, alpha in patterns if re.match(rf"(.*\.)?({key})$", path))
    return float(next(alphas, config["lora_alpha"])) / (math.sqrt(rank) if config.get("use_rslora") else rank)


def _put(model: nn.Module, name: str, tensor: Tensor, *, is_change: bool = False) -> None:
    """Makes a tensor, or what was there and this change, a parameter of one module alone. Raises AttributeError if
    there is none of this name, RuntimeError if it has another shape."""
    before, (path, _, own) = model.get_parameter(name), name.rpartition(".")
    if tensor.shape != before.shape:
        raise RuntimeError(f"{name} has shape {tuple(tensor.shape)}, not {tuple(before.shape)}")
    new = before.detach() + tensor if is_change else tensor.float()
    setattr(model.get_submodule(path), own, nn.Parameter(new, requires_grad=False))
