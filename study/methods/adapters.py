"""LoRA by `peft` (Hu et al. 2021, arXiv 2106.09685, section 4): small factors beside some matrices, which stay."""

from typing import Any

import torch

from seedflood.errors import ConfigError

RANK = 8
SCALE = 2
"""alpha / rank, as in the paper's experiments with OPT-like models and peft's examples."""


def add_adapters(model: Any, rank: int, seed: int) -> None:
    """Puts factors of this rank into the matrices that peft chooses for a model of this kind (queries and values), and
    lets nothing else be trained. Drawn from the seed. Raises ConfigError."""
    import peft  # takes a second to import, and other methods do not need it

    settings = peft.LoraConfig(r=rank, lora_alpha=SCALE * rank, lora_dropout=0.0, task_type="CAUSAL_LM")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        try:
            peft.inject_adapter_in_model(settings, model)
        except ValueError as error:
            raise ConfigError(
                f"peft does not know where a {type(model).__name__} takes LoRA: choose another model, or leave the "
                "methods with LoRA out (--methods)."
            ) from error
    model.eval()
