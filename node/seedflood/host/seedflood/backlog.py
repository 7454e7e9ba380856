"""What SeedFlood keeps that is not on the disk yet: bundles.

While the disk is full the node goes on hearing and relaying others, whose bundles neighbours have, too. Its own ones,
and statements that count them, are withheld, and so is the round that it would measure next.
"""

from collections.abc import Sequence

from seedflood.errors import DiskFullError
from seedflood.host.backlog import Backlog
from seedflood.protocol.origin import OriginId
from seedflood.protocol.seedflood.batches import payload_bytes
from seedflood.protocol.seedflood.messages import Bundle, Told, Updates
from seedflood.protocol.seedflood.outputs import Measure
from seedflood.protocol.seedflood.statement import stated
from seedflood.protocol.swarm.messages import Member, Members, Message

GROUP_BUNDLES_MAX = 4096
"""A node that catches up closes no windows, but shall not keep everything in one open group."""

GROUP_BYTES_MAX = 4 << 20
"""Of payloads."""

UNSAVED_BUNDLES_MAX = 1 << 18
"""Some 100 MB in memory. Beyond it the node ends (74): a restart forgets them and pulls them again."""

UNSAVED_BYTES_MAX = 256 << 20
"""Of payloads."""

Probes = Sequence[Told]


class BundleBacklog(Backlog):
    """Bundles since the last commit, too. measure, published: what waits for space with them."""

    def __init__(self, origin: OriginId) -> None:
        super().__init__(origin)
        self.bundles: list[Bundle] = []
        self.measure: Measure | None = None
        self.published: tuple[int, Probes] | None = None
        self._own: set[Bundle] = set()
        self._bytes = 0

    @property
    def is_large(self) -> bool:
        """Is it time to end the group, whatever is done with it?"""
        return len(self.bundles) >= GROUP_BUNDLES_MAX or self._bytes >= GROUP_BYTES_MAX

    @property
    def unwritten(self) -> list[Bundle]:
        """What even a reader of the journal in this process does not find there."""
        return self.bundles if self.is_stuck else []

    @property
    def first_unsaved(self) -> int | None:
        """The first own step that is not kept."""
        return min((bundle.first_covered for bundle in self._own), default=None) if self.is_stuck else None

    def add_bundles(self, bundles: Sequence[Bundle], *, is_durable: bool) -> None:
        """Raises DiskFullError when there is too much to remember."""
        self.bundles += bundles
        if is_durable:
            self._own.update(bundle for bundle in bundles if bundle.origin == self._origin)
        self._bytes += payload_bytes(bundles)
        if len(self.bundles) > UNSAVED_BUNDLES_MAX or self._bytes > UNSAVED_BYTES_MAX:
            raise DiskFullError("the disk was full for too long; free some space and restart.")

    def clear(self) -> None:
        """Everything was written."""
        super().clear()
        self.bundles.clear()
        self._own.clear()
        self._bytes = 0

    def sift(self, peer: OriginId, message: Message) -> Message | None:
        """What of the message may be sent now; the rest is withheld."""
        if self.is_stuck and isinstance(message, Members):
            return self._sift_members(peer, message)
        if not (self.is_stuck and isinstance(message, Updates)):
            return message
        unsaved = tuple(bundle for bundle in message.bundles if bundle in self._own)
        if not unsaved:
            return message
        self._withheld.append((peer, Updates(unsaved)))
        others = tuple(bundle for bundle in message.bundles if bundle not in self._own)
        return Updates(others) if others else None

    def take_round(self) -> tuple[Measure | None, tuple[int, Probes] | None]:
        """There is space again: (what to measure, what to publish)."""
        waiting = self.measure, self.published
        self.measure = self.published = None
        return waiting

    def is_early(self, member: Member) -> bool:
        """A statement of ours that tells how far we have spoken shall not count what is not kept."""
        first = self.first_unsaved
        return member.origin == self._origin and first is not None and stated(member).said_before > first
