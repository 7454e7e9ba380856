"""Reads a journal for the model: at start all but the last rounds, for a rebuild everything that counts as applied.

A journal may be long, so it is never held in memory. Only bundles that wait for their windows are, some rounds of each
origin. The rest is read page by page while the node works, and the model gets each page before the next one is read.
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
"""How many bundles are read at once, which takes about 5 ms."""


def take_stock(
    journal: Journal,
    members: Iterable[Member],
    origin: OriginId,
    rules: Rules,
    *,
    waiting_rounds: int = WAITING_ROUNDS,
) -> tuple[dict[int, Frontier], list[Bundle], Iterable[ClosedEpoch], set[OriginId]]:
    """Divides the content of a journal at start: (what is to be applied at once, by epoch; bundles that wait for their
    windows; sums; origins that declare steps as skipped for which they also published updates)."""
    inventory = journal.inventory()
    bundles = inventory.of_bundles()
    early = bundles.below(settled_ends(bundles, members, origin, rules, waiting_rounds))
    contradicting, sums = inventory.contradictions(), inventory.of_sums()
    waiting = _beyond(journal, joined([early, sums]))
    settled = inventory.settled(waiting)
    while contradicting and len(more := _beyond(journal, joined([*settled.values(), sums]))) > len(waiting):
        waiting, settled = more, inventory.settled(more)  # a waiting bundle skips a step for which others have updates
    closed: Iterable[ClosedEpoch] = journal.closed_epochs()
    if inventory.digests.keys() == inventory.sums.keys():  # saves unpacking all sums on the event loop
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
    """The updates of all bundles that the frontier `applied` covers, page by page: from the disk, and at last from the
    backlog. unwritten: the bundles of the backlog. read: called with the bundles of each page. contradicting: origins
    that may declare steps as skipped for which they also published updates.

    The node works meanwhile. Groups may be rolled back and written again, but no update comes twice.
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
