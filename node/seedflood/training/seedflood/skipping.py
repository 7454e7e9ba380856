"""Which products of the last layer need not be computed where no answer is read.

Behind the attention of the last layer every position goes its own way, so for classification one position per row is
enough. Which modules that concerns is not told by their names but found out: a module whose other positions are NaN
and whose answer is finite all the same has no part in it. That is a test of dependence, not of size: NaN takes part in
every sum that it reaches.
"""

import math
from collections.abc import Sequence

import torch
from torch import nn

from seedflood.training.seedflood.layers import Live, LiveModel, LiveProduct, Probe

LENGTH, ANSWER = 3, 1
"""A row with a position before the answer and one behind it."""


@torch.inference_mode()
def mark_skippable(model: LiveModel, live: Live) -> None:
    """Sets `is_skippable` of the products of the last layer that only feed their own position."""
    device = live.a_PF.device
    tokens_BT = torch.zeros(1, LENGTH, dtype=torch.int64, device=device)
    probe = Probe(live.a_PF, 1, LENGTH, torch.tensor([ANSWER], device=device))
    for module in (module for layer in layers_of(model.module)[-1:] for module in layer.modules()):
        if not isinstance(module, LiveProduct):
            continue
        module.is_skippable, live.filler = True, math.nan
        with live.probing(probe):
            answer_D = model.hidden_states(tokens_BT)[0, ANSWER]
        live.filler = 0.0
        module.is_skippable = bool(answer_D.isfinite().all())


def layers_of(model: nn.Module) -> Sequence[nn.Module]:
    """The longest list of modules; a model without one has no layers to tell apart."""
    stacks = [list(module) for module in model.modules() if isinstance(module, nn.ModuleList)]
    return max(stacks, key=len, default=[])
