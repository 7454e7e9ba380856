"""Base models: loading them (offline first, no pickle), their digest, and export in Hugging Face format."""

import copy
import ctypes
import hashlib
import importlib.util
import json
import logging
import math
import os
import re
import shutil
import struct
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from rich.filesize import decimal
from torch import Tensor, nn
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, GenerationConfig, GgufConfig
from transformers.utils.hub import cached_file
from transformers.utils.logging import disable_progress_bar

from seedflood import embedded
from seedflood.config import MODEL_FILE
from seedflood.errors import DiskFullError, ModelError
from seedflood.training import hub
from seedflood.training.adapting import CONFIG_FILE, add_adapter
from seedflood.training.card import named_base
from seedflood.training.causal import CausalModel
from seedflood.training.devices import find_device, usual_dtype
from seedflood.training.folders import trying_folder, writing_folder
from seedflood.training.gguf_files import complete_gguf
from seedflood.training.leftovers import check_leftovers, check_stored
from seedflood.training.model_files import read_model_files, write_model_files

_log = logging.getLogger(__name__)

DtypeName = Literal["auto", "float32", "bfloat16", "float16"]
ExportDtype = Literal["float32", "bfloat16"]

PROBE = "A film as moving as it's funny: 10/10!\nnaïve 東京"
"""How a tokenizer divides this tells most tokenizers apart."""

EXPORT_BYTES = 4
"""Of a parameter in what a run exports at its end, which is float32."""

GGUF_SUFFIX = ".gguf"
"""Of a file of llama.cpp, which is a model, too."""

BUILT_IN = {"embedded": embedded.MODEL_FOLDER}
"""Models that come with the package, by name: their folders."""

_one_at_a_time = threading.Lock()
"""While transformers loads a model it replaces methods of its classes. Two threads that do so at once leave them
replaced, and no model of the process has tied weights any more (huggingface/transformers#44940)."""


@dataclass(slots=True)
class BaseModel:
    """A model before training.

    digest: 32 bytes, equal on hosts with equal weights (`load_base`: and tokenizers). master: if the device holds the
    weights in half precision, float32 weights in host memory by the name of the parameter; else None, and the model's
    own weights are the master. files: what was read beside the weights, by path in the folder; none of a GGUF file.
    buffers: tensors of the model's files that are no parameters, by name, as they were loaded; nothing changes them.
    destination: where a replica computes with it; `device`, unless the model is in host memory until then.
    """

    model: Any
    tokenizer: Any
    digest: bytes
    device: torch.device
    destination: torch.device
    dtype: torch.dtype
    master: dict[str, Tensor] | None
    files: Mapping[str, bytes] = field(default_factory=dict)
    buffers: Mapping[str, Tensor] = field(default_factory=dict)

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


def load_model(
    name: str,
    *,
    device: str = "cpu",
    dtype: DtypeName = "auto",
    adapter: Path | None = None,
    room: float = math.inf,
) -> BaseModel:
    """Loads a causal language model and its tokenizer from a folder, the local cache or the hub, in this order.

    name: of `BUILT_IN`, a folder, a GGUF file, or a name on the hub. dtype "auto": float32 on a CPU, whatever the file
    holds; on accelerators see `usual_dtype`. adapter: a folder with a LoRA adapter to put into it. room: see
    `prepare_model`. Raises ModelError.
    """
    disable_progress_bar()  # type: ignore[no-untyped-call]  # stderr is for logs
    location = str(BUILT_IN.get(name, name))
    model, tokenizer = _read(location)
    files = {} if (folder := _folder_of(location)) is None else read_model_files(folder)
    if adapter is not None:
        named = named_base(adapter)
        is_of_another = named is not None and named != with_tokens(digest_model(model), tokenizer).hex()
        add_adapter(model, adapter)
        if is_of_another:
            named = json.loads((adapter / CONFIG_FILE).read_text(encoding="utf-8")).get("base_model_name_or_path")
            _log.warning("the adapter was trained on another base model than %s, as its digest says: %s", name, named)
    base = prepare_model(model, tokenizer, name=name, device=device, dtype=dtype, room=room)
    base.files = files
    return base


