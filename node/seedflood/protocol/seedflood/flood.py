"""Flooding: every new bundle goes once to every neighbour that is not known to hold it.

There are three rules: never send a bundle back to where it came from, never send it twice over one link, and never send
old ones to a neighbour that reconnects. Only new bundles are spread, and the node's own frontier tells which are new,
so the second rule needs nothing here. The third needs what the neighbour said in its hello. Frontiers per neighbour
were tried: they took a third of a relay's time, and saved nothing.

This is for speed. A full queue or a broken link may lose what was sent here; repair (`donors`) makes sure that it
arrives.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from seedflood.protocol.frontier import Frontier, Held
from seedflood.protocol.origin import OriginId
from seedflood.protocol.seedflood.bundles import Bundle, Updates, cut_bundles


@dataclass(slots=True)
class _Queue:
    """For one neighbour. held: what it held when we linked; nothing in it is beyond held_last."""

    held: Frontier
    held_last: int
    updates: list[Updates] = field(default_factory=list)

    def offer(self, updates: Updates, first: int) -> None:
        """Queues the bundles that the neighbour did not hold. first: the least step among them."""
        if first <= self.held_last:
            holds = self.held.holds
            updates = Updates(tuple([bundle for bundle in updates.bundles if not holds(*bundle.span)]))
        if updates.bundles:
            self.updates.append(updates)


class Flood:
    """The bundles that are on their way to each neighbour."""

    def __init__(self) -> None:
        self._queues: dict[OriginId, _Queue] = {}

    def connect(self, peer: OriginId, frontier: Iterable[Held]) -> None:
        """The peer is linked. frontier: what it held when it said hello."""
        held = Frontier(frontier)
        self._queues[peer] = _Queue(held, max(map(held.last, held.origins), default=-1))

    def disconnect(self, peer: OriginId) -> None:
        self._queues.pop(peer, None)

    def spread(self, bundles: Sequence[Bundle], source: OriginId | None = None) -> None:
        """Queues news for every neighbour but its source: the same batches for all of them."""
        for updates, first in _batches(bundles):
            for peer, queue in self._queues.items():
                if peer != source:
                    queue.offer(updates, first)

    def offer(self, peer: OriginId, bundles: Sequence[Bundle]) -> None:
        """Queues what a neighbour that has just linked does not hold."""
        for updates, first in _batches(bundles):
            self._queues[peer].offer(updates, first)

    def take(self, peer: OriginId) -> list[Updates]:
        """Takes what is queued for a neighbour."""
        queue = self._queues[peer]
        updates, queue.updates = queue.updates, []
        return updates


def _batches(bundles: Sequence[Bundle]) -> Iterator[tuple[Updates, int]]:
    """Batches of the bundles, each with the first step measured in it: one batch, unless payloads fill more than a
    frame."""
    for part in cut_bundles(bundles, len(bundles) or 1):
        yield Updates(part), min([bundle.step for bundle in part])
