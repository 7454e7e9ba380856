"""A chain of digests over closed epochs: what a host states of all of them at once."""

import hashlib

from seedflood.protocol.seedflood.messages import EpochDigest


class Chain:
    """Digests of consecutive epochs, and the digests of every beginning of that list. before: these of all earlier
    epochs, unless the first epoch is the first of all."""

    def __init__(self, before: tuple[bytes, bytes] = (b"", b"")) -> None:
        self.digests: list[EpochDigest] = []
        self._links: list[tuple[bytes, bytes]] = [before]

    def __len__(self) -> int:
        return len(self.digests)

    def append(self, digest: EpochDigest) -> None:
        """The next epoch."""
        frontiers, sums = self._links[-1]
        self.digests.append(digest)
        self._links.append((_linked(frontiers, digest.frontier_digest), _linked(sums, digest.sum_digest)))

    def cut(self, count: int) -> None:
        """Forgets all but the first `count` epochs."""
        del self.digests[count:], self._links[count + 1 :]

    def at(self, count: int) -> tuple[bytes, bytes]:
        """What a host states that has closed the first `count` epochs: two digests of 32 bytes; both empty for none."""
        return self._links[count]


def _linked(before: bytes, digest: bytes) -> bytes:
    return hashlib.sha256(b"seedflood closed 2\0" + before + digest).digest()