class ModelSize(NamedTuple):
    """parameters: how many numbers the distinct ones hold. sides: rows and columns of all matrices. experts: how many
    numbers the experts of one layer hold, at most; 0 unless the model is a mixture."""

    parameters: int
    sides: int
    experts: int


def find_size(name: str) -> ModelSize | None:
    """By the configuration of a model: its weights are not read. None if that cannot be told so; what is wrong, loading
    says."""
    location = str(BUILT_IN.get(name, name))
    if location.endswith(GGUF_SUFFIX):
        return None
    try:
        config = AutoConfig.from_pretrained(location, local_files_only=True, trust_remote_code=False)
        with _one_at_a_time, torch.device("meta"):
            model: nn.Module = AutoModelForCausalLM.from_config(config, trust_remote_code=False)  # type: ignore[no-untyped-call]
    except Exception:  # a broken file may raise anything
        return None
    parameters = list(model.parameters())
    sides = sum(sum(one.shape) for one in parameters if one.dim() == 2)
    experts = [sum(one.numel() for one in tensors.values()) for _, _, tensors in expert_modules(model)]
    return ModelSize(sum(one.numel() for one in parameters), sides, max(experts, default=0))


def is_mixture(model: nn.Module) -> bool:
    """Has it experts, of which a token uses some?"""
    return getattr(getattr(model, "config", None), "num_experts_per_tok", None) is not None


def expert_modules(model: nn.Module) -> Iterator[tuple[str, nn.Module, dict[str, nn.Parameter]]]:
    """The modules of a mixture that hold experts side by side: path, module, and its tensors of shape (E, X, Y), of E
    experts, by their names in the module."""
    if not is_mixture(model):
        return
    for path, module in model.named_modules():
        own = dict(module.named_parameters(recurse=False))
        tensors = {name: one for name, one in own.items() if one.dim() == 3}
        has_parts = len(list(module.parameters())) > len(own)
        # The kernels of a convolution have three dimensions, too. They are small.
        if tensors and not has_parts and not isinstance(module, nn.modules.conv._ConvNd):
            yield path, module, tensors


def prepare_model(
    model: Any,
    tokenizer: Any,
    *,
    name: str = "model",
    device: str = "cpu",
    dtype: DtypeName = "auto",
    room: float = math.inf,
) -> BaseModel:
    """Makes a BaseModel of a transformers model in memory. The model is changed and must not be used elsewhere. room:
    of the device, in bytes. A model that takes more has the type for the device, but stays in host memory until a
    replica puts on the device what that keeps of it. Raises ModelError."""
    target = find_device(device)
    compute_dtype: torch.dtype = usual_dtype(target) if dtype == "auto" else getattr(torch, dtype)
    model.eval().requires_grad_(False)
    positions = getattr(model.config, "max_position_embeddings", None)
    if tokenizer is not None and positions is not None:
        tokenizer.model_max_length = min(tokenizer.model_max_length, positions)
    model.config.use_cache = False
    _check_head(model, name)
    parameters = distinct_parameters(model)
    digest = digest_model(model)
    buffers = {name: one.detach().to("cpu", copy=True) for name, one in stored_buffers(model)}
    master = None
    if compute_dtype != torch.float32:  # what was loaded, not a copy of it: `to` makes new weights
        master = {name: one.detach().to("cpu", torch.float32) for name, one in parameters}
    is_too_large = compute_dtype.itemsize * sum(one.numel() for _, one in parameters) > room
    place = torch.device("cpu") if is_too_large else target
    _convert(model, place, compute_dtype)
    return BaseModel(model, tokenizer, digest, place, target, compute_dtype, master, buffers=buffers)


def _convert(model: Any, device: torch.device, dtype: torch.dtype) -> None:
    """Gives the tensors of a model the types that they have when transformers loads it in this one.

    Some stay float32: the frequencies of rotary embeddings, above all. Rounded, they would misplace a token by the
    more the further it is.
    """
    types = _types_of(model, dtype)
    tensors = {**dict(model.named_parameters()), **dict(model.named_buffers(remove_duplicate=False))}
    others = {
        name: tensor.detach() for name, tensor in tensors.items() if tensor.is_floating_point() and types[name] != dtype
    }
    del tensors  # else a second model would be there while the first one is converted
    model.to(device=device, dtype=dtype)
    for name, tensor in others.items():
        path, _, attribute = name.rpartition(".")
        module, converted = model.get_submodule(path), tensor.to(device=device, dtype=types[name])
        if attribute in module._buffers:
            module._buffers[attribute] = converted
        else:
            module._parameters[attribute].data = converted


