"""What finds and proves lies: votes, digests of blocks, and proofs of equivocation."""

from collections.abc import Sequence
from itertools import groupby

from seedflood.protocol.origin import STEP_MAX
from seedflood.protocol.seedflood.contents import BLOCKS_SENT_MAX, FINGERPRINTS_BYTES
from seedflood.protocol.seedflood.messages import (
    VOTES_MAX,
    BlockDigests,
    EpochDigest,
    Equivocation,
    Vote,
)
from seedflood.wire import flood_pb2 as pb
from seedflood.wire.columns import SIGNATURE_BYTES, check, updates_from_wire

DIGEST_BYTES = 32


def votes_to_wire(votes: Sequence[Vote]) -> pb.Votes:
    groups = [(one, len(list(same))) for one, same in groupby(votes, lambda vote: (vote.epoch, vote.digests))]
    return pb.Votes(
        origins=[vote.origin for vote in votes],
        epochs=[epoch for (epoch, _), _ in groups],
        digests=b"".join(digest for (_, digests), _ in groups for digest in digests),
        counts=[count for _, count in groups] if len(groups) < len(votes) else (),
        signatures=b"".join(vote.signature for vote in votes),
        serials=[vote.serial for vote in votes] if any(vote.serial for vote in votes) else (),
    )


def votes_from_wire(wire: pb.Votes) -> tuple[Vote, ...]:
    count, two = len(wire.origins), 2 * DIGEST_BYTES
    check(count <= VOTES_MAX, f"more than {VOTES_MAX} votes")
    serials, counts = wire.serials or [0] * count, wire.counts or [1] * count
    is_even = len(wire.epochs) == len(counts) and len(wire.digests) == two * len(counts) and sum(counts) == count
    is_signed = len(wire.signatures) == SIGNATURE_BYTES * count and len(serials) == count
    check(is_even and is_signed and 0 not in counts, "the columns of votes differ in length", "columns")
    check(all(one <= STEP_MAX for one in (*wire.epochs, *serials)), f"an epoch or a serial is beyond {STEP_MAX}")
    halves = [wire.digests[k : k + DIGEST_BYTES] for k in range(0, two * len(counts), DIGEST_BYTES)]
    signatures = [wire.signatures[k : k + SIGNATURE_BYTES] for k in range(0, SIGNATURE_BYTES * count, SIGNATURE_BYTES)]
    groups = zip(wire.epochs, map(EpochDigest, halves[::2], halves[1::2]), strict=True)
    each = [one for one, votes in zip(groups, counts, strict=True) for _ in range(votes)]
    columns = zip(wire.origins, each, signatures, serials, strict=True)
    return tuple(Vote(origin, *what, signature, serial) for origin, what, signature, serial in columns)


def block_digests_to_wire(blocks: Sequence[tuple[int, int, int, int, bytes]]) -> pb.BlockDigests:
    origins, epochs, numbers, counts, fingerprints = zip(*blocks, strict=True) if blocks else ((),) * 5
    return pb.BlockDigests(
        origins=origins, epochs=epochs, numbers=numbers, counts=counts, fingerprints=b"".join(fingerprints)
    )


def block_digests_from_wire(wire: pb.BlockDigests) -> BlockDigests:
    columns = list(wire.origins), list(wire.epochs), list(wire.numbers), list(wire.counts)
    count, joined = len(columns[0]), wire.fingerprints
    check(count <= BLOCKS_SENT_MAX, f"digests of more than {BLOCKS_SENT_MAX} blocks")
    is_even = all(len(column) == count for column in columns) and len(joined) == FINGERPRINTS_BYTES * count
    check(is_even, "the columns of digests of blocks differ in length", "columns")
    sums = [joined[k : k + FINGERPRINTS_BYTES] for k in range(0, len(joined), FINGERPRINTS_BYTES)]
    return BlockDigests(tuple(zip(*columns, sums, strict=True)))


def equivocation_from_wire(wire: pb.Equivocation) -> Equivocation:
    bundles = updates_from_wire(wire.bundles)
    check(len(bundles) == 2, "a contradiction takes two bundles")
    one, other = bundles
    check(one.contradicts(other), "no contradiction")
    return Equivocation(one, other)
