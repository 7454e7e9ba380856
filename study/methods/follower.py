"""DiLoCo's outer step (arXiv 2311.08105, algorithm 1), as a yardstick: everyone goes on from the mean of all.

On a complete graph daemons take the same course in the mean (`seedflood.training.gasloc.outer`).

Shapes: F numbers of all parameters (flat.py).
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from seedflood.training.gasloc.outer import Outer


class Follower(Outer):
    """A worker whose momentum is that of the mean."""

    @torch.no_grad()
    def follow(self, mean_F: Tensor) -> None:
        """Ends the round with mean phi + gamma (mean phi - the mean before). mean_F: the mean of all phi."""
        assert self.offer is not None, "nothing was offered"
        after_F = mean_F
        if self.previous_F is not None:
            after_F = mean_F + (mean_F - self.previous_F).mul_(self.settings.gamma)
            self.previous_F.copy_(mean_F)
        self.values_F.copy_(after_F)
        self.anchor_F.copy_(after_F)
        self.offer = None
        self.round += 1


def average(followers: Sequence[Follower]) -> int:
    """Ends a round: everyone follows the mean, as an all-reduce makes it. Returns the bytes of an offer."""
    offers = [follower.propose() for follower in followers]
    mean_F = torch.cat(
        [torch.stack([offer.sent(index) for offer in offers]).mean(dim=0) for index in range(len(offers[0].pieces))]
    )
    for follower in followers:
        follower.follow(mean_F)
    return offers[0].size
