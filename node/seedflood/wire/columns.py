"""Bundles and frontiers, most of the traffic and of a journal: packed columns, which a few calls can parse."""

from collections.abc import Iterator, Sequence
from itertools import chain, islice

from seedflood.errors import PeerError
from seedflood.protocol.frontier import FRONTIER_ORIGINS_MAX, FRONTIER_RANGES_MAX, RANGES_MAX, Held, sendable
from seedflood.protocol.origin import STEP_MAX
from seedflood.protocol.seedflood.messages import (
    BUNDLE_BYTES_MAX,
    BUNDLE_UPDATES_MAX,
    LOSS_MAX,
    SCALAR_MAX,
    Bundle,
    UpdateValue,
    bundle_of,
    have_payloads,
)
from seedflood.wire import flood_pb2 as pb

FRAME_BUNDLES_MAX = 4096
"""The most bundles in a frame: 2.7 MiB with 64 updates in each."""

FRAME_PAYLOADS_BYTES_MAX = 1 << 20
"""The most bytes of payloads in a frame; each bundle takes 85 bytes more. Queues and answers make smaller frames."""

SIGNATURE_BYTES = 64


def check(is_right: bool, sentence: str, reason: str = "limit") -> None:
    if not is_right:
        raise PeerError(sentence, reason=reason)


def updates_to_wire(bundles: Sequence[Bundle]) -> pb.Updates:
    if not bundles:
        return pb.Updates()
    wire = values_to_wire(bundles)
    wire.origins.extend([bundle.origin for bundle in bundles])
    wire.steps.extend([bundle.step for bundle in bundles])
    wire.signatures = b"".join([bundle.signature for bundle in bundles])
    return wire


def values_to_wire(bundles: Sequence[Bundle]) -> pb.Updates:
    """The values of bundles, at least one. Whose they are, of which steps, and signatures are columns of a journal's
    rows, too."""
    _, _, probes, skipped, _ = zip(*bundles, strict=True)
    counts = list(map(len, probes))
    wire = pb.Updates(
        counts=counts if max(counts) != 1 else None,
        skipped=skipped if any(skipped) else None,
    )
    if have_payloads(bundles):
        wire.payloads.extend(chain.from_iterable(probes))
    else:
        losses, scalars = zip(*chain.from_iterable(probes), strict=True)
        wire.losses.extend(losses)
        wire.scalars.extend(scalars)
    return wire


def updates_from_wire(wire: pb.Updates) -> tuple[Bundle, ...]:
    n, steps, scalars = len(wire.origins), wire.steps[:], wire.scalars[:]
    check(n <= FRAME_BUNDLES_MAX, f"{n} bundles in a frame, more than {FRAME_BUNDLES_MAX}")
    check(len(wire.payloads) <= FRAME_BUNDLES_MAX * BUNDLE_UPDATES_MAX, "too many payloads in a frame")
    bundles = values_from_wire(wire.origins[:], steps, wire.signatures, wire)
    if not bundles:
        return bundles
    counts = wire.counts[:] or [1] * n
    check(min(counts) >= 1 and max(counts) <= BUNDLE_UPDATES_MAX, f"a bundle holds 1 to {BUNDLE_UPDATES_MAX} updates")
    check(not wire.skipped or all(map(int.__le__, wire.skipped, steps)), "a bundle covers steps below 0")
    check(max(map(int.__add__, steps, counts)) <= STEP_MAX + 1, f"a step is beyond {STEP_MAX}")
    if wire.payloads:
        sizes = [tuple(map(len, bundle.probes)) for bundle in bundles]
        check(all(map(all, sizes)), "a payload is empty")
        check(max(map(sum, sizes)) <= BUNDLE_BYTES_MAX, f"more than {BUNDLE_BYTES_MAX} bytes of payloads in a bundle")
    else:
        check(min(scalars) >= -SCALAR_MAX and max(scalars) <= SCALAR_MAX, "a scalar is out of range")
        check(max(wire.losses) <= LOSS_MAX, "a loss is out of range")
    return bundles


