"""A disk in memory that also keeps bundles and sums. It behaves like `storage.seedflood.journal`."""

import random
from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

from seedflood.errors import JournalError
from seedflood.protocol.frontier import Frontier, Held, Span
from seedflood.protocol.origin import OriginId
from seedflood.protocol.seedflood.bundles import Bundle
from seedflood.protocol.seedflood.messages import ClosedEpoch
from seedflood.protocol.seedflood.opening import Inventory
from seedflood.protocol.swarm.messages import Member
from simulation import journal
from simulation.journal import MemoryJournal

Name = tuple[OriginId, int]
"""(origin, step) of a bundle."""


def is_cut(bundle: Bundle, spans: Iterable[Span]) -> bool:
    """Was a step of one of these spans measured for it?"""
    return any(bundle.origin == one and bundle.step <= last and bundle.last >= first for one, first, last in spans)


class Owner(journal.Owner, Protocol):
    """The host of the disk."""

    def kept(self, bundles: Sequence[Bundle]) -> None:
        """These bundles were written durably."""


class MemoryBundleJournal(MemoryJournal):
    """The journal of a host that trains by SeedFlood. covered: by closed epoch, the steps that its sum covers."""

    _owner: Owner

    def __init__(self, refresh_period: int, owner: Owner) -> None:
        super().__init__(owner)
        self.bundles: dict[Name, Bundle] = {}
        self.closed: dict[int, ClosedEpoch] = {}
        self._refresh_period = refresh_period
        self.covered: dict[int, Frontier] = {}

    # The seam of the driver

    def append(self, bundles: Sequence[Bundle], members: Sequence[Member], *, durable: bool) -> int:
        self._begin()
        new = sum(self._add(bundle) for bundle in bundles)
        for member in members:
            self._believe(member)
        if durable:
            self._sync()
            self._owner.kept(bundles)
        return new

    def find(self, origin: OriginId, step: int) -> Bundle | None:
        bundle = self.bundles.get((origin, step))
        return None if bundle is None or self._is_covered(bundle) else bundle

    def overlapping(self, bundle: Bundle) -> Iterator[Bundle]:
        others = (one for one in self.replay() if one.origin == bundle.origin)
        return (one for one in others if one.first_covered <= bundle.last and bundle.first_covered <= one.last)

    def cut(self, spans: Sequence[Span]) -> list[Bundle]:
        self._begin()
        kept = [bundle for bundle in self.bundles.values() if not self._is_covered(bundle)]
        gone = [one for one in kept if is_cut(one, spans)]
        for bundle in gone:
            del self.bundles[bundle.origin, bundle.step]
        self._sync()
        return gone

    def adopt(self, closed: ClosedEpoch) -> list[Bundle]:
        self._begin()
        self._keep(closed, Frontier(closed.frontier))
        others = []
        for bundle in self._bundles_of(closed.epoch):
            if self._is_covered(bundle):
                del self.bundles[bundle.origin, bundle.step]
            else:
                others.append(bundle)
        self._sync()
        return others

    def compact(self, closed: ClosedEpoch) -> int:
        before = len(self.bundles)
        self.adopt(closed)
        return before - len(self.bundles)

    def closed_epochs(self) -> Iterator[ClosedEpoch]:
        return iter(list(self.closed.values()))

    def inventory(self) -> Inventory:
        inventory = Inventory(sums={epoch: closed.frontier for epoch, closed in self.closed.items()})
        for bundle in self.replay():
            inventory.note(self.epoch_of(bundle), bundle.span)
        return inventory

    def replay(self) -> Iterator[Bundle]:
        return iter([bundle for bundle in self.bundles.values() if not self._is_covered(bundle)])

    def read_missing(self, frontier: Iterable[Held], limit: int) -> Iterator[ClosedEpoch | list[Bundle]]:
        held = Frontier(frontier)
        lacking = [bundle for bundle in self.replay() if not held.holds(*bundle.span)]
        for epoch, closed in sorted(self.closed.items()):
            if not held.covers(closed.frontier):
                earlier = [bundle for bundle in lacking if self.epoch_of(bundle) < epoch]
                lacking = [bundle for bundle in lacking if self.epoch_of(bundle) >= epoch]
                yield from _batches(earlier, limit)
                yield closed
        yield from _batches(lacking, limit)

    def find_beside(self) -> set[int]:
        """The closed epochs that have bundles beside their sum."""
        return {self.epoch_of(bundle) for bundle in self.replay()} & self.closed.keys()

    # What happens to disks

    def damage(self, rng: random.Random, *, share: float, spare: OriginId | None = None) -> int:
        """Bad sectors: loses about this share of the records, but none of the origin `spare`. Returns how many."""
        self._sync()
        bundles = [name for name in self.bundles if name[0] != spare and rng.random() < share]
        epochs = [epoch for epoch in sorted(self.closed) if rng.random() < share]
        members = [key for key in self._members if key[0] != spare and rng.random() < share]
        for name in bundles:
            del self.bundles[name]
        for epoch in epochs:
            del self.closed[epoch], self.covered[epoch]
        for key in members:
            del self._members[key]
        return len(bundles) + len(epochs) + len(members)

    def is_durable(self, bundle: Bundle) -> bool:
        """Would this bundle survive a power failure now, by itself or in the sum of its epoch?"""
        if self._is_covered(bundle):
            return True
        name = (bundle.origin, bundle.step)
        return name in self.bundles and not self.is_open(name)

    def epoch_of(self, bundle: Bundle) -> int:
        return bundle.step // self._refresh_period

    def _add(self, bundle: Bundle) -> bool:
        name = (bundle.origin, bundle.step)
        known = self.bundles.get(name)
        if known is None:
            self.bundles[name] = bundle
            self._undo.append((name, self.bundles, name, None))
        elif known != bundle:
            raise JournalError(f"origin {bundle.origin:016x} has another bundle at step {bundle.step} already.")
        return known is None

    def _keep(self, closed: ClosedEpoch, frontier: Frontier) -> None:
        self.closed[closed.epoch], self.covered[closed.epoch] = closed, frontier

    def _bundles_of(self, epoch: int) -> list[Bundle]:
        return [bundle for bundle in self.bundles.values() if self.epoch_of(bundle) == epoch]

    def _is_covered(self, bundle: Bundle) -> bool:
        frontier = self.covered.get(self.epoch_of(bundle))
        return frontier is not None and frontier.holds(bundle.origin, bundle.first_covered, bundle.last)


def _batches(bundles: list[Bundle], limit: int) -> Iterator[list[Bundle]]:
    return (bundles[k : k + limit] for k in range(0, len(bundles), limit))
