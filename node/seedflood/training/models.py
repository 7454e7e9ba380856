"""Base models: loading them (offline first, no pickle), their digest, and export in Hugging Face format."""

import hashlib
import importlib.util
import json
import os
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig
from transformers.utils.logging import disable_progress_bar

from seedflood import embedded
from seedflood.config import MODEL_FILE
from seedflood.errors import ModelError
from seedflood.training import hub
from seedflood.training.adapting import add_adapter
from seedflood.training.causal import CausalModel
from seedflood.training.folders import writing_folder

DtypeName = Literal["auto", "float32", "bfloat16", "float16"]
ExportDtype = Literal["float32", "bfloat16"]

GGUF_SUFFIX = ".gguf"
"""Of a file of llama.cpp, which is a model, too."""

BUILT_IN = {"embedded": embedded.MODEL_FOLDER}
"""Models that come with the package, by name: their folders."""


@dataclass(slots=True)
class BaseModel:
    """A model before training.

    digest: 32 bytes, equal on hosts with equal weights. master: if the device holds the weights in half precision,
    float32 weights in host memory by the name of the parameter; else None, and the model's own weights are the master.
    """

    model: Any
    tokenizer: Any
    digest: bytes
    device: torch.device
    dtype: torch.dtype
    master: dict[str, Tensor] | None

    @property
    def causal(self) -> CausalModel:
        """The model as objectives see it."""
        return CausalModel(self.model)

    @property
    def parameters_count(self) -> int:
        """How many numbers the distinct parameters hold; tied ones count once."""
        return sum(parameter.numel() for parameter in self.model.parameters())


def import_families() -> None:
    """Imports now what transformers otherwise imports when it loads the first model, a second of a core."""
    import transformers.modeling_utils
    import transformers.models.auto.modeling_auto
    import transformers.models.auto.tokenization_auto  # noqa: F401


def load_model(name: str, *, device: str = "cpu", dtype: DtypeName = "auto", adapter: Path | None = None) -> BaseModel:
    """Loads a causal language model and its tokenizer from a folder, the local cache or the hub, in this order.

    name: of `BUILT_IN`, a folder, a GGUF file, or a name on the hub. dtype "auto": float32 on a CPU, whatever the file
    holds, and half precision on CUDA. adapter: a folder with a LoRA adapter to put into it. Raises ModelError.
    """
    disable_progress_bar()  # type: ignore[no-untyped-call]  # stderr is for logs
    model, tokenizer = _read(str(BUILT_IN.get(name, name)))
    if adapter is not None:
        add_adapter(model, adapter)
    return prepare_model(model, tokenizer, name=name, device=device, dtype=dtype)


def prepare_model(
    model: Any, tokenizer: Any, *, name: str = "model", device: str = "cpu", dtype: DtypeName = "auto"
) -> BaseModel:
    """Makes a BaseModel of a transformers model in memory (float32, on the CPU). The model is changed and must not be
    used elsewhere. Raises ModelError."""
    target, compute_dtype = _device(device), _compute_dtype(device, dtype)
    model.eval().requires_grad_(False)
    positions = getattr(model.config, "max_position_embeddings", None)
    if tokenizer is not None and positions is not None:
        tokenizer.model_max_length = min(tokenizer.model_max_length, positions)
    model.config.use_cache = False
    _check_head(model, name)
    parameters = distinct_parameters(model)
    digest = digest_weights({name: parameter.data for name, parameter in parameters})
    master = None
    if compute_dtype != torch.float32:
        master = {name: parameter.detach().clone() for name, parameter in parameters}
    model.to(device=target, dtype=compute_dtype)
    return BaseModel(model, tokenizer, digest, target, compute_dtype, master)


def distinct_parameters(model: nn.Module) -> list[tuple[str, nn.Parameter]]:
    """The distinct parameters with their names, in the order of the names; a tied parameter has the least of its
    names."""
    names: dict[int, str] = {}
    parameters: dict[int, nn.Parameter] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        names[id(parameter)] = min(name, names.get(id(parameter), name))
        parameters[id(parameter)] = parameter
    return [(names[key], parameters[key]) for key in sorted(names, key=lambda key: names[key])]


def digest_weights(weights: Mapping[str, Tensor]) -> bytes:
    """32 bytes over names, shapes and float32 values, in the order of the names, however a file stores them."""
    hasher = hashlib.sha256(b"seedflood base model 1\0")
    for name in sorted(weights):
        tensor = weights[name].detach().to(device="cpu", dtype=torch.float32).contiguous()
        encoded = name.encode()
        hasher.update(struct.pack(f"<II{tensor.dim()}Q", len(encoded), tensor.dim(), *tensor.shape) + encoded)
        hasher.update(tensor.numpy().astype("<f4", copy=False).data)
    return hasher.digest()


