"""What is on a disk: the simplest journal that could be right."""

from seedflood.errors import JournalError
from seedflood.protocol.frontier import Frontier
from seedflood.protocol.seedflood.opening import Inventory
from simulation.seedflood.journal import is_cut


class Disk:
    """bundles: in the order in which they were written; the first `durable` of them cannot be lost.

    closed: per epoch, the sum that stands for its bundles.
    """

    def __init__(self, refresh_period):
        self.bundles = []
        self.durable = 0
        self.closed = {}
        self.kept_records = {}
        self._refresh_period = refresh_period

    def append(self, bundles, members=(), *, durable):
        there = {(one.origin, one.step): one for one in self.bundles}
        if any(there.get((one.origin, one.step), one) != one for one in bundles):
            raise JournalError("another bundle has this place already; look for a second host with the same key.")
        new = [one for one in dict.fromkeys(bundles) if (one.origin, one.step) not in there]
        self.bundles += new
        if durable:
            self.durable = len(self.bundles)
        return len(new)

    def keep(self, members, records=(), *, durable):
        self.kept_records.update(records)

    def records(self):
        return dict(self.kept_records)

    def find(self, origin, step):
        return next((one for one in self.replay() if (one.origin, one.step) == (origin, step)), None)

    def overlapping(self, bundle):
        others = (one for one in self.replay() if one.origin == bundle.origin)
        return (one for one in others if one.first_covered <= bundle.last and bundle.first_covered <= one.last)

    def cut(self, spans):
        gone = [one for one in self.replay() if is_cut(one, spans)]
        self.bundles = [one for one in self.bundles if one not in gone]
        self.durable = len(self.bundles)
        return gone

    def commit(self):
        """What is lost here is lost at any moment."""

    def adopt(self, closed):
        self.closed[closed.epoch] = closed
        self.bundles = list(self.replay())
        self.durable = len(self.bundles)
        return [bundle for bundle in self.bundles if self._epoch_of(bundle) == closed.epoch]

    def compact(self, closed):
        before = len(self.bundles)
        self.adopt(closed)
        return before - len(self.bundles)

    def closed_epochs(self):
        return iter([closed for _, closed in sorted(self.closed.items())])

    def inventory(self):
        inventory = Inventory({}, {epoch: closed.frontier for epoch, closed in self.closed.items()})
        for bundle in self.replay():
            inventory.note(self._epoch_of(bundle), bundle.span)
        return inventory

    def lose_end(self, kept):
        del self.bundles[kept:]

    def replay(self):
        return iter([bundle for bundle in self.bundles if not self._is_summed(bundle)])

    def read_missing(self, held, limit):
        frontier = Frontier(held)
        parts = [(closed.epoch, 0, closed) for closed in self.closed.values() if not frontier.covers(closed.frontier)]
        parts += [(self._epoch_of(one), 1, [one]) for one in self.replay() if not frontier.holds(*one.span)]
        return iter([part for _, _, part in sorted(parts, key=lambda part: part[:2])])

    def covered(self):
        """The frontier of all that is here."""
        frontier = Frontier()
        for closed in self.closed.values():
            frontier.add_held(closed.frontier)
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
