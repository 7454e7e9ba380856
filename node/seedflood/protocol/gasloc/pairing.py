"""One pair of hosts in one round, as one of its ends sees it.

Each end mixes once it has all that the partner has offered. It then stays in the round until the partner has all of
ours, too, or until its deadline.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from seedflood.protocol.gasloc.matching import weight
from seedflood.protocol.gasloc.messages import Offer
from seedflood.protocol.gasloc.orders import Share
from seedflood.protocol.gasloc.transfer import Sending, Sink
from seedflood.protocol.lifecycle import follow
from seedflood.protocol.origin import OriginId


class PairStage(StrEnum):
    OFFERED = "offered"  # we have sent our offer; the partner has not reached the round yet
    MOVING = "moving"  # both have offered, and parameters are sent in both directions
    HELD = "held"  # we have all of theirs, and they may lack some of ours
    MIXED = "mixed"  # our end mixes
    SKIPPED = "skipped"  # our end does not mix


TRANSITIONS: Mapping[PairStage, tuple[PairStage, ...]] = {
    PairStage.OFFERED: (PairStage.MOVING, PairStage.SKIPPED),
    PairStage.MOVING: (PairStage.HELD, PairStage.SKIPPED),
    PairStage.HELD: (PairStage.MIXED, PairStage.SKIPPED),
    PairStage.MIXED: (),
    PairStage.SKIPPED: (),
}

PENDING = (PairStage.OFFERED, PairStage.MOVING, PairStage.HELD)


@dataclass(slots=True)
class Pairing:
    """sending: our parameters on their way to the partner. deadline: when waiting ends. since: when the pairing began.
    lost_at: since when the link is down. sink: where the partner's parameters are, once all are here."""

    partner: OriginId
    ours: Offer
    sending: Sending
    since: float
    deadline: float
    stage: PairStage = PairStage.OFFERED
    theirs: Offer | None = None
    sink: Sink | None = None
    lost_at: float | None = None

    def enter(self, stage: PairStage) -> None:
        """Raises AssertionError, having changed nothing, if the stage may not follow."""
        self.stage = follow(self.stage, stage, TRANSITIONS)

    @property
    def is_pending(self) -> bool:
        """Does the round wait for it?"""
        return self.stage in PENDING

    @property
    def share(self) -> Share:
        """What is mixed. The end with more partners gives the weight."""
        assert self.theirs is not None, "nothing is known of the partner yet"
        assert self.sink is not None, "not all of it is here"
        degree = max(self.ours.degree, self.theirs.degree)
        return Share(self.partner, weight(degree), self.theirs.digest, self.sink)
