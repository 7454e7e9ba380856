"""What finds and proves lies: digests of epochs and blocks, and proofs of equivocation."""

from collections.abc import Iterable, Sequence

from seedflood.protocol.origin import STEP_MAX
from seedflood.protocol.seedflood.inquiry import BLOCKS_TOLD_MAX, FINGERPRINTS_BYTES, do_contradict
from seedflood.protocol.seedflood.messages import (
    CLOSED_DIGESTS_MAX,
    BlockDigests,
    ClosedDigests,
    EpochDigest,
    Equivocation,
)
from seedflood.wire import flood_pb2 as pb
from seedflood.wire.columns import check, updates_from_wire

DIGEST_BYTES = 32


def closed_digests_from_wire(wire: pb.ClosedDigests) -> ClosedDigests:
    check(wire.first <= STEP_MAX, f"an epoch is beyond {STEP_MAX}")
    return ClosedDigests(wire.first, epoch_digests_from_wire(wire.digests))


def epoch_digests_to_wire(digests: Iterable[EpochDigest]) -> bytes:
    return b"".join(map(b"".join, digests))


def epoch_digests_from_wire(joined: bytes) -> tuple[EpochDigest, ...]:
    check(len(joined) % (2 * DIGEST_BYTES) == 0, "digests of epochs must be 64 bytes each", "columns")
    count = len(joined) // (2 * DIGEST_BYTES)
    check(count <= CLOSED_DIGESTS_MAX, f"digests of more than {CLOSED_DIGESTS_MAX} epochs")
    halves = [joined[k : k + DIGEST_BYTES] for k in range(0, len(joined), DIGEST_BYTES)]
    return tuple(map(EpochDigest, halves[::2], halves[1::2]))


def block_digests_to_wire(blocks: Sequence[tuple[int, int, int, int, bytes]]) -> pb.BlockDigests:
    origins, epochs, numbers, counts, fingerprints = zip(*blocks, strict=True) if blocks else ((),) * 5
    return pb.BlockDigests(
        origins=origins, epochs=epochs, numbers=numbers, counts=counts, fingerprints=b"".join(fingerprints)
    )


def block_digests_from_wire(wire: pb.BlockDigests) -> BlockDigests:
    columns = list(wire.origins), list(wire.epochs), list(wire.numbers), list(wire.counts)
    count, joined = len(columns[0]), wire.fingerprints
    check(count <= BLOCKS_TOLD_MAX, f"digests of more than {BLOCKS_TOLD_MAX} blocks")
    is_even = all(len(column) == count for column in columns) and len(joined) == FINGERPRINTS_BYTES * count
    check(is_even, "the columns of digests of blocks differ in length", "columns")
    sums = [joined[k : k + FINGERPRINTS_BYTES] for k in range(0, len(joined), FINGERPRINTS_BYTES)]
    return BlockDigests(tuple(zip(*columns, sums, strict=True)))


def equivocation_from_wire(wire: pb.Equivocation) -> Equivocation:
    bundles = updates_from_wire(wire.bundles)
    check(len(bundles) == 2, "a contradiction takes two bundles")
    kept, dropped = bundles
    check(do_contradict(kept, dropped), "no contradiction")
    return Equivocation(kept, dropped)
