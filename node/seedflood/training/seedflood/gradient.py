"""The slope along every coordinate of the subspace at once: dL/dA by one forward and one backward pass.

The live layers compute with `W + U A V^T`, so autograd needs the gradient with respect to A alone (F values) and none
of the weights: nothing of their size is formed. A layer keeps `x V` of its input, rank numbers per position. What else
is kept for the backward pass are the inner activations of attention, non-linearities and norms. Two options of a host
save those. `micro_batch` takes that many rows at a time and adds the gradients up. Checkpoints keep only the input of
each layer and compute the layer again. Both give the same sums in another order of rounding, so hosts of one run may
differ in them.

Shapes: F increments (subspace.py).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain

import torch
from torch import Tensor, nn

from seedflood.training.objectives.batches import Batch
from seedflood.training.objectives.objective import Objective
from seedflood.training.seedflood.layers import LiveModel
from seedflood.training.seedflood.slots import Live, Probe
from seedflood.training.stacks import checkpointed

CPU_CALL_TOKENS = 96
"""What a forward and backward pass cost on a CPU beyond their tokens, in tokens. A GPU is used better by one large
call."""


@dataclass(frozen=True, slots=True)
class Gradient:
    """A gradient in the subspace. slope_F: dL/dA, float32 in host memory. loss: mean over the batch. figures, words:
    what else people may want to know of the batch."""

    slope_F: Tensor
    loss: float
    figures: Mapping[str, float] = field(default_factory=dict)
    words: Mapping[str, str] = field(default_factory=dict)


def gradient(
    model: LiveModel,
    live: Live,
    objective: Objective,
    batch: Batch,
    a_F: Tensor,
    *,
    micro_batch: int | None = None,
    layers: Sequence[nn.Module] = (),
) -> Gradient:
    """The gradient of the minimised figure, as a mean over the batch, at the increments a_F.

    micro_batch: rows at once; None: all. layers: those to be checkpointed.
    """
    device = a_F.device
    a_PF = a_F.detach().clone().unsqueeze(0).requires_grad_()
    loss_sum, count = torch.zeros((), dtype=torch.float64), 0
    with torch.enable_grad(), checkpointed(layers), live.computing(a_PF):
        pieces = batch.split(CPU_CALL_TOKENS) if device.type == "cpu" else [batch]
        for part in chain.from_iterable(piece.parts(micro_batch) for piece in pieces):
            rows = part.to(device)
            rows_count, length = rows.tokens_BT.shape
            with live.probing(Probe(rows_count, length, rows.answer_positions())):
                score = objective.measure(model, rows)
                # The sum, not the mean: what goes back through half precision shall not be small.
                score.minimised_sums.sum().backward()  # type: ignore[no-untyped-call]
            loss_sum += score.minimised_sums.detach().sum().cpu()
            count += int(score.count_P[0])
    assert a_PF.grad is not None
    return Gradient(a_PF.grad[0].to("cpu", torch.float32) / count, float(loss_sum) / count)
