"""Frontiers as packed columns, which a few calls can parse."""

from collections.abc import Sequence

from seedflood.errors import check
from seedflood.protocol.frontier import FRONTIER_ORIGINS_MAX, FRONTIER_RANGES_MAX, RANGES_MAX, Held, sendable
from seedflood.protocol.origin import STEP_MAX
from seedflood.wire import flood_pb2 as pb


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
