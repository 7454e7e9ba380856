"""A model from scratch: of the shape of another one, with weights drawn from the run's seed.

Every host gets the same bits, whatever its device or library of mathematics: numbers come from Philox, by the name of
the parameter. What the library begins with as one constant (biases, scales of norms) is taken over; all else is normal
with the deviation that the model's configuration names.
"""

import torch
from torch import nn

from seedflood.training import randomness
from seedflood.training.models import BaseModel, distinct_parameters, load_model, prepare_model

DEVIATION = 0.02
"""If a configuration names none."""


def load_fresh(name: str, run_seed: int, *, device: str = "cpu") -> BaseModel:
    """A model as `models.load_model` finds it, but with weights from scratch, in float32. Raises ModelError."""
    found = load_model(name, dtype="float32")
    draw_weights(found.model, run_seed)
    return prepare_model(found.model, found.tokenizer, name=name, device=device, dtype="float32")


@torch.no_grad()
def draw_weights(module: nn.Module, run_seed: int) -> None:
    """Rewrites the weights of a transformers model, which may be trained already, as they are before any training."""
    config = module.config
    deviation = next(
        (
            float(value)
            for key in ("initializer_range", "init_std")
            if (value := getattr(config, key, None)) is not None
        ),
        DEVIATION,
    )
    with torch.random.fork_rng(devices=[]):
        fresh = dict(distinct_parameters(type(module)(config)))
    for name, parameter in distinct_parameters(module):
        example = fresh[name].detach().flatten()
        if bool((example == example[0]).all()):
            parameter.fill_(float(example[0]))
            continue
        key = randomness.derive_key("initial weights", run_seed, name)
        parameter.copy_(randomness.normal(key, parameter.numel()).mul_(deviation).view(parameter.shape))
