"""Spans: the updates of a line of the event log, with consecutive steps of an origin as one span.

A span is [origin, first step, last step], with a fourth number if the origin skipped that many steps right before. In a
busy swarm they are most of the event log's cost, so those of a frame that goes to several neighbours are made once.
"""

from collections.abc import Iterable
from functools import lru_cache

from seedflood.protocol.frontier import Held
from seedflood.protocol.origin import ORIGINS_REMEMBERED, OriginId, fingerprint
from seedflood.protocol.seedflood.bundles import Bundle, Update

Span = list[str | int]

_name = lru_cache(maxsize=ORIGINS_REMEMBERED)(fingerprint)


def bundle_spans(bundles: Iterable[Bundle]) -> list[Span]:
    """In order of arrival."""
    return _joined((one.origin, one.step, one.last, one.skipped) for one in bundles)


frame_spans = lru_cache(maxsize=1)(bundle_spans)
"""The same of a tuple, which is remembered."""


def update_spans(updates: Iterable[Update]) -> list[Span]:
    """In the given order. In a window the updates of a bundle follow each other."""
    return _joined((origin, step, step, 0) for origin, step, _ in updates)


def frontier_spans(frontier: Iterable[Held]) -> list[Span]:
    ranges = ((one.origin, first, last) for one in frontier for first, last in ((0, one.mark - 1), *one.beyond))
    return _joined((origin, first, last, 0) for origin, first, last in ranges if first <= last)


def _joined(published: Iterable[tuple[OriginId, int, int, int]]) -> list[Span]:
    """published: (origin, first step, last step, steps skipped before)."""
    found: list[Span] = []
    following = None
    for origin, first, last, skipped in published:
        if (origin, first) == following and not skipped:
            found[-1][2] = last
        else:
            found.append([_name(origin), first, last, *([skipped] if skipped else ())])
        following = origin, last + 1
    return found
