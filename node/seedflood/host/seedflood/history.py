"""Reads a journal for the model: at start all but the last rounds, for a rebuild everything that counts as applied.

A journal may be long, so it is never held in memory. Only bundles that wait for their windows are, some rounds of each
origin. The rest is read page by page while the node works, and the model gets each page before the next one is read.
"""

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice

from seedflood.host.backlog import Backlog
from seedflood.host.seedflood.seams import Journal
from seedflood.protocol.frontier import Frontier
from seedflood.protocol.origin import OriginId
from seedflood.protocol.seedflood.bundles import Bundle, Update
from seedflood.protocol.seedflood.messages import ClosedEpoch
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
) -> tuple[dict[int, Frontier], list[Bundle], Iterable[ClosedEpoch]]:
    """Divides the content of a journal at start: (what is to be applied at once, by epoch; bundles that wait for their
    windows; sums)."""
    inventory = journal.inventory()
    bundles = inventory.of_bundles()
    early = bundles.below(settled_ends(bundles, members, origin, rules, waiting_rounds))
    beyond = journal.read_missing(joined([early, inventory.of_sums()]).held(), PAGE_BUNDLES)
    waiting = [bundle for batch in beyond if not isinstance(batch, ClosedEpoch) for bundle in batch]
    settled = inventory.settled(waiting)
    closed: Iterable[ClosedEpoch] = journal.closed_epochs()
    if inventory.digests.keys() == inventory.sums.keys():  # saves unpacking all sums on the event loop
        closed = [ClosedEpoch(epoch, held, b"", inventory.digests[epoch]) for epoch, held in inventory.sums.items()]
    return settled, waiting, closed


def pages(
    journal: Journal, backlog: Backlog, applied: Frontier, read: Callable[[Sequence[Bundle]], None] | None = None
) -> Iterator[list[Update]]:
    """The updates of all bundles that the frontier `applied` covers, page by page: from the disk, and at last from the
    backlog. read: called with the bundles of each page.

    The node works meanwhile. Groups may be rolled back and written again, but no update comes twice.
    """
    replayed = Frontier(ranges_max=sys.maxsize)

    def updates(bundles: Sequence[Bundle]) -> list[Update]:
        news = [one for one in bundles if applied.holds(*one.span) and replayed.add_new(*one.span)]
        if read is not None:
            read(news)
        return [update for bundle in news for update in bundle.updates()]

    bundles = journal.replay()
    while page := list(islice(bundles, PAGE_BUNDLES)):
        yield updates(page)
    yield updates(backlog.unwritten)
