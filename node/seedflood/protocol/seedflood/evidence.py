"""Is a sum right? The signed statements of those who have closed its epoch tell.

A sum takes the place of hundreds of signed bundles, and is not signed itself. But every host states under its signature
how far it has closed, with two chains of digests over its closed epochs: of the bundles that the sums stand for, and of
the sums. Whoever knows the digests of single epochs can compute the chains and compare them with the statements. A
donor tells these digests before it sends sums. They are only its own word, until they lead to the chains that others
have signed.

A sum is adopted if more than half of those who take part, ourselves not counted, have signed it, perhaps before they
left. A sum that was compacted has been signed by all of them. A node whose patience is over, because it could join
nothing for so long, makes do with more signatures for the sum than against it, the donor's among them: after a disaster
the others may be waiting for this node. No sum is adopted that nobody has signed.

If the run states a quorum (`quorum`), the hosts that have signed a sum must be a quorum with ourselves.
"""

import hashlib
from collections.abc import Iterable

from seedflood.errors import PeerError
from seedflood.protocol.origin import STEP_MAX, OriginId
from seedflood.protocol.seedflood.messages import ClosedDigests, EpochDigest
from seedflood.protocol.seedflood.rules import Rules
from seedflood.protocol.seedflood.statement import stated
from seedflood.protocol.swarm.messages import Member


class Chain:
    """Digests of the epochs from the first on, and the digests of every beginning of that list."""

    def __init__(self) -> None:
        self.digests: list[EpochDigest] = []
        self._links: list[tuple[bytes, bytes]] = [(b"", b"")]

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


class Evidence:
    """The digests that one donor tells of its closed epochs, compared with the statements of all hosts."""

    def __init__(self, rules: Rules) -> None:
        self._period = rules.refresh_period
        self._epochs_max = rules.steps // rules.refresh_period
        self._chain = Chain()

    def take(self, told: ClosedDigests) -> None:
        """Raises PeerError if it does not follow what was told before."""
        if told.first == 0:
            self._chain = Chain()
        if told.first != len(self._chain) or told.first + len(told.digests) > self._epochs_max:
            raise PeerError("digests of closed epochs that do not follow each other", reason="order")
        for digest in told.digests:
            self._chain.append(digest)

    def digest(self, epoch: int) -> EpochDigest | None:
        """The digests that the donor told of the epoch's sum; None if it told none."""
        return self._chain.digests[epoch] if epoch < len(self._chain) else None

    def suffices(
        self, epoch: int, members: Iterable[Member], ours: OriginId, *, is_patient: bool, quorum: int | None = None
    ) -> bool:
        """Have enough hosts signed what the donor tells of this epoch? is_patient: more than half of all who take part,
        or a quorum together with us; else more than half of those who have closed it."""
        end = (epoch + 1) * self._period
        said = [(member, stated(member).closed) for member in members if member.origin != ours]
        voters = [(member, theirs) for member, theirs in said if takes_part(member) or theirs.before >= end]
        closed = [theirs for _, theirs in voters if end <= theirs.before <= len(self._chain) * self._period]
        agreeing = sum(theirs[1:] == self._chain.at(theirs.before // self._period) for theirs in closed)
        if is_patient and quorum is not None:
            return agreeing >= max(1, quorum - 1)
        return 2 * agreeing > (len(voters) if is_patient else len(closed))


def takes_part(member: Member) -> bool:
    """Has it said from which step on it takes part, and not left?"""
    return not member.has_left and member.first_step < STEP_MAX


def _linked(before: bytes, digest: bytes) -> bytes:
    return hashlib.sha256(b"seedflood closed 2\0" + before + digest).digest()
