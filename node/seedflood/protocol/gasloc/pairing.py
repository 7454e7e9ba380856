"""One pair of hosts in one round, as one of its ends sees it.

offered   we have told what we have, and wait for the partner to come to the round
moving    both have offered: parameters travel in both directions
keeping   all of theirs is here, and is checked and put on the disk
held      it is on our disk; what is missing is the word that the pair mixes
doubt     the same, but we wait no more: if the word comes, our part is added late
mixed     both mix
skipped   neither does

The end with the smaller origin decides, once both ends hold what the other has sent. The other one is prepared from
`held` on, and cannot skip by itself any more. See `ledger`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from seedflood.protocol.gasloc.matching import weight
from seedflood.protocol.gasloc.messages import Offer
from seedflood.protocol.gasloc.orders import Share
from seedflood.protocol.origin import OriginId


class Stage(StrEnum):
    OFFERED = "offered"
    MOVING = "moving"
    KEEPING = "keeping"
    HELD = "held"
    DOUBT = "doubt"
    MIXED = "mixed"
    SKIPPED = "skipped"


TRANSITIONS: Mapping[Stage, tuple[Stage, ...]] = {
    Stage.OFFERED: (Stage.MOVING, Stage.SKIPPED),
    Stage.MOVING: (Stage.KEEPING, Stage.SKIPPED),
    Stage.KEEPING: (Stage.HELD, Stage.SKIPPED),
    Stage.HELD: (Stage.MIXED, Stage.DOUBT, Stage.SKIPPED),
    Stage.DOUBT: (Stage.MIXED, Stage.SKIPPED),
    Stage.MIXED: (),
    Stage.SKIPPED: (),
}

PENDING = (Stage.OFFERED, Stage.MOVING, Stage.KEEPING, Stage.HELD)


@dataclass(slots=True)
class Pairing:
    """deadline: when we wait no more. since: when it began. lost_at: since when the link is down. has_kept: the partner
    has told that it keeps ours. reason: why it was skipped."""

    partner: OriginId
    is_decider: bool
    ours: Offer
    since: float
    deadline: float
    stage: Stage = Stage.OFFERED
    theirs: Offer | None = None
    has_kept: bool = False
    lost_at: float | None = None
    reason: str = ""

    def enter(self, stage: Stage) -> None:
        """Raises AssertionError, having changed nothing, if the stage may not follow."""
        if stage not in TRANSITIONS[self.stage]:
            raise AssertionError(f"{stage.value} does not follow {self.stage.value}")
        self.stage = stage

    @property
    def round(self) -> int:
        return self.ours.round

    @property
    def is_pending(self) -> bool:
        """Does the round wait for it?"""
        return self.stage in PENDING

    @property
    def may_skip(self) -> bool:
        """May this end still say that the pair does not mix?"""
        return self.is_pending and (self.is_decider or self.stage is not Stage.HELD)

    @property
    def degree(self) -> int:
        """Of the pair: that of the end with more partners."""
        assert self.theirs is not None, "nothing is known of the partner yet"
        return max(self.ours.degree, self.theirs.degree)

    @property
    def share(self) -> Share:
        return Share(self.partner, weight(self.degree))
