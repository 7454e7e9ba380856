"""The size of a batch of bundles: their count, and their bytes if they carry payloads.

A pair is so small that the count bounds its bytes, too. Payloads are up to 256 KiB a bundle, so whatever holds or sends
bundles counts their bytes as well. All bundles of a batch carry the same kind, for `admission` lets in only what the
run tells. So the first bundle says which kind it is, and pairs cost nothing here.
"""

from collections.abc import Iterator, Sequence

from seedflood.protocol.seedflood.messages import Bundle

BATCH_BYTES = 64 << 10
"""Payloads that are sent, read or written at once: live frames wait 1 ms behind as much at 500 Mbit/s."""


def tells_payloads(bundles: Sequence[Bundle]) -> bool:
    """Do these bundles carry payloads, and not pairs?"""
    return bool(bundles) and bundles[0].probes[0].__class__ is bytes


def payload_bytes(bundles: Sequence[Bundle]) -> int:
    """The bytes of all payloads in these bundles; 0 if they carry pairs."""
    return sum([len(told) for bundle in bundles for told in bundle.probes]) if tells_payloads(bundles) else 0


def cut_bundles(
    bundles: Sequence[Bundle], count_max: int, bytes_max: int = BATCH_BYTES
) -> Iterator[tuple[Bundle, ...]]:
    """Cuts bundles into batches, in order: each of at most count_max bundles and bytes_max bytes of payloads, but of
    one bundle at least."""
    if not tells_payloads(bundles):
        for k in range(0, len(bundles), count_max):
            yield tuple(bundles[k : k + count_max])
        return
    part: list[Bundle] = []
    room = bytes_max
    for bundle in bundles:
        size = sum(map(len, bundle.probes))
        if part and (room < size or len(part) == count_max):
            yield tuple(part)
            part, room = [], bytes_max
        part.append(bundle)
        room -= size
    yield tuple(part)
