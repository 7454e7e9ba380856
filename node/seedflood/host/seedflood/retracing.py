"""Finds a round of another host that can be measured again here, and what has to change in the replica for that.

Where windows are not strict, a bundle states what was applied when it was measured (`protocol/seedflood/applied`).
Updates of one epoch add up, so what was not applied there is taken off for one measurement, and what is not applied
here is put on: exactly, as integers. Earlier epochs are folded into the weights, so they have to be equal.
"""

from collections.abc import Sequence
from random import Random
from typing import NamedTuple

from seedflood.host.seedflood.seams import Journal
from seedflood.protocol.frontier import Span
from seedflood.protocol.origin import OriginId
from seedflood.protocol.seedflood.applied import Difference, compare_applied, unpack_applied
from seedflood.protocol.seedflood.messages import Bundle, Update
from seedflood.protocol.seedflood.node import Node
from seedflood.protocol.seedflood.outputs import Measure
from seedflood.protocol.seedflood.rounds import applied_before

LAST_ROUNDS = 4
"""Which of the last rounds of a host is audited is drawn, too: else of bundles that come together it could forge all
but the last."""

DIFFERENCE_MAX = 512
"""The most steps that are taken off, and that are put on. Reading one takes some 50 us of the loop."""


class PastRound(NamedTuple):
    """A round that was told by `bundle`, and how the replica differs from the one with which it was measured."""

    bundle: Bundle
    difference: Difference


def choose_past_round(node: Node, journal: Journal, origin: OriginId, order: Measure, draw: Random) -> PastRound | None:
    """One of the last rounds of the origin in the epoch of a measurement that is ordered; None if it cannot be measured
    again beside that one."""
    period = node.rules.refresh_period
    first = order.step - order.step % period
    last = min(node.frontier.last(origin), first + period - 1)
    earliest = last + 1 - order.count * draw.randint(1, LAST_ROUNDS)
    bundle = journal.following(origin, max(first, earliest))
    if bundle is None or bundle.step > last:
        return None
    before = applied_before(bundle.step, node.rules)
    applied = unpack_applied(bundle.applied, bundle.step, node.frontier, before)
    spans = None if applied is None else compare_applied(applied, node.applied, first, first + period)
    theirs, ours = (_updates_of(one, journal) for one in spans) if spans is not None else (None, None)
    return None if theirs is None or ours is None else PastRound(bundle, Difference(theirs, ours))


def _updates_of(spans: Sequence[Span], journal: Journal) -> tuple[Update, ...] | None:
    """The updates of these steps; None if we do not have them all, or if they are too many."""
    if sum(last - first + 1 for _, first, last in spans) > DIFFERENCE_MAX:
        return None
    found: list[Update] = []
    for origin, step, last in spans:
        while step <= last:
            bundle = journal.following(origin, step)
            if bundle is None or bundle.first_covered > step:
                return None
            found += bundle.updates() if bundle.step <= last else ()
            step = bundle.last + 1
    return tuple(found)
