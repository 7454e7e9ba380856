"""The outer step: the parameters of the next round, from local progress, the neighbours' parameters and momentum.

    theta_(t+1) = phi_t - Lambda phi_t + gamma (phi_t - phi_(t-1)),        phi_t = theta_t + eta g_t

Both ends of a pair mix the same w_ij (told_i - told_j), so without momentum the mean of all replicas is kept exactly,
whatever the pairs are. What DiLoCo is in it, and why workers differ: docs/explanation/gossip.md.

Shapes: F numbers of all parameters (flat.py), N of a piece.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from seedflood.training.devices import exact_device
from seedflood.training.gasloc.encodings import EncodingName, pieces_of
from seedflood.training.gasloc.exchange import Difference, Outgoing
from seedflood.training.gasloc.reach import Clipped, Reach


@dataclass(frozen=True, slots=True)
class OuterSettings:
    """eta: factor of the local progress. gamma: momentum. encoding: of the offered parameters. is_bounded: is a
    difference clipped by our own reach?"""

    eta: float = 1.0
    gamma: float = 0.0
    encoding: EncodingName = "float32"
    is_bounded: bool = False


PLAIN = OuterSettings()
"""Of D-Adam and DSGD, with one local step a round: whatever it made, mixed with the neighbours'."""


@dataclass(frozen=True, slots=True)
class Term:
    """What one neighbour adds to a mix, weight times difference. weight: w_ij, equal at both ends."""

    weight: float
    difference: Difference


@dataclass(frozen=True, slots=True)
class Mixed:
    """The result of an outer step. distance: root mean square over the neighbours of |told_i - told_j| / |phi_i|; 0
    without neighbours."""

    neighbours: int
    distance: float


class Outer:
    """The outer steps of one worker. values_F: its flat parameters, which are changed in place. starts: where each
    tensor begins in them.

    round: the next one. Between `propose` and `mix` the offer is open. anchor_F: the parameters at the start of the
    round, or the offered ones, which stay as they are while local steps go on.
    """

    def __init__(self, values_F: Tensor, settings: OuterSettings, starts: Sequence[int] = (0,)) -> None:
        self.settings = settings
        self.round = 0
        self.offer: Outgoing | None = None
        self.values_F = values_F
        self.anchor_F = values_F.clone()
        # Each worker's own phi, as it was before the mixing; theta_0 stands for the one before the first round.
        self.previous_F = values_F.clone() if settings.gamma != 0 else None
        is_exact = settings.encoding == "float32"
        self.residual_F = None if is_exact else torch.zeros_like(values_F, dtype=torch.bfloat16)
        self.reach = Reach(len(values_F), starts) if settings.is_bounded else None

    @torch.no_grad()
    def propose(self, encoding: EncodingName | None = None) -> Outgoing:
        """The local steps of the round are done: their result becomes phi, which is offered. encoding: another one than
        that of the settings, and without error feedback."""
        assert self.offer is None, "an offer is open"
        if self.settings.eta != 1:
            torch.lerp(self.anchor_F, self.values_F, self.settings.eta, out=self.values_F)
        if self.reach is not None:
            self.reach.advance(self.anchor_F, self.values_F)
            self._measure_residual()
        self.anchor_F.copy_(self.values_F)
        if encoding in (None, self.settings.encoding):
            self.offer = Outgoing(self.anchor_F, self.settings.encoding, self.residual_F)
        else:
            self.offer = Outgoing(self.anchor_F, encoding)
        return self.offer

    @torch.no_grad()
    def mix(self, terms: Sequence[Term], *, has_momentum: bool = True, width: float = 1.0) -> Mixed:
        """The outer step with the neighbours whose parameters have arrived, perhaps none. Ends the round. width: of the
        limit for differences (`Reach.clip`)."""
        assert self.offer is not None, "nothing was offered"
        offer, phi_F = self.offer, self.anchor_F
        limits = [self._clip(term.difference, width) for term in terms]
        squares = torch.zeros(2, dtype=torch.float64, device=exact_device(phi_F.device))
        for index, part in enumerate(offer.pieces):
            phi_N = phi_F[part]
            change_N = self._momentum(phi_N, part) if has_momentum else torch.zeros_like(phi_N)
            for term, limit in zip(terms, limits, strict=True):
                difference_N = term.difference.piece(index)
                squares[0] += torch.linalg.vector_norm(difference_N).square().to(squares.device)
                if limit is not None:
                    difference_N = limit.apply(index, difference_N)
                change_N.add_(difference_N, alpha=-term.weight)
            if terms:
                squares[1] += torch.linalg.vector_norm(phi_N).square().to(squares.device)
                offer.settle(index, offer.sent(index))
            self.values_F[part] += change_N  # a correction: local steps may have gone on since the offer
            phi_N += change_N
        self.offer = None
        self.round += 1
        apart, size = (math.sqrt(square) for square in squares.tolist())
        distance = apart / math.sqrt(len(terms)) / size if terms and size else 0.0
        return Mixed(len(terms), distance)

    @torch.no_grad()
    def is_near(self, result: Callable[[int], Tensor]) -> bool:
        """Do we vouch for other parameters, given piece by piece as float32? With momentum for any: honest replicas are
        then further apart than what their own steps tell."""
        if self.reach is None:
            return True
        pieces = pieces_of(len(self.values_F))
        return self.reach.is_near(lambda index: self.values_F[pieces[index]] - result(index))

    @torch.no_grad()
    def replace(self, result: Callable[[int], Tensor]) -> None:
        """Goes on from other parameters, piece by piece as float32; nothing is added to them any more."""
        self.offer = None
        for index, part in enumerate(pieces_of(len(self.values_F))):
            self.values_F[part] = result(index)
            self.anchor_F[part] = self.values_F[part]

    def resume(self, round_: int) -> None:
        """Resumes from a checkpoint whose tensors are restored already."""
        self.round = round_
        self.offer = None
        self._measure_residual()

    def _clip(self, difference: Difference, width: float) -> Clipped | None:
        return self.reach.clip(difference, width) if self.reach is not None else None

    def _measure_residual(self) -> None:
        if self.reach is not None and self.residual_F is not None:
            self.reach.leave_out(self.residual_F)

    def _momentum(self, phi_N: Tensor, part: slice) -> Tensor:
        """gamma (phi - previous phi) as a new tensor. phi_N becomes the previous one."""
        if self.previous_F is None:
            return torch.zeros_like(phi_N)
        momentum_N = (phi_N - self.previous_F[part]).mul_(self.settings.gamma)
        self.previous_F[part] = phi_N
        return momentum_N
