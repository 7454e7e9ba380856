"""What nodes that train by SeedFlood say to each other: bundles of updates, digests, sums of epochs.

Bundles (`bundles`) and votes are the same bytes wherever they are signed, sent and kept.

docs/explanation/consensus.md says what follows from these messages.
"""

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple

from seedflood.errors import check
from seedflood.protocol.frontier import Held
from seedflood.protocol.origin import STEP_MAX, OriginId
from seedflood.protocol.seedflood.bundles import Bundle
from seedflood.protocol.swarm.messages import AlgorithmMessage

EPOCH_PART_BYTES = 64 << 10
"""How much of a sum comes in one part of an answer."""

VOTES_MAX = 4096
"""The most votes in one message, and in a certificate: 300 KB if they are equal."""

_BALLOT = struct.Struct(">QQ32s32sH")
_BALLOT_COUNT = struct.Struct(">H")
_VOTER = struct.Struct(">Q64s")


class SeedFloodMessage(AlgorithmMessage):
    """Any of these. Most say what everybody may compute, or what others have signed."""

    __slots__ = ()

    def is_of(self, origin: OriginId) -> bool:
        return False


@dataclass(frozen=True, slots=True)
class FrontierDigest(SeedFloodMessage):
    """Sent every few seconds: 32 bytes that are equal on two nodes if they hold the same updates. Else they differ,
    unless a liar has searched for signatures whose sums agree.

    before: only the steps below it count, so that bundles in flight do not look like a difference. is_complete: the
    sender needs nothing more for this run. members_digest: of the ages of all statements that the sender knows.
    """

    frontier_digest: bytes
    before: int = STEP_MAX
    is_complete: bool = False
    members_digest: bytes = b""


@dataclass(frozen=True, slots=True)
class ReplicaDigest(SeedFloodMessage):
    """With exactly the updates of this frontier applied, the sender's coefficients had this digest. 32 bytes each."""

    frontier_digest: bytes
    replica_digest: bytes


@dataclass(frozen=True, slots=True)
class Standing(SeedFloodMessage):
    """The same with the whole frontier, at the end of a pull: a node that catches up can apply exactly these updates,
    and compare digests."""

    frontier: tuple[Held, ...]
    replica_digest: bytes


class EpochDigest(NamedTuple):
    """The digests of an epoch's sum: of the steps that its sum covers, and of its coefficients. 32 bytes each."""

    frontier_digest: bytes
    sum_digest: bytes


class Vote(NamedTuple):
    """What an origin attests of an epoch that is over (`certificates`). digests: of its sum. serial: of the roster that
    says who else votes; 0 in open runs. signature: 64 bytes."""

    origin: OriginId
    epoch: int
    digests: EpochDigest
    signature: bytes = b""
    serial: int = 0

    @property
    def ballot(self) -> bytes:
        """What is the same in equal votes: u64 epoch, u64 serial (big-endian), and the digests."""
        return struct.pack(">QQ", self.epoch, self.serial) + b"".join(self.digests)

    def signed_bytes(self, run_id: bytes, public_key: bytes) -> bytes:
        """What the signature covers. run_id and public_key: 32 bytes each."""
        return b"".join((b"seedflood vote 2\0", run_id, public_key, self.ballot))


def pack_votes(votes: Iterable[Vote]) -> bytes:
    """Votes as they are sent and kept. Equal ones that follow each other share a ballot: it, u16 how many they are, and
    of each u64 origin (big-endian) and the signature."""
    parts = []
    for ballot, equal in groupby(votes, lambda vote: vote.ballot):
        voters = [_VOTER.pack(vote.origin, vote.signature) for vote in equal]
        parts += [ballot, _BALLOT_COUNT.pack(len(voters)), *voters]
    return b"".join(parts)


def read_votes(data: bytes, votes_max: int = VOTES_MAX) -> tuple[Vote, ...]:
    """Undoes `pack_votes`. Raises PeerError for bytes that it does not make, and for more than so many votes."""
    votes: list[Vote] = []
    at = 0
    while at < len(data):
        check(at + _BALLOT.size <= len(data), "a ballot is cut off", "columns")
        epoch, serial, frontier_digest, sum_digest, count = _BALLOT.unpack_from(data, at)
        at += _BALLOT.size
        end = at + count * _VOTER.size
        check(count > 0 and end <= len(data), "votes are cut off", "columns")
        check(len(votes) + count <= votes_max, f"more than {votes_max} votes")
        check(epoch <= STEP_MAX and serial <= STEP_MAX, f"an epoch or a serial is beyond {STEP_MAX}")
        digests = EpochDigest(frontier_digest, sum_digest)
        voters = _VOTER.iter_unpack(data[at:end])
        votes += [Vote(origin, epoch, digests, signature, serial) for origin, signature in voters]
        at = end
    return tuple(votes)


@dataclass(frozen=True, slots=True)
class Votes(SeedFloodMessage):
    """Votes of any hosts on any epochs."""

    votes: tuple[Vote, ...]

    def is_of(self, origin: OriginId) -> bool:
        return any(vote.origin == origin for vote in self.votes)


@dataclass(frozen=True, slots=True)
class ClosedEpoch(SeedFloodMessage):
    """The sum of an epoch's updates, and which updates these are: part of the answer to a pull.

    frontier: the steps covered by the bundles of this epoch; a bundle belongs to the epoch of its `step`. coefficients:
    the integers of `Replica.sum_epoch`, packed by zlib. sum_digest: SHA-256 of these integers, if it was already taken
    from our own journal; then they may be left out. It never comes from the network. certificate: equal votes
    for this sum, enough of them.
    """

    epoch: int
    frontier: tuple[Held, ...]
    coefficients: bytes
    sum_digest: bytes = b""
    certificate: tuple[Vote, ...] = ()


@dataclass(frozen=True, slots=True)
class BlockDigests(SeedFloodMessage):
    """What the sender holds, by blocks of steps (`contents`): sent when replicas differ at equal frontiers.

    blocks: (origin, epoch, number of the block, how many bundles, the sum of their fingerprints).
    """

    blocks: tuple[tuple[OriginId, int, int, int, bytes], ...]


@dataclass(frozen=True, slots=True)
class Equivocation(SeedFloodMessage):
    """Two signed bundles of one origin that contradict each other: the proof that it lies (`ends`)."""

    one: Bundle
    other: Bundle

    @property
    def origin(self) -> OriginId:
        return self.one.origin

    @property
    def end(self) -> int:
        """The first step that either covers: from here on nothing of the origin counts."""
        return min(self.one.first_covered, self.other.first_covered)
