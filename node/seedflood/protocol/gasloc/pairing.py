"""One pair of hosts in one round, as one of its ends sees it.

The end that comes first in the round's draw (`matching`) decides, once both ends hold what the other has sent. The
other end is prepared from `held` on, and can then no longer skip by itself. See `ledger`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from seedflood.protocol.gasloc.matching import weight
from seedflood.protocol.gasloc.messages import Offer
from seedflood.protocol.gasloc.orders import Share
from seedflood.protocol.lifecycle import follow
from seedflood.protocol.origin import OriginId


class PairStage(StrEnum):
    OFFERED = "offered"  # we have sent our offer; the partner has not reached the round yet
    MOVING = "moving"  # both have offered, and parameters are sent in both directions
    KEEPING = "keeping"  # all their bytes are here, and are checked and written to the disk
    HELD = "held"  # they are on our disk; the decision is still missing
    DOUBT = "doubt"  # the same, but the round went on without it; if the decision is to mix, our part is added late
    MIXED = "mixed"  # both ends mix
    SKIPPED = "skipped"  # neither end mixes


TRANSITIONS: Mapping[PairStage, tuple[PairStage, ...]] = {
    PairStage.OFFERED: (PairStage.MOVING, PairStage.SKIPPED),
    PairStage.MOVING: (PairStage.KEEPING, PairStage.SKIPPED),
    PairStage.KEEPING: (PairStage.HELD, PairStage.SKIPPED),
    PairStage.HELD: (PairStage.MIXED, PairStage.DOUBT, PairStage.SKIPPED),
    PairStage.DOUBT: (PairStage.MIXED, PairStage.SKIPPED),
    PairStage.MIXED: (),
    PairStage.SKIPPED: (),
}

PENDING = (PairStage.OFFERED, PairStage.MOVING, PairStage.KEEPING, PairStage.HELD)


@dataclass(slots=True)
class Pairing:
    """deadline: when waiting ends. since: when the pairing began. lost_at: since when the link is down. has_kept: the
    partner has said that our parameters are on its disk."""

    partner: OriginId
    is_decider: bool
    ours: Offer
    since: float
    deadline: float
    stage: PairStage = PairStage.OFFERED
    theirs: Offer | None = None
    has_kept: bool = False
    lost_at: float | None = None

    def enter(self, stage: PairStage) -> None:
        """Raises AssertionError, having changed nothing, if the stage may not follow."""
        self.stage = follow(self.stage, stage, TRANSITIONS)

    @property
    def is_pending(self) -> bool:
        """Does the round wait for it?"""
        return self.stage in PENDING

    @property
    def may_skip(self) -> bool:
        """May this end still say that the pair does not mix?"""
        return self.is_pending and (self.is_decider or self.stage is not PairStage.HELD)

    @property
    def degree(self) -> int:
        """The degree of the pair: of its end with more partners."""
        assert self.theirs is not None, "nothing is known of the partner yet"
        return max(self.ours.degree, self.theirs.degree)

    @property
    def share(self) -> Share:
        return Share(self.partner, weight(self.degree))
