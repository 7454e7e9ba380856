"""A model from scratch: the shape of another model, with weights drawn from the run's seed.

Every host gets the same bits, whatever its device or maths library: numbers come from Philox, keyed by the name of the
parameter. Parameters that the library initialises with one constant (biases, scales of norms) get that constant. All
others are normal, with the standard deviation of the model's configuration.
"""

import torch
from torch import nn

from seedflood.training import randomness
from seedflood.training.models import distinct_parameters

DEVIATION = 0.02
"""The standard deviation if a configuration has none."""


@torch.no_grad()
def draw_weights(module: nn.Module, run_seed: int) -> None:
    """Replaces the weights of a transformers model, trained or not, by new ones."""
    config = module.config
    said = (getattr(config, key, None) for key in ("initializer_range", "init_std"))
    deviation = float(next((value for value in said if value is not None), DEVIATION))
    with torch.random.fork_rng(devices=[]):
        fresh = dict(distinct_parameters(type(module)(config)))
    for name, parameter in distinct_parameters(module):
        example = fresh[name].detach().flatten()
        if bool((example == example[0]).all()):
            parameter.fill_(float(example[0]))
            continue
        key = randomness.derive_key("initial weights", run_seed, name)
        parameter.copy_(randomness.normal(key, parameter.numel()).mul_(deviation).view(parameter.shape))
