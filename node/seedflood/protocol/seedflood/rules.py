"""What all nodes of a SeedFlood run agree on."""

from dataclasses import dataclass
from typing import Literal

from seedflood.errors import ConfigError
from seedflood.protocol.seedflood.bundles import BUNDLE_BYTES_MAX
from seedflood.protocol.seedflood.form import Form
from seedflood.protocol.seedflood.payload import PAIRS, Compression
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
    epoch leaves to the next one; the others are coefficients. compression: the encoding of updates. delay: how many
    windows may be open while a round is measured. step_reach: the most that one step adds to a coefficient, whatever
    was sent; None: what was sent adds up. turn_rounds: of so many rounds an origin measures one (`turns`).

    Raises ConfigError if a bundle would be too large.
    """

    window: WindowRule = "strict"
    local_steps: int = 1
    refresh_period: int = 1000
    epoch_bytes: int = 0
    compression: Compression = PAIRS
    delay: int = 0
    step_reach: int | None = None
    left_bytes: int = 0
    turn_rounds: int = 1

    def __post_init__(self) -> None:
        if self.local_steps * self.compression.size > BUNDLE_BYTES_MAX:
            raise ConfigError(
                f"{self.local_steps} local steps of {self.compression.size:,} bytes each are more than a message holds "
                f"({BUNDLE_BYTES_MAX:,}): choose a lower rank or fewer local_steps."
            )

    @property
    def turns(self) -> Turns:
        return Turns(self.turn_rounds, self.local_steps, self.run_id)

    @property
    def form(self) -> bytes:
        return Form(self.epoch_bytes, self.left_bytes, self.compression, self.step_reach).pack()

    @property
    def ahead_steps(self) -> int:
        """In strict windows: how many steps ahead of a node a bundle may be and still be taken."""
        fitting = AHEAD_BYTES // (BUNDLE_BYTES + self.local_steps * self.compression.size)
        rounds = min(max(fitting, AHEAD_ROUNDS_MIN), AHEAD_ROUNDS_MAX)
        return (rounds + self.delay) * self.local_steps

    def round_of(self, step: int) -> int:
        """The first step of the round that a step belongs to."""
        return step - step % self.local_steps

    def applied_before(self, step: int) -> int:
        """The step below which everything is applied when the round of `step` begins; at the end of the run, all
        steps."""
        return self.steps if step >= self.steps else max(0, step - self.delay * self.local_steps)
