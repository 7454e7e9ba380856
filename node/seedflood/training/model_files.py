"""The files of a model beside its weights: configuration, generation settings, tokenizer and chat template.

transformers 5 reads what version 4 wrote, and writes it in a form that version 4, and others, read as another model:
they miss `rope_theta` and do not know the class of the tokenizer. So an export has the files of its base model as they
were, and changes only what is no longer true. What version 5 has written gets the words of version 4 besides. A base
model without such files (GGUF) is written by transformers.
"""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from transformers import GenerationConfig

from seedflood.config import MODEL_FILE

GENERATION_FILE = "generation_config.json"
TOKENIZER_SETTINGS = "tokenizer_config.json"
TEMPLATE_FILE = "chat_template.jinja"

TOKENIZER_FILES = re.compile(
    r"(tokenizer|tokenizer_config|special_tokens_map|added_tokens|vocab|chat_template|tekken)\.json|"
    r"(tokenizer|spiece|spm|sentencepiece|sentencepiece\.bpe)\.model|vocab\.(txt|bpe)|merges\.txt|"
    r"chat_template\.jinja|additional_chat_templates/[\w.-]+\.jinja"
)
"""By their paths in the folder of a model."""

UNTRUE = ("quantization_config", "compression_config", "auto_map")
"""In a configuration: an export has plain weights, and brings no code."""

WITH_LOCAL_ROPE = ("gemma3_text", "gemma3n_text", "olmo3")
"""Types of models whose layers with a window have other rotations than those without, known to version 4."""

FIRST_SCALINGS = ("linear", "dynamic", "longrope")
"""Kinds of `rope_scaling` that were told by "type" before there was "rope_type"."""

Json = dict[str, Any]


def read_model_files(folder: Path) -> dict[str, bytes]:
    """What a folder holds beside its weights, by path in it."""
    found = {}
    for path in sorted([*folder.glob("*"), *folder.glob("additional_chat_templates/*")]):
        name = path.relative_to(folder).as_posix()
        is_wanted = name in (MODEL_FILE, GENERATION_FILE) or TOKENIZER_FILES.fullmatch(name)
        if is_wanted and path.is_file():
            found[name] = path.read_bytes()
    return found


def write_model_files(model: Any, tokenizer: Any, read: Mapping[str, bytes], folder: Path, dtype: str) -> None:
    """Writes what belongs beside the weights that transformers has written into a folder, where its configuration lies
    already. read: the files of the base model. dtype: of the weights."""
    written = _load(folder, MODEL_FILE)
    config = _parsed(read, MODEL_FILE)
    if config.get("model_type") != written["model_type"]:  # none, or of a model of which this is the part for texts
        config = written | {"use_cache": True}
    config = older_rope(config) | config
    config |= {"architectures": written["architectures"], "tie_word_embeddings": is_tied(model)}
    config |= {"dtype": dtype, "torch_dtype": dtype}  # the word of version 5, and that of all others
    _dump(_without(config, *UNTRUE), folder, MODEL_FILE)
    _dump(_generation(model, read), folder, GENERATION_FILE)
    if tokenizer is not None:
        _write_tokenizer(tokenizer, read, folder)


def is_tied(model: Any) -> bool:
    """Do head and embeddings have one weight?"""
    return model.get_output_embeddings().weight is model.get_input_embeddings().weight


def _generation(model: Any, read: Mapping[str, bytes]) -> Json:
    """Sampling is as the base model has it, even where transformers would not write it. Whoever has trained may have
    changed which tokens end a text."""
    own: GenerationConfig = model.generation_config
    config: Json = _parsed(read, GENERATION_FILE) or json.loads(own.to_json_string(use_diff=True))
    if own.eos_token_id is not None:
        config["eos_token_id"] = own.eos_token_id
    return _without(config, "_from_model_config")  # else version 4 lets the configuration outrank this file


def _write_tokenizer(tokenizer: Any, read: Mapping[str, bytes], folder: Path) -> None:
    files = {name: content for name, content in read.items() if TOKENIZER_FILES.fullmatch(name)}
    if not files:
        tokenizer.save_pretrained(folder)
        _dump(_older_tokenizer(_load(folder, TOKENIZER_SETTINGS)), folder, TOKENIZER_SETTINGS)
        return
    for name, content in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(content)
    if TOKENIZER_SETTINGS not in files:
        return
    config = _load(folder, TOKENIZER_SETTINGS)
    kept = _older_tokenizer(_without(config, "auto_map"))
    if "backend" in config and TEMPLATE_FILE in files:  # of version 5; those before 4.50 look into the settings alone
        kept.setdefault("chat_template", files[TEMPLATE_FILE].decode("utf-8"))
    if kept != config:
        _dump(kept, folder, TOKENIZER_SETTINGS)


def older_rope(config: Json) -> Json:
    """`rope_parameters` of version 5 in the words of version 4, where it has some for them."""
    parameters = config.get("rope_parameters")
    if not isinstance(parameters, dict):
        return {}
    older = {}
    kind = config.get("model_type")
    if kind in WITH_LOCAL_ROPE and isinstance(whole := parameters.get("full_attention"), dict):
        older["rope_local_base_freq"] = parameters.get("sliding_attention", {}).get("rope_theta")
        parameters = whole
    if "rope_theta" not in parameters:
        return {}
    older |= {"rope_theta": parameters["rope_theta"], "rope_scaling": _older_scaling(parameters, config)}
    older["partial_rotary_factor"] = parameters.get("partial_rotary_factor")
    if kind == "gpt_neox":
        older |= {"rotary_emb_base": older["rope_theta"], "rotary_pct": older["partial_rotary_factor"]}
    return {key: one for key, one in older.items() if one is not None or key == "rope_scaling"}


def _older_scaling(parameters: Json, config: Json) -> Json | None:
    """Some versions want the keys that they know, and no others."""
    kind = parameters.get("rope_type", "default")
    if kind == "default":
        return None
    scaling = _without(parameters, "rope_theta", "partial_rotary_factor")
    if kind in FIRST_SCALINGS:
        scaling = {**_without(scaling, "rope_type"), "type": kind}
    if kind == "longrope" and "original_max_position_embeddings" in config:
        scaling.pop("original_max_position_embeddings", None)  # it stands beside, as Phi-3 has it
    return scaling


def _older_tokenizer(settings: Json) -> Json:
    """Version 5 reads the names of version 4, but not the other way round."""
    settings = _without(settings, "backend", "is_local", "local_files_only")
    if settings.get("tokenizer_class") == "TokenizersBackend":
        settings["tokenizer_class"] = "PreTrainedTokenizerFast"
    if isinstance(settings.get("extra_special_tokens"), list):
        settings["additional_special_tokens"] = settings.pop("extra_special_tokens")
    return settings


def _parsed(read: Mapping[str, bytes], name: str) -> Json:
    """Nothing of a file that is not there, or is no JSON: transformers passes over such generation settings."""
    try:
        config: Json = json.loads(read.get(name, b"{}"))
    except ValueError:
        return {}
    return config


def _load(folder: Path, name: str) -> Json:
    config: Json = json.loads((folder / name).read_text(encoding="utf-8"))
    return config


def _dump(config: Json, folder: Path, name: str) -> None:
    text = json.dumps(config, indent=2, sort_keys=True, ensure_ascii=False)
    (folder / name).write_text(text + "\n", encoding="utf-8")


def _without(config: Json, *keys: str) -> Json:
    return {key: one for key, one in config.items() if key not in keys}
