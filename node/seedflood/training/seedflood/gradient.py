"""The slope along every coordinate of the subspace at once: dL/dA by one forward and one backward.

The live layers compute with `W + U A V^T`, so autograd needs the gradient with respect to A alone (of F values), and
the weights need none: nothing of their size is formed. A layer keeps `x V` of its input, rank numbers a position; what
else is kept for the backward pass are the inner activations of attention, non-linearities and norms. Two options of a
host save those: `micro_batch` rows at a time, the gradients added up, and checkpoints, where only what enters a layer
is kept and the layer is computed again. Both give the same sums in another order of rounding, so hosts of one run may
differ in them.

Shapes: F increments (subspace.py).
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from seedflood.training.objectives.batches import Batch
from seedflood.training.objectives.objective import Objective
from seedflood.training.seedflood.layers import Live, LiveModel, Probe

CPU_CALL_TOKENS = 96
"""What a forward and backward cost on a CPU beyond their tokens, in tokens; a GPU is better used by one large call."""


@dataclass(frozen=True, slots=True)
class Gradient:
    """slope_F: dL/dA, float32 in host memory. loss: mean over the batch."""

    slope_F: Tensor
    loss: float


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
    """Of what the objective brings down, in the mean over the batch, with the increments a_F.

    micro_batch: rows at once. layers: to be checkpointed.
    """
    device = a_F.device
    a_PF = a_F.detach().clone().unsqueeze(0).requires_grad_()
    loss_sum, count = torch.zeros((), dtype=torch.float64), 0
    with torch.enable_grad(), checkpointed(layers):
        for piece in _pieces(batch, device, micro_batch):
            rows = piece.to(device)
            rows_count, length = rows.tokens_BT.shape
            with live.probing(Probe(a_PF, rows_count, length, rows.answer_positions())):
                score = objective.measure(model, rows)
                # The sum, not the mean: what goes back through half precision shall not be small.
                score.minimised_sums.sum().backward()  # type: ignore[no-untyped-call]
            loss_sum += score.minimised_sums.detach().sum().cpu()
            count += int(score.count_P[0])
    assert a_PF.grad is not None
    return Gradient(a_PF.grad[0].to("cpu", torch.float32) / count, float(loss_sum) / count)


@contextmanager
def checkpointed(layers: Sequence[nn.Module]) -> Iterator[None]:
    """Within, these layers keep their inputs alone, and are computed again on the way back."""
    for layer in layers:
        layer.forward = partial(checkpoint, layer.forward, use_reentrant=False, preserve_rng_state=False)
    try:
        yield
    finally:
        for layer in layers:
            del layer.forward  # that of its class comes back


def _pieces(batch: Batch, device: torch.device, micro_batch: int | None) -> Iterator[Batch]:
    """The batch in parts of so many rows at most; on a CPU in parts of like length."""
    for piece in batch.split(CPU_CALL_TOKENS) if device.type == "cpu" else [batch]:
        rows = len(piece.lengths_B)
        size = micro_batch or rows
        for start in range(0, rows, size):
            yield piece.rows(torch.arange(start, min(start + size, rows))) if size < rows else piece
