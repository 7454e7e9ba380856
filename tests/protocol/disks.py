"""What is on a disk: the simplest journal that could be right."""

from seedflood.protocol.frontier import Frontier


class Disk:
    """bundles: in the order in which they were written; the first `durable` of them cannot be lost.

    closed: per epoch, the sum that stands for its bundles.
    """

    def __init__(self, refresh_period):
        self.bundles = []
        self.durable = 0
        self.closed = {}
        self._refresh_period = refresh_period

    def append(self, bundles, *, is_durable):
        self.bundles += bundles
        if is_durable:
            self.durable = len(self.bundles)

    def replace(self, closed):
        """Keeps the sum in the place of the bundles that it covers; returns the epoch's other bundles."""
        self.closed[closed.epoch] = closed
        self.bundles = self.replay()
        self.durable = len(self.bundles)
        return [bundle for bundle in self.bundles if self._epoch_of(bundle) == closed.epoch]

    def lose_end(self, kept):
        del self.bundles[kept:]

    def replay(self):
        return [bundle for bundle in self.bundles if not self._is_summed(bundle)]

    def missing(self, held):
        """(sums, bundles) that the frontier lacks."""
        frontier = Frontier(held)
        sums = [closed for _, closed in sorted(self.closed.items()) if not frontier.covers(closed.frontier)]
        return sums, [b for b in self.bundles if not frontier.holds(b.origin, b.first_covered, b.last)]

    def covered(self):
        """The frontier of all that is here."""
        frontier = Frontier()
        for closed in self.closed.values():
            for one in closed.frontier:
                frontier.add_held(one)
        for bundle in self.bundles:
            frontier.add(bundle.origin, bundle.first_covered, bundle.last)
        return frontier

    def has(self, bundle):
        return bundle in self.bundles or self._is_summed(bundle)

    def has_for_good(self, bundle):
        return bundle in self.bundles[: self.durable] or self._is_summed(bundle)

    def _epoch_of(self, bundle):
        return bundle.step // self._refresh_period

    def _is_summed(self, bundle):
        closed = self.closed.get(self._epoch_of(bundle))
        return closed is not None and Frontier(closed.frontier).holds(bundle.origin, bundle.first_covered, bundle.last)
