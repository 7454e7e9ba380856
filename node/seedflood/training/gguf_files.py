"""What transformers leaves out of a GGUF file without a word: tensors that it has no name for, and how positions are
stretched.

llama.cpp keeps the stretching of Llama 3.1 and later as a tensor of divisors of the frequencies (`rope_freqs`). It is
put into the configuration again, if it follows from the numbers that these models have.
"""

from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from seedflood.errors import ModelError

DIVISORS = "rope_freqs.weight"

LLAMA3 = {
    "rope_type": "llama3",
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}
"""Of all models that llama.cpp writes divisors for, with a factor of their own."""

PLAIN_SCALING = ("none", "default")


def complete_gguf(model: Any, path: Path) -> None:
    """Puts into a model what was left out of its file. Raises ModelError if that cannot be."""
    from gguf import GGUFReader  # an extra

    reader = GGUFReader(path)
    tensors = {one.name: one for one in reader.tensors}
    divisors = tensors.pop(DIVISORS, None)
    stored = sum(int(one.n_elements) for one in tensors.values())
    taken = sum(one.numel() for one in model.parameters())
    if stored > taken:
        raise ModelError(
            f"{path} holds {stored - taken} numbers that {type(model).__name__} does not take, as biases, so it would "
            "be another model without them: name a folder of this model in Hugging Face format."
        )
    scaling = [_text(field) for name, field in reader.fields.items() if name.endswith(".rope.scaling.type")]
    is_read = (model.config.rope_parameters or {}).get("rope_type", "default") != "default"
    if divisors is not None:
        _stretch(model, torch.tensor(divisors.data, dtype=torch.float32), path)
    elif not is_read and any(one not in PLAIN_SCALING for one in scaling):
        raise ModelError(
            f"{path} stretches positions ({scaling[0]}), which transformers does not read: name a folder of this model "
            "in Hugging Face format."
        )


def _text(field: Any) -> str:
    return bytes(field.parts[field.data[0]]).decode()


def _stretch(model: Any, divisors: torch.Tensor, path: Path) -> None:
    """Gives a model the frequencies that the divisors make of its own. Raises ModelError if no setting does."""
    config: PreTrainedConfig = model.config
    own = config.rope_parameters
    plain = _frequencies(config)
    config.rope_parameters = {**own, **LLAMA3, "factor": float(divisors.max())}
    if not torch.allclose(_frequencies(config), plain / divisors, rtol=1e-3):
        raise ModelError(
            f"{path} stretches positions in a way that transformers does not read: name a folder of this model in "
            "Hugging Face format."
        )
    for module in list(model.modules()):
        for name, child in module.named_children():
            if type(child).__name__.endswith("RotaryEmbedding"):
                setattr(module, name, type(child)(config=config))


def _frequencies(config: PreTrainedConfig) -> torch.Tensor:
    kind = config.rope_parameters["rope_type"]
    if kind != "default":
        scaled: torch.Tensor = ROPE_INIT_FUNCTIONS[kind](config, torch.device("cpu"))[0]
        return scaled
    width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    theta = float(config.rope_parameters["rope_theta"])
    return torch.pow(theta, -torch.arange(0, width, 2) / width)
