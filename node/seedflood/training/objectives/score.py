"""What an objective measures of a batch, as sums, so that a batch may be measured in pieces.

Shapes: P variants of the parameters that the batch stands for: 1, or more during a probe. Then the batch is there once
per variant, one copy below the other.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, slots=True)
class Score:
    """Sums over a batch, per variant.

    sums: (P,) each, by the name of the figure. count_P: what they are divided by, int64. minimised: the figure that
    training brings down.
    """

    sums: Mapping[str, Tensor]
    count_P: Tensor
    minimised: str

    def __add__(self, other: "Score") -> "Score":
        assert self.minimised == other.minimised, "scores of two objectives"
        sums = {name: sum_P + other.sums[name] for name, sum_P in self.sums.items()}
        return Score(sums, self.count_P + other.count_P, self.minimised)

    @property
    def minimised_sums(self) -> Tensor:
        """The sums that training brings down, (P,) float64; gradients flow through them."""
        return self.sums[self.minimised]

    def values(self) -> list[float]:
        """Of each variant, the mean of the figure that training brings down."""
        sums_P = self.minimised_sums.detach()
        return [float(total / count) for total, count in zip(sums_P, self.count_P, strict=True)]

    def means(self) -> dict[str, float]:
        """Every figure of the first variant; 0 if nothing was counted."""
        count = max(1, int(self.count_P[0]))
        return {name: float(sum_P[0].detach()) / count for name, sum_P in self.sums.items()}
