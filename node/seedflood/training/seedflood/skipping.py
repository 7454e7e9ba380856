"""Which products of the last layer need not be computed where no answer is read.

Behind the attention of the last layer no position depends on another one, so for classification one position per row is
enough. Which modules that concerns is found out by a test, not by their names. The module's output is NaN at all other
positions; if the answer is finite all the same, it does not depend on them. NaN takes part in every sum that it
reaches, so this is a test of dependence, not of size.
"""

import math

import torch

from seedflood.training.seedflood.layers import LiveModel, LiveProduct
from seedflood.training.seedflood.slots import Live, Probe
from seedflood.training.stacks import layers_of

LENGTH, ANSWER = 3, 1
"""A row with a position before the answer and one behind it."""


@torch.inference_mode()
def mark_skippable(model: LiveModel, live: Live) -> None:
    """Sets `is_skippable` of the products of the last layer that only feed their own position."""
    device = live.a_PF.device
    tokens_BT = torch.zeros(1, LENGTH, dtype=torch.int64, device=device)
    probe = Probe(1, LENGTH, torch.tensor([ANSWER], device=device))
    for module in (module for layer in layers_of(model.module)[-1:] for module in layer.modules()):
        if not isinstance(module, LiveProduct):
            continue
        module.is_skippable, live.filler = True, math.nan
        with live.probing(probe):
            answer_D = model.hidden_states(tokens_BT)[0, ANSWER]
        live.filler = 0.0
        module.is_skippable = bool(answer_D.isfinite().all())
