"""The backlog of SeedFlood: bundles that are not on the disk yet.

While the disk is full the node still hears and relays others, because neighbours have their bundles, too. Its own
bundles, statements that count them, and the next round to be measured are withheld.

A node that adopts a sum must have space for it. If not, it ends with 74, and catches up when it is started again.
"""

from collections.abc import Sequence

from seedflood.errors import DiskFullError
from seedflood.host.backlog import Backlog, divided
from seedflood.protocol.origin import OriginId
from seedflood.protocol.seedflood.messages import Bundle, Updates, Votes, payload_bytes
from seedflood.protocol.seedflood.statement import stated
from seedflood.protocol.swarm.messages import Member, Members, Message

GROUP_BUNDLES_MAX = 4096
"""The most bundles in one group. Usually a window ends the group, but a node that catches up closes no windows."""

GROUP_BYTES_MAX = 4 << 20
"""The most bytes of payloads in one group."""

UNSAVED_BUNDLES_MAX = 1 << 18
"""The most bundles that wait for space, about 100 MB in memory. Beyond that the node ends (exit code 74). After a
restart it pulls them again."""

UNSAVED_BYTES_MAX = 256 << 20
"""The most bytes of payloads that wait for space."""


class BundleBacklog(Backlog):
    """Also bundles since the last commit."""

    def __init__(self, origin: OriginId) -> None:
        super().__init__(origin)
        self.bundles: list[Bundle] = []
        self._own: set[Bundle] = set()
        self._bytes = 0

    @property
    def is_large(self) -> bool:
        """Is the group so large that it must end now?"""
        return len(self.bundles) >= GROUP_BUNDLES_MAX or self._bytes >= GROUP_BYTES_MAX

    @property
    def unwritten(self) -> list[Bundle]:
        """The bundles that are not even in an open group of the journal, because the disk is full."""
        return self.bundles if self.is_stuck else []

    @property
    def first_unsaved(self) -> int | None:
        """Our first step that is not on the disk, while the disk is full; else None."""
        return min((bundle.first_covered for bundle in self._own), default=None) if self.is_stuck else None

    def add_bundles(self, bundles: Sequence[Bundle], *, is_durable: bool) -> None:
        """Takes bundles that are to be written. Raises DiskFullError if too many wait for space."""
        self.bundles += bundles
        if is_durable:
            self._own.update(bundle for bundle in bundles if bundle.origin == self._origin)
        self._bytes += payload_bytes(bundles)
        if len(self.bundles) > UNSAVED_BUNDLES_MAX or self._bytes > UNSAVED_BYTES_MAX:
            raise DiskFullError("the disk was full for too long; free some space and restart.")

    def clear(self) -> None:
        """Forgets everything, because it was written."""
        super().clear()
        self.bundles.clear()
        self._own.clear()
        self._bytes = 0

    def _divide(self, message: Message) -> tuple[Message | None, Message | None]:
        """Our own bundles wait that are not on the disk yet, and all our votes: the last one may not be there."""
        match message:
            case Updates(bundles):
                return divided(Updates, bundles, self._own.__contains__)
            case Votes(votes):
                return divided(Votes, votes, lambda vote: vote.origin == self._origin)
            case Members():
                return super()._divide(message)
        return message, None

    def is_early(self, member: Member) -> bool:
        """Is it our own statement, and does it count steps that are not on the disk yet?"""
        first = self.first_unsaved
        return member.origin == self._origin and first is not None and stated(member).said_before > first