def export_model(
    base: BaseModel,
    weights: Mapping[str, Tensor],
    folder: str | os.PathLike[str],
    *,
    card: str = "",
    dtype: ExportDtype = "float32",
) -> Path:
    """Writes weights (float32, by name) as a Hugging Face folder: safetensors, configuration, tokenizer, model card.

    dtype: of the file. All or nothing; an earlier export of the same run is replaced. Raises ConfigError if the folder
    holds something else, ModelError if it cannot be written.
    """
    with writing_folder(folder, MODEL_FILE, card) as beside:
        rounded: dict[int, Tensor] = {id(one): one.to(getattr(torch, dtype)) for one in weights.values()}
        base.model.save_pretrained(beside, state_dict={name: rounded[id(one)] for name, one in weights.items()})
        _write_dtype(beside / MODEL_FILE, dtype)
        if base.tokenizer is not None:
            base.tokenizer.save_pretrained(beside)
    return Path(folder)


def _read(location: str) -> tuple[Any, Any]:
    """Reads local files; asks the hub only if they are missing."""
    if is_gguf := location.endswith(GGUF_SUFFIX):
        _check_gguf(location)
    try:
        return _read_files(location, local_files_only=True)
    except Exception as error:  # A broken file may raise anything.
        _refuse_code(location, error)
        if is_gguf:
            raise ModelError(
                f"Cannot load a model from {location}: transformers reads GGUF files of some families, with weights of "
                f"types that it knows ({hub.first_line(error)})."
            ) from error
        if Path(location).is_dir():
            raise ModelError(
                f"Cannot load a model from folder {location}: it needs config.json, safetensors weights of a causal "
                f"language model and a tokenizer ({hub.first_line(error)})."
            ) from error
    fault = hub.find_fault("model", location)
    try:
        if fault is None:
            return _read_files(location, local_files_only=False)
    except Exception as error:
        _refuse_code(location, error)
        fault = hub.first_line(error)
    raise ModelError(
        f'Model "{location}" is neither a folder nor in the local cache, and the hub did not give it: check the name, '
        f'or fetch it on a host with network access by "hf download {location}" and copy it here ({fault}).'
    )


def _refuse_code(location: str, error: Exception) -> None:
    """Raises ModelError if this is how transformers says that the model needs code that comes with it."""
    if any(phrase in str(error) for phrase in ("custom code", "trust_remote_code")):
        raise ModelError(
            f'Model "{location}" brings code of its own, which seedflood never runs: choose a model of a class that '
            "transformers has."
        ) from error


def _read_files(location: str, *, local_files_only: bool) -> tuple[Any, Any]:
    options: dict[str, Any] = {"local_files_only": local_files_only, "trust_remote_code": False}
    plain: dict[str, Any] = {"use_safetensors": True}
    if location.endswith(GGUF_SUFFIX):
        options["gguf_file"] = Path(location).name
        plain = {"quantization_config": GgufConfig(dequantize=True)}
        location = str(Path(location).parent)
    tokenizer = AutoTokenizer.from_pretrained(location, **options)
    model = AutoModelForCausalLM.from_pretrained(location, dtype=torch.float32, **plain, **options)
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config  # of the file: these weights are float32
    return model, tokenizer


def _check_gguf(location: str) -> None:
    """Raises ModelError for a GGUF file that is not there, or without the package that reads it."""
    if importlib.util.find_spec("gguf") is None:
        raise ModelError(f"{location} needs the package gguf: install seedflood[gguf].")
    if not Path(location).is_file():
        raise ModelError(f"there is no file {location}: correct the model's name.")


def _device(device: str) -> torch.device:
    try:
        target = torch.device(device)
    except RuntimeError as error:
        raise ModelError(f'"{device}" is no device: use "cpu" or "cuda".') from error
    if target.type == "cuda" and not torch.cuda.is_available():
        raise ModelError(
            'device = "cuda", but torch finds no CUDA device: use "cpu", or install a CUDA build of torch.'
        )
    return target


def _compute_dtype(device: str, dtype: DtypeName) -> torch.dtype:
    if dtype != "auto":
        named: torch.dtype = getattr(torch, dtype)
        return named
    if torch.device(device).type != "cuda":
        return torch.float32
    return torch.bfloat16 if torch.cuda.is_bf16_supported() else torch.float16


@torch.inference_mode()
def _check_head(model: Any, name: str) -> None:
    """Raises ModelError for a model that does more to its logits after the head than to scale and cap them: it would
    silently be trained wrongly."""
    head = model.get_output_embeddings()
    if not isinstance(head, nn.Linear) or not hasattr(model, model.base_model_prefix):
        raise ModelError(f'Model "{name}" ({type(model).__name__}) is no causal language model with a linear head.')
    tokens_BT = torch.arange(4, dtype=torch.int64).unsqueeze(0)
    expected = model(input_ids=tokens_BT, use_cache=False).logits
    causal = CausalModel(model)
    if not torch.allclose(causal.logits(causal.hidden_states(tokens_BT)), expected, rtol=1e-3, atol=1e-3):
        raise ModelError(
            f'Model "{name}" ({type(model).__name__}) changes its logits after the head, which is not supported: '
            "choose a model of a family in docs/models.md."
        )


def _write_dtype(path: Path, dtype: ExportDtype) -> None:
    config = json.loads(path.read_text())
    config["dtype"] = dtype
    config["use_cache"] = True
    path.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")