def _types_of(model: Any, dtype: torch.dtype) -> Mapping[str, torch.dtype]:
    """The type of each tensor of the model if transformers loads it in this type, by name."""
    types = dict.fromkeys((name for name, _ in model.named_parameters()), dtype)
    made = _made_buffers(model, dtype)
    for name, buffer in model.named_buffers(remove_duplicate=False):
        types[name] = made.get(name, buffer.dtype)
    exact: set[str] = set()
    if dtype in (torch.float16, torch.bfloat16):
        exact |= set(getattr(model, "_keep_in_fp32_modules_strict", None) or ())
    if dtype == torch.float16:
        exact |= set(getattr(model, "_keep_in_fp32_modules", None) or ())
    for pattern in exact:
        of_pattern = re.compile(pattern.replace("*", ".*"))
        types |= dict.fromkeys(filter(of_pattern.search, types), torch.float32)
    return types


def _made_buffers(model: Any, dtype: torch.dtype) -> Mapping[str, torch.dtype]:
    """The types of the buffers if transformers makes such a model in this type, by name. Empty if it cannot."""
    try:
        with _one_at_a_time, torch.device("meta"):
            twin = type(model)._from_config(copy.deepcopy(model.config), dtype=dtype)
    except Exception:  # a model of a script may raise anything
        return {}
    return {name: one.dtype for name, one in twin.named_buffers(remove_duplicate=False)}


def distinct_parameters(model: nn.Module) -> list[tuple[str, nn.Parameter]]:
    """The distinct parameters with their names, in the order of the names; a tied parameter has the least of its
    names."""
    names: dict[int, str] = {}
    parameters: dict[int, nn.Parameter] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        names[id(parameter)] = min(name, names.get(id(parameter), name))
        parameters[id(parameter)] = parameter
    return [(names[key], parameters[key]) for key in sorted(names, key=lambda key: names[key])]


def stored_buffers(model: nn.Module) -> list[tuple[str, Tensor]]:
    """The tensors that its files hold beside the parameters, with their names: biases by which some mixtures choose
    experts, for example."""
    stored = model.state_dict().keys()
    return [(name, buffer) for name, buffer in model.named_buffers() if name in stored]


def tensors_of(model: nn.Module) -> list[tuple[str, Tensor]]:
    """All that its files hold, with their names: `distinct_parameters` and `stored_buffers`."""
    return [*distinct_parameters(model), *stored_buffers(model)]


def digest_model(model: nn.Module) -> bytes:
    """32 bytes: `digest_weights` of the distinct parameters, and of the buffers that files hold."""
    return digest_weights({name: one.data for name, one in tensors_of(model)})


def digest_weights(weights: Mapping[str, Tensor]) -> bytes:
    """32 bytes over names, shapes and float32 values, in the order of the names, however a file stores them."""
    hasher = hashlib.sha256(b"seedflood base model 1\0")
    for name in sorted(weights):
        tensor = weights[name].detach().to(device="cpu", dtype=torch.float32).contiguous()
        encoded = name.encode()
        hasher.update(struct.pack(f"<II{tensor.dim()}Q", len(encoded), tensor.dim(), *tensor.shape) + encoded)
        hasher.update(tensor.numpy().astype("<f4", copy=False).data)
    return hasher.digest()


def with_tokens(digest: bytes, tokenizer: Any) -> bytes:
    """32 bytes: a digest of weights, and of what a tokenizer makes of PROBE. A host with other tokens would
    measure on other rows than it states, and nobody could see why."""
    tokens = tokenizer(PROBE)["input_ids"]
    return hashlib.sha256(digest + struct.pack(f"<{len(tokens)}q", *tokens)).digest()


def export_model(
    base: BaseModel,
    weights: Mapping[str, Tensor],
    folder: str | os.PathLike[str],
    *,
    card: str = "",
    dtype: ExportDtype = "float32",
) -> Path:
    """Writes weights (float32, by name) as a Hugging Face folder: safetensors, model card, and the files that the base
    model has beside its weights (`model_files`).

    dtype: of the file. All or nothing; an earlier export of the same run is replaced. Raises ConfigError if the folder
    holds something else, DiskFullError or ModelError if it cannot be written.
    """
    with writing_folder(folder, MODEL_FILE, card) as beside:
        _write_model(base, weights, beside, dtype)
    return Path(folder)