def values_from_wire(origins: list[int], steps: list[int], joined: bytes, wire: pb.Updates) -> tuple[Bundle, ...]:
    """Undoes `values_to_wire`. origins, steps, joined: of each bundle, its origin, its first step and its signature.

    That the columns fit each other is checked, and no range: a journal's were checked when they came."""
    n, counts, skipped = len(origins), wire.counts[:], wire.skipped[:]
    values: Sequence[UpdateValue] | Iterator[UpdateValue]
    if wire.payloads:
        check(not wire.losses and not wire.scalars, "a frame tells pairs and payloads", "columns")
        updates, values = len(wire.payloads), wire.payloads[:]
    else:
        check(len(wire.losses) == len(wire.scalars), "the columns of updates differ in length", "columns")
        updates, values = len(wire.losses), zip(wire.losses[:], wire.scalars[:], strict=True)
    check(
        len(steps) == n == (len(counts) or n) == (len(skipped) or n)
        and len(joined) == SIGNATURE_BYTES * n
        and updates == (sum(counts) if counts else n),
        "the columns of updates differ in length",
        "columns",
    )
    in_turn = iter(values)
    probes = [tuple(islice(in_turn, count)) for count in counts] if counts else zip(in_turn)
    signatures = [joined[k : k + SIGNATURE_BYTES] for k in range(0, len(joined), SIGNATURE_BYTES)]
    return tuple(map(bundle_of, zip(origins, steps, probes, skipped or [0] * n, signatures, strict=True)))


def frontier_to_wire(frontier: Sequence[Held]) -> pb.Frontier:
    """A frontier for peers. It is cut to the size that every node accepts, so it may claim less than is held."""
    return exact_frontier_to_wire(sendable(frontier))


def exact_frontier_to_wire(frontier: Sequence[Held]) -> pb.Frontier:
    """A frontier that must not be cut. The caller makes sure that it `is_sendable`."""
    wire = pb.Frontier(origins=[held.origin for held in frontier], marks=[held.mark for held in frontier])
    if any(held.beyond for held in frontier):
        for held in frontier:
            end = held.mark
            for first, last in held.beyond:
                wire.ranges.extend((first - end, last - first))
                end = last + 1
            wire.range_counts.append(len(held.beyond))
    return wire


def frontier_from_wire(wire: pb.Frontier) -> tuple[Held, ...]:
    n = len(wire.origins)
    check(n <= FRONTIER_ORIGINS_MAX, f"{n} origins in a frontier, more than {FRONTIER_ORIGINS_MAX}")
    check(len(wire.ranges) <= 2 * FRONTIER_RANGES_MAX, f"more than {FRONTIER_RANGES_MAX} ranges in a frontier")
    check(max(wire.range_counts, default=0) <= RANGES_MAX, f"more than {RANGES_MAX} ranges of an origin")
    return exact_frontier_from_wire(wire)


def exact_frontier_from_wire(wire: pb.Frontier) -> tuple[Held, ...]:
    """A frontier of any size."""
    n = len(wire.origins)
    check(max(len(wire.marks), len(wire.range_counts)) <= n, "the columns of a frontier differ in length", "columns")
    origins, marks, ranges = list(wire.origins), list(wire.marks), list(wire.ranges)
    counts = list(wire.range_counts) or [0] * n
    check(
        len(marks) == len(counts) == n and len(ranges) == 2 * sum(counts),
        "the columns of a frontier differ in length",
        "columns",
    )
    check(len(set(origins)) == n, "a frontier names an origin twice")
    check(max(marks, default=0) <= STEP_MAX + 1, f"a mark is beyond {STEP_MAX}")
    numbers = iter(ranges)
    frontier = []
    for origin, mark, count in zip(origins, marks, counts, strict=True):
        beyond = []
        end = mark
        for _ in range(count):
            distance, more = next(numbers), next(numbers)
            check(distance > 0, "ranges of a frontier touch")
            beyond.append((end + distance, end + distance + more))
            end += distance + more + 1
        check(end <= STEP_MAX + 1, f"a range is beyond {STEP_MAX}")
        frontier.append(Held(origin, mark, tuple(beyond)))
    return tuple(frontier)
