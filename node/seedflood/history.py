"""What a journal holds, read for the model: at start all but the last rounds, for a rebuild all that counts as applied.

A journal may be long, so nothing here holds it in memory: what waits for its window is some rounds of each origin, the
rest is read page by page while the node is at work, and each page goes to the model before the next is read.
"""

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice

from seedflood.protocol.frontier import Frontier
from seedflood.protocol.messages import Bundle, ClosedEpoch, Member, OriginId, Update
from seedflood.protocol.opening import WAITING_ROUNDS, joined, settled_ends
from seedflood.protocol.rules import Rules
from seedflood.seams import Journal

PAGE_BUNDLES = 1024
"""Read at once, some 5 ms."""


def take_stock(
    journal: Journal,
    members: Iterable[Member],
    origin: OriginId,
    rules: Rules,
    *,
    waiting_rounds: int = WAITING_ROUNDS,
) -> tuple[dict[int, Frontier], list[Bundle], Iterable[ClosedEpoch]]:
    """At start: (by epoch what is to be applied at once, the bundles that wait for their windows, the sums)."""
    inventory = journal.inventory()
    bundles = inventory.of_bundles()
    early = bundles.below(settled_ends(bundles, members, origin, rules, waiting_rounds))
    found = journal.read_missing(joined([early, inventory.of_sums()]).held(), PAGE_BUNDLES)
    waiting = [bundle for batch in found if not isinstance(batch, ClosedEpoch) for bundle in batch]
    closed: Iterable[ClosedEpoch] = journal.closed_epochs()
    if inventory.digests.keys() == inventory.sums.keys():  # to unpack them all would take the loop a while
        closed = [ClosedEpoch(epoch, held, b"", inventory.digests[epoch]) for epoch, held in inventory.sums.items()]
    return inventory.settled(waiting), waiting, closed


def pages(
    journal: Journal,
    applied: Frontier,
    unwritten: Callable[[], Sequence[Bundle]],
    read: Callable[[Sequence[Bundle]], None] | None = None,
) -> Iterator[list[Update]]:
    """The updates of all bundles that this frontier covers, from the disk and, in the end, what waits for it. read: is
    told of the bundles.

    The node goes on meanwhile: groups may be undone and written again, and nothing is told twice.
    """
    told = Frontier(ranges_max=sys.maxsize)

    def updates(bundles: Sequence[Bundle]) -> list[Update]:
        news = [one for one in bundles if applied.holds(*one.span) and told.add_new(*one.span)]
        if read is not None:
            read(news)
        return [update for bundle in news for update in bundle.updates()]

    bundles = journal.replay()
    while page := list(islice(bundles, PAGE_BUNDLES)):
        yield updates(page)
    yield updates(unwritten())