def try_export(base: BaseModel, folder: str | os.PathLike[str], parameters_count: int) -> None:
    """Does before a run what `export_model` (float32) does after it, with no weights and beside the folder. Nothing is
    left of it. Raises DiskFullError if there is no space for so many parameters, or what `export_model` would raise."""
    target = Path(folder).absolute()
    there = next(one for one in target.parents if one.exists())
    wanted = EXPORT_BYTES * parameters_count + sum(map(len, base.files.values()))
    free = shutil.disk_usage(there).free
    if free < wanted:
        raise DiskFullError(
            f"no space to export to {target}: the model takes {decimal(wanted)}, and {decimal(free)} are free there; "
            "free some, or choose another folder."
        )
    with trying_folder(target) as beside:
        _write_model(base, {}, beside, "float32")
        _check_written(base, beside)


def _write_model(base: BaseModel, weights: Mapping[str, Tensor], folder: Path, dtype: ExportDtype) -> None:
    """Raises ModelError if transformers refuses to write it; and the errors of the disk."""
    rounded: dict[int, Tensor] = {id(one): one.to(getattr(torch, dtype)) for one in weights.values()}
    state = {name: rounded[id(one)] for name, one in weights.items()} | dict(base.buffers)
    try:
        with _plain_generation(base.model):
            base.model.save_pretrained(folder, state_dict=state)
        write_model_files(base.model, base.tokenizer, base.files, folder, dtype)
    except (ValueError, TypeError, LookupError, AttributeError, NotImplementedError) as error:
        raise ModelError(
            f"Cannot export this model: transformers does not write it ({hub.first_line(error)})."
        ) from error


def _check_written(base: BaseModel, folder: Path) -> None:
    """Raises ModelError if what was written beside the weights cannot be read again, or as another tokenizer."""
    try:
        AutoConfig.from_pretrained(folder)
        GenerationConfig.from_pretrained(folder)
        tokenizer = base.tokenizer and AutoTokenizer.from_pretrained(folder)
    except Exception as error:  # A broken file may raise anything.
        raise ModelError(
            f"Cannot export this model: its files cannot be read again ({hub.first_line(error)})."
        ) from error
    if tokenizer is None:
        return
    is_same = all(
        before == after
        for before, after in (
            (base.tokenizer(PROBE)["input_ids"], tokenizer(PROBE)["input_ids"]),
            (base.tokenizer.chat_template, tokenizer.chat_template),
        )
    )
    if not is_same:
        raise ModelError("Cannot export this model: its tokenizer, written and read again, is another.")


@contextmanager
def _plain_generation(model: Any) -> Iterator[None]:
    """Within, transformers finds nothing to refuse in how the model writes texts: it does not write what many models
    have in their files, as a temperature without `do_sample`."""
    own, model.generation_config = model.generation_config, GenerationConfig()  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        model.generation_config = own


def _read(location: str) -> tuple[Any, Any]:
    """Reads local files; asks the hub only if they are missing."""
    if is_gguf := location.endswith(GGUF_SUFFIX):
        _check_gguf(location)
    elif location.startswith((".", "/")) and not Path(location).exists():
        raise ModelError(f"there is no folder {location}: correct the model's name.")
    try:
        with nullcontext() if Path(location).exists() else hub.reading("model", location):
            return _read_files(location, local_files_only=True)
    except ModelError:
        raise
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
            with hub.reading("model", location, fetches=True):
                return _read_files(location, local_files_only=False)
    except ModelError:
        raise
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
    if not tokenizer(PROBE, add_special_tokens=False)[
        "input_ids"
    ]:  # transformers makes one up if there are no files of it
        raise ModelError(f"{location} has no tokenizer, or one that knows no text: add its files, as tokenizer.json.")
    with _one_at_a_time:
        loaded: tuple[Any, dict[str, Any]] = AutoModelForCausalLM.from_pretrained(  # type: ignore[assignment]
            location, dtype=torch.float32, output_loading_info=True, ignore_mismatched_sizes=True, **plain, **options
        )
    _trim_memory()
    model, found = loaded
    _check_whole(model, found, location)
    if "gguf_file" in options:
        complete_gguf(model, Path(location) / options["gguf_file"])
    elif (folder := _folder_of(location)) is not None and getattr(model.config, "quantization_config", None) is None:
        check_stored(folder)
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config  # of the file: these weights are float32
    return model, tokenizer


