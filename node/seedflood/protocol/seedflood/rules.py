"""What all nodes of a SeedFlood run agree on."""

from dataclasses import dataclass
from typing import Literal

from seedflood.errors import ConfigError
from seedflood.protocol.seedflood.form import Form
from seedflood.protocol.seedflood.messages import BUNDLE_BYTES_MAX
from seedflood.protocol.seedflood.payload import PAIRS, Telling
from seedflood.protocol.seedflood.turns import Turns
from seedflood.protocol.swarm.rules import SwarmRules

WindowRule = Literal["strict", "bounded"]

AHEAD_BYTES, AHEAD_ROUNDS_MIN, AHEAD_ROUNDS_MAX = 16 << 20, 64, 4096
"""What one origin may have waiting in strict windows. Honest hosts are no further ahead than windows are open, but
hosts that left and returned quickly may have gone on in two halves."""

BUNDLE_BYTES = 400
"""What a bundle takes in memory, without its payloads."""


@dataclass(frozen=True, slots=True)
class Rules(SwarmRules):
    """From `[run]`.

    window: when a window closes (`window`). local_steps: steps per round. refresh_period: steps per epoch. epoch_bytes:
    size of an epoch's unpacked numbers, which follows from model and rank. left_bytes: of these, at the end, what an
    epoch leaves to the next one; the others are coefficients. telling: what is told of a step. delay: how many windows
    may be open while a round is measured. step_reach: the most that one step adds to a coefficient, whatever was told;
    None: what was told adds up. turn_rounds: of so many rounds an origin measures one (`turns`).

    Raises ConfigError if a bundle would be too large.
    """

    window: WindowRule = "strict"
    local_steps: int = 1
    refresh_period: int = 1000
    epoch_bytes: int = 0
    telling: Telling = PAIRS
    delay: int = 0
    step_reach: int | None = None
    left_bytes: int = 0
    turn_rounds: int = 1

    def __post_init__(self) -> None:
        if self.local_steps * self.telling.size > BUNDLE_BYTES_MAX:
            raise ConfigError(
                f"{self.local_steps} local steps of {self.telling.size:,} bytes each are more than a message holds "
                f"({BUNDLE_BYTES_MAX:,}): choose a lower rank or fewer local_steps."
            )

    @property
    def turns(self) -> Turns:
        return Turns(self.turn_rounds, self.local_steps, self.run_id)

    @property
    def form(self) -> bytes:
        return Form(self.epoch_bytes, self.left_bytes, self.telling, self.step_reach).pack()

    @property
    def ahead_steps(self) -> int:
        """In strict windows: how many steps ahead of a node a bundle may be and still be taken."""
        fitting = AHEAD_BYTES // (BUNDLE_BYTES + self.local_steps * self.telling.size)
        rounds = min(max(fitting, AHEAD_ROUNDS_MIN), AHEAD_ROUNDS_MAX)
        return (rounds + self.delay) * self.local_steps
