"""Spans: the updates of a line of the event log, with consecutive steps of an origin as one span.

They are written as JSON: `[[origin, first step, last step], ...]`, with a fourth number if the origin skipped that many
steps right before. In a busy swarm this is most of the event log's cost. So the loops are plain, and a frame that goes
to several neighbours is spelled once.
"""

from collections.abc import Iterable, Sequence
from functools import lru_cache

from seedflood.operations.eventlog import Spelled
from seedflood.protocol.frontier import Held
from seedflood.protocol.origin import ORIGINS_REMEMBERED, OriginId, fingerprint
from seedflood.protocol.seedflood.messages import Bundle, Update

_name = lru_cache(maxsize=ORIGINS_REMEMBERED)(fingerprint)


class BundleSpans:
    """Spells bundles in order of arrival, and caches the last result for the same bundles."""

    def __init__(self) -> None:
        self._bundles: Sequence[Bundle] = ()
        self._spelled = Spelled("[]")

    def __call__(self, bundles: Sequence[Bundle]) -> Spelled:
        bundles = tuple(bundles)
        if bundles != self._bundles:  # fast: identities are compared first, and forwarding passes the same objects on
            self._bundles, self._spelled = bundles, spell_bundles(bundles)
        return self._spelled


def spell_bundles(bundles: Iterable[Bundle]) -> Spelled:
    """The spans of bundles, in order of arrival."""
    spans: list[str] = []
    origin: OriginId = -1
    first = last = skipped = -2
    for bundle in bundles:
        step = bundle.step
        if bundle.origin == origin and step == last + 1 and not bundle.skipped:
            last = step + len(bundle.probes) - 1
            continue
        if origin >= 0:
            spans.append(_spell(origin, first, last, skipped))
        origin, first, last, skipped = bundle.origin, step, step + len(bundle.probes) - 1, bundle.skipped
    if origin >= 0:
        spans.append(_spell(origin, first, last, skipped))
    return Spelled(f"[{','.join(spans)}]")


def spell_updates(updates: Iterable[Update]) -> Spelled:
    """The spans of updates, in the given order. In a window the updates of a bundle follow each other."""
    spans: list[str] = []
    previous: OriginId = -1
    first = last = -2
    for origin, step, _ in updates:
        if origin == previous and step == last + 1:
            last = step
            continue
        if previous >= 0:
            spans.append(f'["{_name(previous)}",{first},{last}]')
        previous, first, last = origin, step, step
    if previous >= 0:
        spans.append(f'["{_name(previous)}",{first},{last}]')
    return Spelled(f"[{','.join(spans)}]")


def spell_frontier(frontier: Iterable[Held]) -> Spelled:
    spans: list[str] = []
    for held in frontier:
        ranges = [(0, held.mark - 1), *held.beyond] if held.mark else held.beyond
        spans += (_spell(held.origin, first, last, 0) for first, last in ranges)
    return Spelled(f"[{','.join(spans)}]")


def _spell(origin: OriginId, first: int, last: int, skipped: int) -> str:
    return f'["{_name(origin)}",{first},{last},{skipped}]' if skipped else f'["{_name(origin)}",{first},{last}]'
