"""Advice on delay and round length, from the measured hops.

With `delay = 0` a round takes as long as its own work plus the flight of updates across the graph. With `delay = D` the
windows of D rounds may be open meanwhile, so nobody waits if D rounds take as long as the flight. Longer rounds help as
much as a longer delay. A step learns a little less if it is measured with older weights, so one long round is advised
first. Adam takes steps of full size even along updates from older weights. With a delay it learned little, while rounds
of four steps without a delay cost no extra steps (benchmarks/RESULTS.md). So with Adam only such rounds and larger
batches are advised.
"""

import math
from dataclasses import dataclass

LOCAL_STEPS_MAX = 64
DELAY_MAX = 64
ADAM_LOCAL_STEPS_MAX = 4

UTILISATION = 0.8
"""A node that computes for at least this share of its time needs no advice."""


@dataclass(frozen=True, slots=True)
class Advice:
    """What would be enough. local_steps: with `delay = 1`. delay: with the run's own local_steps. None: no allowed
    value is enough.

    utilisation: the largest share of its time in which a node can compute, with the present settings. bears_delay:
    False for Adam; then local_steps is for `delay = 0`, and is not enough alone.
    """

    utilisation: float
    local_steps: int | None
    delay: int | None
    bears_delay: bool = True

    def sentence(self) -> str:
        ways = []
        if not self.bears_delay:
            return "delay = 0 with larger batches" + (
                f" and local_steps = {self.local_steps}" if self.local_steps else ""
            )
        if self.local_steps is not None and self.delay != 1:  # else rounds are long enough as they are
            ways.append(f"delay = 1 with local_steps = {self.local_steps}")
        if self.delay is not None:
            ways.append(f"delay = {self.delay}")
        return " or ".join(ways) or "larger batches"


def advise(
    *,
    hop_seconds: float,
    diameter: int,
    step_seconds: float,
    local_steps: int,
    delay: int,
    optimizer: str = "sgd",
) -> Advice | None:
    """hop_seconds: one way between neighbours. step_seconds: to measure a step. None if there is nothing to gain.

    Adam with a delay gets advice even if it never waits.
    """
    flight = hop_seconds * diameter
    work = step_seconds * local_steps
    if work <= 0:
        return None
    utilisation = min(1.0, work * (delay + 1) / (work + flight))
    is_harmful = optimizer == "adam" and delay > 0
    if utilisation >= UTILISATION and not is_harmful:
        return None
    share = round(utilisation, 3)
    if optimizer == "adam":
        is_short = local_steps < ADAM_LOCAL_STEPS_MAX
        return Advice(share, ADAM_LOCAL_STEPS_MAX if is_short else None, None, bears_delay=False)
    longer = max(local_steps, math.ceil(flight / step_seconds))
    deeper = max(1, math.ceil(flight / work))
    return Advice(share, longer if longer <= LOCAL_STEPS_MAX else None, deeper if deeper <= DELAY_MAX else None)
