"""Spans: which updates a line of the event log tells of, with consecutive steps of an origin as one."""

from collections.abc import Iterable

from seedflood.protocol.messages import Bundle, Held, OriginId, Update, fingerprint

Span = list[str | int]
"""[origin, first step, last step], and how many steps it skipped right before, if any."""


def spans_of_bundles(bundles: Iterable[Bundle]) -> list[Span]:
    """In order of arrival."""
    spans: list[Span] = []
    name, origin, last = "", None, -2
    for bundle in bundles:
        if bundle.origin == origin and bundle.step == last + 1:
            spans[-1][2] = last = bundle.last
            continue
        if bundle.origin != origin:
            name, origin = fingerprint(bundle.origin), bundle.origin
        last = bundle.last
        spans.append([name, bundle.step, last, bundle.skipped] if bundle.skipped else [name, bundle.step, last])
    return spans


def spans_of_updates(updates: Iterable[Update]) -> list[Span]:
    """Ordered by origin and step."""
    steps: dict[OriginId, list[int]] = {}
    for update in updates:
        steps.setdefault(update.origin, []).append(update.step)
    spans: list[Span] = []
    for origin, found in steps.items():
        name, last = fingerprint(origin), -2
        for step in sorted(found):
            if step == last + 1:
                spans[-1][2] = last = step
            else:
                last = step
                spans.append([name, step, step])
    return spans


def spans_of_frontier(frontier: Iterable[Held]) -> list[Span]:
    spans: list[Span] = []
    for held in frontier:
        name = fingerprint(held.origin)
        if held.mark:
            spans.append([name, 0, held.mark - 1])
        spans += ([name, first, last] for first, last in held.beyond)
    return spans
