"""The outer step: local progress, the neighbours' parameters and momentum become the parameters of the next round.

With worker i's parameters theta_t at the start of round t, g_t = theta_H - theta_t what its local steps have changed,
and phi_t = theta_t + eta g_t (GASLoC, arXiv 2606.11081, the accelerated form):

    theta_(t+1) = phi_t - alpha Lambda phi_t + gamma (phi_t - phi_(t-1)),        phi_(-1) = theta_0

Lambda is the weighted Laplacian of the round's pairs: (Lambda phi)_i = sum over neighbours j of w_ij (phi_i - phi_j),
with w_ij = w_ji. `gamma = 0` is plain gossip, which keeps the mean of all replicas whatever the pairs are. Momentum
comes after the mixing and is a worker's own, of its phi before the mixing.

**On a complete graph** with w_ij = 1/n and alpha = 1, phi - Lambda phi is the mean of all phi, so worker i gets

    theta_(t+1),i = mean phi_t + gamma (phi_t,i - phi_(t-1),i)

Its mean over the workers is mean phi_t + gamma (mean phi_t - mean phi_(t-1)): Nesterov's step with learning rate eta
and momentum gamma on the mean pseudo-gradient, DiLoCo's outer step (arXiv 2311.08105) in another spelling. But the
workers are not equal, as DiLoCo's are: worker i differs from the mean by gamma times the difference between what its
own phi and the mean phi have changed since the round before. In the next round this is gone, and there is a new one.
So the mean follows DiLoCo exactly for the same pseudo-gradients; these are taken at n slightly different places.

**With an encoding that leaves something out** the neighbours know told_i in place of phi_i. Then w_ij (told_i - told_j)
is what counts, at both ends: the mean is kept exactly, and what was left out stays with its worker (as in Choco).

**Overlap.** An outer step is a correction that is added: theta_(t+1) - phi_t, of phi as it was when it was offered. So
local steps may go on meanwhile; the correction comes late, and their progress counts to the next round.

**DiLoCo** is `follow`: everyone takes the mean phi in place of its own. **D-Adam, DSGD** are one local step a round,
eta = alpha = 1 and gamma = 0 (`PLAIN`), with that optimiser.

Shapes: F numbers of all parameters (flat.py), N of a piece.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from seedflood.training.gasloc.encodings import ENCODINGS, EncodingName, pieces_of
from seedflood.training.gasloc.exchange import Difference, Offer


@dataclass(frozen=True, slots=True)
class OuterSettings:
    """eta: how much of the local progress counts. alpha: of the neighbours' pull. gamma: momentum.

    encoding: of what is told. is_overlapped: local steps go on while an offer is open.
    """

    eta: float = 1.0
    alpha: float = 1.0
    gamma: float = 0.0
    encoding: EncodingName = "float32"
    is_overlapped: bool = False


PLAIN = OuterSettings()
"""Of D-Adam and DSGD: whatever the local steps made, mixed with the neighbours'."""


@dataclass(frozen=True, slots=True)
class Pull:
    """Towards one neighbour. weight: w_ij, the same at its end."""

    weight: float
    difference: Difference


@dataclass(frozen=True, slots=True)
class Mixed:
    """distance: root mean square over the neighbours of |told_i - told_j| / |phi_i|; 0 without any."""

    neighbours: int
    distance: float


def pair_weight(degree: int, other_degree: int) -> float:
    """w_ij by Metropolis and Hastings, of how many neighbours each of the two has in the round.

    1/2 for a pair, 1/3 on a ring, 1/n on a complete graph: symmetric, and each keeps a share of its own.
    """
    return 1 / (1 + max(degree, other_degree))


