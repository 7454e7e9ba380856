"""What a journal holds, read for the model: at start all but the last rounds, for a rebuild all that counts as applied.

A journal may be long, so nothing here holds it in memory: what waits for its window is some rounds of each origin, the
rest is read page by page while the node is at work, and each page goes to the model before the next is read.
"""

import sys
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from itertools import islice

from seedflood.host.seedflood.seams import Journal
from seedflood.protocol.frontier import Frontier
from seedflood.protocol.origin import OriginId
from seedflood.protocol.seedflood.messages import Bundle, ClosedEpoch, Update
from seedflood.protocol.seedflood.opening import WAITING_ROUNDS, joined, settled_ends
from seedflood.protocol.seedflood.rules import Rules
from seedflood.protocol.swarm.messages import Member

PAGE_BUNDLES = 1024
"""Read at once, some 5 ms."""


def take_stock(
    journal: Journal,
    members: Iterable[Member],
    origin: OriginId,
    rules: Rules,
    *,
    waiting_rounds: int = WAITING_ROUNDS,
) -> tuple[dict[int, Frontier], list[Bundle], Iterable[ClosedEpoch], set[OriginId]]:
    """At start: (by epoch what is to be applied at once, the bundles that wait for their windows, the sums, who skips
    in some bundles what it tells in others)."""
    inventory = journal.inventory()
    bundles = inventory.of_bundles()
    early = bundles.below(settled_ends(bundles, members, origin, rules, waiting_rounds))
    contradicting, sums = inventory.contradictions(), inventory.of_sums()
    waiting = _beyond(journal, joined([early, sums]))
    settled = inventory.settled(waiting)
    while contradicting and len(more := _beyond(journal, joined([*settled.values(), sums]))) > len(waiting):
        waiting, settled = more, inventory.settled(more)  # one that waits skips what others tell
    closed: Iterable[ClosedEpoch] = journal.closed_epochs()
    if inventory.digests.keys() == inventory.sums.keys():  # to unpack them all would take the loop a while
        closed = [ClosedEpoch(epoch, held, b"", inventory.digests[epoch]) for epoch, held in inventory.sums.items()]
    return settled, waiting, closed, contradicting


def _beyond(journal: Journal, held: Frontier) -> list[Bundle]:
    found = journal.read_missing(held.held(), PAGE_BUNDLES)
    return [bundle for batch in found if not isinstance(batch, ClosedEpoch) for bundle in batch]


def pages(
    journal: Journal,
    applied: Frontier,
    unwritten: Callable[[], Sequence[Bundle]],
    read: Callable[[Sequence[Bundle]], None] | None = None,
    contradicting: Container[OriginId] = (),
) -> Iterator[list[Update]]:
    """The updates of all bundles that this frontier covers, from the disk and, in the end, what waits for it. read: is
    told of the bundles. contradicting: of these origins what one bundle skips another may tell.

    The node goes on meanwhile: groups may be undone and written again, and nothing is told twice.
    """
    told = Frontier(ranges_max=sys.maxsize)

    def is_news(bundle: Bundle) -> bool:
        origin, first, last = bundle.span
        return told.add_new(origin, bundle.step if origin in contradicting else first, last)

    def updates(bundles: Sequence[Bundle]) -> list[Update]:
        news = [one for one in bundles if applied.holds(*one.span) and is_news(one)]
        if read is not None:
            read(news)
        return [update for bundle in news for update in bundle.updates()]

    bundles = journal.replay()
    while page := list(islice(bundles, PAGE_BUNDLES)):
        yield updates(page)
    yield updates(unwritten())
