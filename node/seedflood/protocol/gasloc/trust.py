"""How far neighbours are trusted with contents: what follows if one sends other bytes than it had offered, and when a
transfer is too slow.

All bytes of a content come from one neighbour, in one life of ours (`transfer.Sinks`). So if they have another digest
than was offered, it was that neighbour.
"""

from seedflood.protocol.origin import OriginId
from seedflood.protocol.swarm.outputs import Outbox, Outputs
from seedflood.protocol.swarm.presence import Presence

DISTRUST_ROUNDS = 4
"""For this many rounds nothing is taken from a neighbour that sent other bytes than it had offered, and for twice as
many each further time."""

STILL_SECONDS = 30.0
"""In this time a transfer must move on."""


class Trust:
    """One judgement of each neighbour, for exchanges and copies. failures: how often each of them failed us."""

    def __init__(self, presence: Presence, outbox: Outbox[Outputs]) -> None:
        self.failures: dict[OriginId, int] = {}
        self._until: dict[OriginId, tuple[int, int]] = {}
        """The round from which on its offers are taken again, and for how many rounds they were not."""
        self._presence = presence
        self._outbox = outbox

    def is_trusted(self, peer: OriginId, round_: int) -> bool:
        until, _ = self._until.get(peer, (0, 0))
        return round_ >= until

    def lied(self, peer: OriginId, round_: int) -> None:
        """It offers or sends something else than parameters of this run. This may be found long after it was received,
        so the link is not closed."""
        _, rounds = self._until.get(peer, (0, DISTRUST_ROUNDS // 2))
        self._until[peer] = (round_ + 2 * rounds, 2 * rounds)
        self.failed(peer)
        name = self._presence.membership.name(peer)
        self._outbox.log("a neighbour exchanges no parameters of this run", "warning", peer=name, round=round_)

    def failed(self, peer: OriginId) -> None:
        """It gave us nothing, or not fast enough."""
        self.failures[peer] = self.failures.get(peer, 0) + 1


class TransferDeadline:
    """Does a transfer move on? held: when the present span of time began. until: its end. least: how many more bytes
    must be held by then; those that are claimed, sent or asked for do not count."""

    def __init__(self, held: int, least: int, now: float) -> None:
        self.held = held
        self.least = least
        self.until = now + STILL_SECONDS

    def look(self, held: int, now: float) -> None:
        if held >= self.held + self.least:
            self.held, self.until = held, now + STILL_SECONDS
