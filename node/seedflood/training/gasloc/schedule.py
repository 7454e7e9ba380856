"""The learning rate of a local step: linear warm-up, then a cosine that falls to a part of it.

It is a float, unlike SeedFlood's schedule: no two hosts have to agree on the last bit of a local step.
"""

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Schedule:
    """steps: of the whole run, warm-up included. floor: the factor at its end, and beyond; 1: it stays as it is."""

    warmup_steps: int
    steps: int
    floor: float = 0.1

    def factor(self, step: int) -> float:
        """The factor of the learning rate at a step. Steps count from 0."""
        if step < self.warmup_steps:
            return (step + 1) / (self.warmup_steps + 1)
        gone = min(1.0, (step - self.warmup_steps) / max(1, self.steps - self.warmup_steps))
        return self.floor + (1 - self.floor) * (1 + math.cos(math.pi * gone)) / 2
