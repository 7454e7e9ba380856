"""Digests of blocks as columns."""

from collections.abc import Sequence

from seedflood.errors import check
from seedflood.protocol.seedflood.contents import BLOCKS_SENT_MAX, FINGERPRINTS_BYTES
from seedflood.protocol.seedflood.messages import BlockDigests
from seedflood.wire import flood_pb2 as pb


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