def _trim_memory() -> None:
    """Gives free memory back to the system. glibc keeps much of what loading took: of a mixture of 1.3 B parameters
    3.3 GB."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def _check_whole(model: Any, found: Mapping[str, Any], location: str) -> None:
    """Raises ModelError unless the model has all weights of the files, and these are all that it needs. found: what
    transformers says of them."""
    kind = type(model).__name__
    if getattr(model, "_hf_peft_config_loaded", False):
        raise ModelError(
            f"{location} holds an adapter: put it into its base model (merge_and_unload of PEFT), and name the outcome."
        )
    if missing := sorted(found["missing_keys"]):  # transformers has drawn them at random
        raise ModelError(
            f"{location} lacks weights of {kind} ({missing[0]}, {len(missing)} in all): name a folder with the whole "
            "language model."
        )
    if others := sorted(found["mismatched_keys"]):  # these, too
        name, has, wants = others[0]
        raise ModelError(
            f"{location} holds {name} of shape {tuple(has)}, and its {MODEL_FILE} wants {tuple(wants)} ({len(others)} "
            "such in all): put the files of one model there."
        )
    if getattr(model, "is_quantized", False):
        raise ModelError(
            f"The weights of {location} are quantised: name the model that they were made of, and say dtype in [node] "
            "if it does not fit into memory."
        )
    check_leftovers(found["unexpected_keys"], location, kind)


def _folder_of(location: str) -> Path | None:
    """Where a model lies that was just read. None: in a GGUF file, which has all in one."""
    if location.endswith(GGUF_SUFFIX):
        return None
    if Path(location).is_dir():
        return Path(location)
    return Path(str(cached_file(location, MODEL_FILE, local_files_only=True))).parent


def _check_gguf(location: str) -> None:
    """Raises ModelError for a GGUF file that is not there, or without the package that reads it."""
    if importlib.util.find_spec("gguf") is None:
        raise ModelError(f"{location} needs the package gguf: install seedflood[gguf].")
    if not Path(location).is_file():
        raise ModelError(f"there is no file {location}: correct the model's name.")


@torch.inference_mode()
def _check_head(model: Any, name: str) -> None:
    """Raises ModelError for a model that does more to its logits after the head than to scale and cap them, or that
    looks at later tokens: it would silently be trained wrongly."""
    head = model.get_output_embeddings()
    if not isinstance(head, nn.Linear) or not hasattr(model, model.base_model_prefix):
        raise ModelError(f'Model "{name}" ({type(model).__name__}) is no causal language model with a linear head.')
    tokens_BT = torch.arange(4, dtype=torch.int64, device=model.device).unsqueeze(0)
    causal = CausalModel(model)
    try:
        expected = model(input_ids=tokens_BT, use_cache=False).logits
        hidden_BTD, earlier_BTD = (causal.hidden_states(tokens) for tokens in (tokens_BT, tokens_BT[:, :2]))
    except Exception as error:  # of a configuration that is not that of the weights
        raise ModelError(
            f'Model "{name}" ({type(model).__name__}) cannot compute ({hub.first_line(error)}).'
        ) from error
    if not expected.isfinite().all():
        raise ModelError(f'Model "{name}" computes numbers that are not finite: its weights are damaged.')
    rounding = 1e-3 if model.dtype == torch.float32 else 5e-2
    if not torch.allclose(hidden_BTD[:, :2], earlier_BTD, rtol=rounding, atol=rounding):
        raise ModelError(
            f'Model "{name}" ({type(model).__name__}) looks at later tokens, so it is no causal language model.'
        )
    if not torch.allclose(causal.logits(hidden_BTD), expected, rtol=1e-3, atol=1e-3):
        raise ModelError(
            f'Model "{name}" ({type(model).__name__}) changes its logits after the head, which is not supported: '
            "choose a model of a family in docs/reference/models.md."
        )
