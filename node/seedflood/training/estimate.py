"""The two-point estimate as one forward of twice the rows (design section 3; MeZO, arXiv 2305.17333, algorithm 1)."""

import hashlib
import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from seedflood.protocol.messages import SCALAR_MAX, SCALAR_UNIT_BITS
from seedflood.training.layers import Live, Probe
from seedflood.training.scoring import Batch, Score, score

CPU_CALL_TOKENS = 48
"""What a forward costs on a CPU beyond its tokens, in tokens; a GPU is better used by one large call."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """What one origin measured at one step.

    scalar: alpha = (loss_plus - loss_minus) / (2 epsilon) in units of 2^-20. loss: the mean of both losses.
    is_finite: False if a loss was not, and the scalar is therefore 0. is_clipped: |alpha| would have exceeded 2^12.
    """

    seed: int
    scalar: int
    loss: float
    is_finite: bool
    is_clipped: bool

    @property
    def alpha(self) -> float:
        return self.scalar * 2.0**-SCALAR_UNIT_BITS


def probe_seed(run_seed: int, origin: int, step: int) -> int:
    """The 32-bit seed of an origin's direction at a step: pure, so a restarted node measures the same direction.

    origin: an OriginId, or any number below 2^64 that names who measures.
    """
    packed = struct.pack("<QQQ", run_seed, origin, step)
    return int.from_bytes(hashlib.sha256(b"seedflood probe 1\0" + packed).digest()[:4], "big")


def to_fixed_point(alpha: float) -> tuple[int, bool]:
    """alpha in units of 2^-20, half to even, clipped to +-2^32, and whether it was clipped; 0 if it is not finite."""
    if not math.isfinite(alpha):
        return 0, False
    scalar = round(alpha * 2**SCALAR_UNIT_BITS)
    return max(-SCALAR_MAX, min(SCALAR_MAX, scalar)), abs(scalar) > SCALAR_MAX


@torch.inference_mode()
def measure(
    model: Any, live: Live, batch: Batch, *, seed: int, coordinates: Sequence[tuple[int, int]], epsilon: float
) -> Measurement:
    """Losses at +epsilon z and -epsilon z by one forward of 2B rows, on a CPU by some of fewer (rows of like length).

    batch: B rows. coordinates: (i, j) of every slot.
    """
    device = next(model.parameters()).device
    pieces = batch.split(CPU_CALL_TOKENS) if device.type == "cpu" else [batch]
    total: Score | None = None
    try:
        for piece in pieces:
            doubled = piece.to(device).doubled()
            rows, length = doubled.tokens_BT.shape
            live.probe = Probe(rows, length, epsilon, coordinates)
            part = score(model, doubled, halves=2)
            total = part if total is None else total + part
    finally:
        live.probe = None
    assert total is not None
    loss_plus, loss_minus = total.mean_losses()
    scalar, is_clipped = to_fixed_point((loss_plus - loss_minus) / (2 * epsilon))
    loss = (loss_plus + loss_minus) / 2
    return Measurement(seed, scalar, loss, math.isfinite(loss), is_clipped)
