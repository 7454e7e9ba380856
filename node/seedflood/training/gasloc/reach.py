"""How far a partner may pull a replica: as far as it has come by itself of late, tensor by tensor.

A partner may send anything, so each host clips the difference around its own parameters (centred clipping). The limit
follows from its own local steps, which nobody else can change. So a liar moves an honest host no further than an honest
partner could.

Why a reach is two numbers, and what it costs honest pairs: docs/explanation/gossip.md.

Shapes: F numbers of all parameters (flat.py), N of a piece, T tensors.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from seedflood.training.gasloc.encodings import pieces_of
from seedflood.training.gasloc.exchange import Difference

WIDE = 4.0
"""In closing rounds a difference may be so many times our reach, and so may the replica with which we end. Measured on
rings and paths of eight: half of all pairs are within it, and on complete graphs all."""

KEPT = 0.5
"""What a round leaves of the squares: an exchange halves the variance between two hosts."""


@dataclass(frozen=True, slots=True)
class _Span:
    """The part of a tensor that lies in a piece. tensor: its index."""

    tensor: int
    part: slice


class Reach:
    """squares_2T: the squares of the norms and of the largest numbers, float64, in host memory; by the norm alone a
    liar could put all into a few numbers. starts: where each tensor begins in the flat parameters."""

    def __init__(self, numbers: int, starts: Sequence[int]) -> None:
        self.squares_2T = torch.zeros(2, len(starts), dtype=torch.float64)
        self._left_out_2T = torch.zeros_like(self.squares_2T)
        self._pieces = pieces_of(numbers)
        self._spans = [_spans(piece, [*starts, numbers]) for piece in self._pieces]

    def advance(self, before_F: Tensor, after_F: Tensor) -> None:
        """Local steps have changed the parameters from one to the other."""
        progress_2T = self._measure(lambda index: after_F[self._pieces[index]] - before_F[self._pieces[index]])
        if progress_2T.any():
            self.squares_2T.mul_(KEPT).add_(progress_2T.square())

    def leave_out(self, residual_F: Tensor) -> None:
        """What our last offer left out. It counts like progress: as much is left out of a partner's."""
        self._left_out_2T = self._measure(lambda index: residual_F[self._pieces[index]]).square()

    def clip(self, difference: Difference, width: float) -> "Clipped":
        """width: how many times our reach the difference may be."""
        limits_2T = self._limits(width)
        largest = limits_2T[1].tolist()
        clamped = Clipped(difference, self._spans, largest, [1.0] * len(largest))
        norms_T = self._measure(clamped.piece)[0]
        is_over_T = norms_T > limits_2T[0]
        scales_T = torch.where(is_over_T, limits_2T[0] / norms_T, 1.0)
        return Clipped(difference, self._spans, largest, scales_T.tolist())

    def is_near(self, piece_of: Callable[[int], Tensor]) -> bool:
        """Is a difference, given piece by piece, within `WIDE` in all tensors together? Honest replicas differ by many
        reaches in single tensors that hardly learn."""
        norm = torch.linalg.vector_norm(self._measure(piece_of)[0])
        limit = torch.linalg.vector_norm(self._limits(WIDE)[0])
        return bool(norm <= limit)

    def _limits(self, width: float) -> Tensor:
        return width * (self.squares_2T + self._left_out_2T).sqrt()

    def _measure(self, piece_of: Callable[[int], Tensor]) -> Tensor:
        """Norm and largest number of each tensor, (2, T)."""
        norms: list[list[Tensor]] = [[] for _ in range(self.squares_2T.shape[1])]
        largest: list[list[Tensor]] = [[] for _ in norms]
        for index, spans in enumerate(self._spans):
            piece_N = piece_of(index)
            for span in spans:
                part_N = piece_N[span.part]
                norms[span.tensor].append(torch.linalg.vector_norm(part_N, dtype=torch.float32))
                largest[span.tensor].append(torch.linalg.vector_norm(part_N, ord=float("inf"), dtype=torch.float32))
        norms_T = torch.stack([torch.linalg.vector_norm(torch.stack(parts)) for parts in norms])
        largest_T = torch.stack([torch.stack(parts).amax() for parts in largest])
        return torch.stack([norms_T, largest_T]).cpu().double()


class Clipped:
    """A difference within limits. largest, scales: of each tensor, the largest number, and what all numbers are
    multiplied by after that."""

    def __init__(
        self,
        difference: Difference,
        spans: Sequence[Sequence[_Span]],
        largest: Sequence[float],
        scales: Sequence[float],
    ) -> None:
        self._difference = difference
        self._spans = spans
        self._largest = largest
        self._scales = scales

    def piece(self, index: int) -> Tensor:
        """One piece, float32, as a new tensor."""
        return self.apply(index, self._difference.piece(index))

    def apply(self, index: int, difference_N: Tensor) -> Tensor:
        """The same, of a piece that was read already."""
        piece_N = difference_N.clone()
        for span in self._spans[index]:
            largest = self._largest[span.tensor]
            piece_N[span.part].clamp_(-largest, largest).mul_(self._scales[span.tensor])
        return piece_N


def _spans(piece: slice, borders: Sequence[int]) -> list[_Span]:
    """The parts of all tensors in a piece. borders: where tensors begin, and where the last one ends."""
    found = []
    for tensor, (start, end) in enumerate(pairwise(borders)):
        first, last = max(start, piece.start), min(end, piece.stop)
        if first < last:
            found.append(_Span(tensor, slice(first - piece.start, last - piece.start)))
    return found
