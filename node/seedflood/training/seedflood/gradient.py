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

import torch
from torch import Tensor, nn

from seedflood.training.objectives.batches import Batch
from seedflood.training.objectives.objective import Objective
from seedflood.training.ranks import ALONE, OneRank
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
    ranks: OneRank = ALONE,
) -> Gradient:
    """The gradient of the minimised figure, as a mean over the batch, at the increments a_F.

    micro_batch: rows at once; None: all. layers: those to be checkpointed. ranks: of this host, which measure the same
    batch and share its pieces.
    """
    device = a_F.device
    a_PF = a_F.detach().clone().unsqueeze(0).requires_grad_()

    def measure(part: Batch) -> Tensor:
        """Sums over a piece: of the slopes, of the loss, and of what is counted."""
        rows = part.to(device)
        rows_count, length = rows.tokens_BT.shape
        a_PF.grad = None
        with live.probing(Probe(rows_count, length, rows.answer_positions())):
            score = objective.measure(model, rows)
            # The sum, not the mean: what goes back through half precision shall not be small.
            score.minimised_sums.sum().backward()  # type: ignore[no-untyped-call]
        assert a_PF.grad is not None
        loss_P = score.minimised_sums.detach()
        sums_2 = torch.cat([loss_P, score.count_P.to(loss_P)]).cpu()  # one wait for the device
        slope_F = a_PF.grad[0].cpu().to(torch.float64)  # moved first: no other device shall convert it
        return torch.cat([slope_F, sums_2])

    total_F, total_2 = torch.zeros(len(a_F)), torch.zeros(2, dtype=torch.float64)
    pieces = [part for piece in _pieces(batch, device, ranks) for part in piece.parts(micro_batch)]
    with torch.enable_grad(), checkpointed(layers), live.computing(a_PF):
        for sums in ranks.in_turn(pieces, measure, len(a_F) + len(total_2)):
            total_F += sums[: len(a_F)].to(torch.float32)
            total_2 += sums[len(a_F) :]
    loss_sum, count = total_2.tolist()
    return Gradient(total_F / count, loss_sum / count)


def _pieces(batch: Batch, device: torch.device, ranks: OneRank) -> Sequence[Batch]:
    """What is computed at once, if there is the memory. On a GPU all rows, or as many on each rank."""
    if device.type == "cpu":
        return batch.split(CPU_CALL_TOKENS)
    return [*batch.parts(-(-len(batch.lengths_B) // ranks.count))]
