"""What delay and round length the measured hops call for.

With `delay = 0` a round takes its own work and then the flight across the graph. With `delay = D` the windows of D
rounds may be on their way meanwhile, so nobody waits once D rounds take as long as the flight. Both more rounds on
their way and longer ones do it; whoever measures with older weights learns a little less per step, so one long round is
named first. Adam goes its full rate along what older weights told, and learned little with a delay where rounds of four
steps without one cost no steps (benchmarks/RESULTS.md): it is told of such rounds and of larger batches alone.
"""

import math
from dataclasses import dataclass

LOCAL_STEPS_MAX = 64
DELAY_MAX = 64
ADAM_LOCAL_STEPS_MAX = 4

UTILISATION = 0.8
"""Nodes that compute so much of their time need no advice."""


@dataclass(frozen=True, slots=True)
class Advice:
    """What would be enough: local_steps with `delay = 1`, delay with the run's own local_steps; None: nothing allowed.

    utilisation: the share of its time that a node can compute at most, as the run is set. bears_delay: if not, rounds
    of local_steps are meant with `delay = 0`, and do not suffice alone.
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
    """hop_seconds: of one way between neighbours. step_seconds: of measuring. None: there is nothing to gain.

    Adam with a delay is advised even if it never waits.
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
