"""Estimates of the slope along random directions, by forward passes alone, with all variants of an estimate in one
batch.

Two-sided: the losses at +epsilon z and -epsilon z give one scalar (MeZO, arXiv 2305.17333, algorithm 1).

`ESTIMATES` has them all; nothing else knows how they differ.

Shapes: P variants, K directions, S slots, F increments (subspace.py).
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from seedflood.protocol.seedflood.bundles import LOSS_MAX, LOSS_UNIT_BITS, SCALAR_MAX, SCALAR_UNIT_BITS, UpdateValue
from seedflood.training.objectives.batches import Batch
from seedflood.training.objectives.objective import Objective
from seedflood.training.ranks import ALONE, OneRank
from seedflood.training.seedflood.layers import LiveModel
from seedflood.training.seedflood.slots import Live, Probe
from seedflood.training.seedflood.subspace import Moves

EPSILON = 1e-3
"""Size of a perturbation, as in MeZO."""

CPU_CALL_TOKENS = 48
"""What a call with two variants costs on a CPU beyond its tokens, in tokens. A GPU is used better by one large call."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """What one origin measured at one step.

    value: what is published. Of an estimate by forward passes: (loss in units of 2^-11, slope in units of 2^-20). Of a
    gradient: a payload, with the loss in its last bytes.
    loss: the same loss as a float, for logs. Two-sided, it is the mean of both sides.
    is_finite: False if a loss was not finite. Then the slope is 0.
    is_clipped: the slope was too large to be sent, 2^11 or more, or beyond the `clip` of the run. It was cut to that.
    figures, words: see `Gradient`; an estimate by forward passes has none.
    """

    value: UpdateValue
    loss: float
    is_finite: bool
    is_clipped: bool
    figures: Mapping[str, float] = field(default_factory=dict)
    words: Mapping[str, str] = field(default_factory=dict)


def to_fixed_point(alpha: float, limit: int = SCALAR_MAX) -> tuple[int, bool]:
    """(alpha in units of 2^-20, rounded half to even and clipped to +-limit; whether it was clipped). 0 if alpha is not
    finite."""
    if not math.isfinite(alpha):
        return 0, False
    scalar = round(alpha * 2**SCALAR_UNIT_BITS)
    return max(-limit, min(limit, scalar)), abs(scalar) > limit


def two_sided(a_F: Tensor, moves: Moves, epsilon: float) -> Tensor:
    """Increments at +epsilon z and at -epsilon z, (2, F). The direction z moves one increment of each slot, by +1 or
    -1. An increment is what the model adds along one pair of basis vectors: an entry of A in `layers`, and not of the
    integer coefficients."""
    place_S, sign_S = moves.place_KS[0], moves.sign_KS[0]
    a_PF = a_F.repeat(2, 1)
    a_PF[0, place_S] += epsilon * sign_S
    a_PF[1, place_S] -= epsilon * sign_S
    return a_PF


@torch.inference_mode()
def variant_losses(
    model: LiveModel, live: Live, objective: Objective, batch: Batch, a_PF: Tensor, ranks: OneRank = ALONE
) -> list[float]:
    """The minimised figure at each of P variants, as means over the batch.

    One forward pass of P times the rows computes them; on a CPU, several passes of fewer rows. ranks: see `gradient`.
    """
    device, variants = a_PF.device, len(a_PF)

    def measure(piece: Batch) -> Tensor:
        """Sums over a piece: of the losses, and of what is counted."""
        rows = piece.to(device).repeated(variants)
        count, length = rows.tokens_BT.shape
        with live.probing(Probe(count, length, rows.answer_positions())):
            score = objective.measure(model, rows, variants)
        sums_P = score.minimised_sums
        return torch.cat([sums_P, score.count_P.to(sums_P)]).cpu()  # one wait for the device

    total = torch.zeros(2 * variants, dtype=torch.float64)
    with live.computing(a_PF):
        for sums in ranks.in_turn(_pieces(batch, device, variants, ranks), measure, len(total)):
            total += sums
    losses: list[float] = (total[:variants] / total[variants:]).tolist()
    return losses


def _pieces(batch: Batch, device: torch.device, variants: int, ranks: OneRank) -> Sequence[Batch]:
    """What is computed at once: on a GPU all rows, or as many on each rank."""
    if device.type == "cpu":
        return batch.split(2 * CPU_CALL_TOKENS // variants)
    return [*batch.parts(-(-len(batch.lengths_B) // ranks.count))]


class Estimate(NamedTuple):
    """A way to find slopes by forward passes.

    variants: where the losses are taken: increments (P, F) from those of the centre (F), the moves of one direction,
    and epsilon. conclude: what P losses give for the direction, with epsilon, and the largest scalar that may be sent.
    """

    variants: Callable[[Tensor, Moves, float], Tensor]
    conclude: Callable[[list[float], float, int], Measurement]


def to_loss_units(loss: float) -> int:
    """A loss as it is sent, in units of 2^-11."""
    return max(0, min(LOSS_MAX, round(loss * 2**LOSS_UNIT_BITS))) if math.isfinite(loss) else LOSS_MAX


def make_measurement(difference: float, span: float, loss: float, limit: int = SCALAR_MAX) -> Measurement:
    """A measurement from losses. difference: of two losses that are `span` apart along the direction. loss: what is
    reported for this step. limit: the largest scalar that may be sent."""
    scalar, is_clipped = to_fixed_point(difference / span, limit)
    return Measurement(
        (to_loss_units(loss), scalar), loss, math.isfinite(difference) and math.isfinite(loss), is_clipped
    )


def from_both_sides(losses: list[float], epsilon: float, limit: int) -> Measurement:
    """The slope between the two variants of `two_sided`; the loss is the mean of both."""
    plus, minus = losses
    return make_measurement(plus - minus, 2 * epsilon, (plus + minus) / 2, limit)


TWO_SIDED = Estimate(two_sided, from_both_sides)
ESTIMATES = {"two-sided": TWO_SIDED}
"""By their names in settings. Gradients, which need a backward pass, are none of these (`gradient`)."""