class Outer:
    """The outer steps of one worker, on its flat parameters, which are rewritten in place.

    round: the next one. Between `propose` and `mix` (or `follow`) the offer is open. anchor_F: where the round began,
    or what is offered while local steps go on; None if neither is needed.
    """

    def __init__(self, values_F: Tensor, settings: OuterSettings) -> None:
        self.settings = settings
        self.round = 0
        self.offer: Offer | None = None
        self._late: list[Pull] = []
        """Corrections that the anchor lacks while it is offered: they are no local progress."""
        self._values_F = values_F
        needs_anchor = settings.eta != 1 or settings.is_overlapped
        self.anchor_F = values_F.clone() if needs_anchor else None
        self.previous_F = values_F.clone() if settings.gamma != 0 else None
        is_exact = settings.encoding == "float32"
        self.residual_F = None if is_exact else torch.zeros_like(values_F, dtype=torch.bfloat16)

    @torch.no_grad()
    def propose(self) -> Offer:
        """The local steps of the round are done: their result becomes phi, which is offered."""
        assert self.offer is None, "an offer is open"
        if self.anchor_F is not None and self.settings.eta != 1:
            torch.lerp(self.anchor_F, self._values_F, self.settings.eta, out=self._values_F)
        if self.anchor_F is not None and self.settings.is_overlapped:
            self.anchor_F.copy_(self._values_F)
        self.offer = Offer(self._phi(), self.settings.encoding, self.residual_F)
        return self.offer

    @torch.no_grad()
    def mix(self, pulls: Sequence[Pull]) -> Mixed:
        """The outer step with the neighbours whose parameters have arrived, perhaps none. The round is over."""
        assert self.offer is not None, "nothing was offered"
        offer, phi_F = self.offer, self._phi()
        squares = torch.zeros(2, dtype=torch.float64, device=phi_F.device)
        for index, piece in enumerate(offer.pieces):
            part = slice(piece.start, piece.end)
            phi_N = phi_F[part]
            change_N = self._momentum(phi_N, part)
            for pull in pulls:
                difference_N = pull.difference.piece(index)
                squares[0] += torch.linalg.vector_norm(difference_N).square()
                change_N.add_(difference_N, alpha=-self.settings.alpha * pull.weight)
            if pulls:
                squares[1] += torch.linalg.vector_norm(phi_N).square()
                offer.settle(index, offer.told(index))
            self._close(part, phi_N, change_N)
        self._finish()
        apart, size = (math.sqrt(square) for square in squares.tolist())
        distance = apart / math.sqrt(len(pulls)) / size if pulls and size else 0.0
        return Mixed(len(pulls), distance)

    @torch.no_grad()
    def correct(self, pull: Pull) -> None:
        """The pull of an earlier round that was not known to be mixed: added now, to whatever the parameters are.

        While an offer is open only if it is overlapped, since the offered numbers must not change.
        """
        assert self.offer is None or self.settings.is_overlapped, "the parameters are offered"
        self._add(pull, self._values_F)
        if self.anchor_F is not None and self.offer is None:
            self._add(pull, self.anchor_F)
        elif self.anchor_F is not None:
            self._late.append(pull)

    @torch.no_grad()
    def follow(self, mean_F: Tensor) -> None:
        """DiLoCo's outer step: everyone's phi was averaged, and everyone goes on from the same parameters."""
        assert self.offer is not None, "nothing was offered"
        phi_F = self._phi()
        for piece in self.offer.pieces:
            part = slice(piece.start, piece.end)
            phi_N, mean_N = phi_F[part], mean_F[part]
            change_N = self._momentum(mean_N, part).add_(mean_N - phi_N)
            self._close(part, phi_N, change_N)
        self._finish()

    def resume(self, round_: int, *, is_offered: bool) -> None:
        """Goes on where a checkpoint was made, its tensors restored. The open offer has the digest that it had."""
        self.round = round_
        self._late.clear()
        self.offer = Offer(self._phi(), self.settings.encoding, self.residual_F) if is_offered else None

    def _phi(self) -> Tensor:
        """What is offered: the parameters themselves, unless local steps go on."""
        if self.anchor_F is not None and self.settings.is_overlapped:
            return self.anchor_F
        return self._values_F

    def _momentum(self, phi_N: Tensor, part: slice) -> Tensor:
        """gamma (phi - the one before), whose place it takes; a new tensor."""
        if self.previous_F is None:
            return torch.zeros_like(phi_N)
        momentum_N = (phi_N - self.previous_F[part]).mul_(self.settings.gamma)
        self.previous_F[part] = phi_N
        return momentum_N

    def _close(self, part: slice, phi_N: Tensor, change_N: Tensor) -> None:
        self._values_F[part] += change_N
        if self.anchor_F is not None:
            if self.settings.is_overlapped:
                phi_N += change_N  # which is the anchor
            else:
                self.anchor_F[part] = self._values_F[part]

    def _finish(self) -> None:
        self.offer = None
        self.round += 1
        for pull in self._late:
            assert self.anchor_F is not None
            self._add(pull, self.anchor_F)
        self._late.clear()

    def _add(self, pull: Pull, target_F: Tensor) -> None:
        """-alpha w_ij (ours - theirs), piece by piece."""
        for index, piece in enumerate(pieces_of(ENCODINGS["float32"], len(target_F))):
            scale = -self.settings.alpha * pull.weight
            target_F[piece.start : piece.end].add_(pull.difference.piece(index), alpha=scale)
