"""A disk in memory: what is written, what of it a crash or a power failure spares, and what a full disk refuses.

It answers like `storage.Journal`, and loses like it or worse. Records are *open* until their group is committed: then
kill -9 cannot take them; a power failure can, from the end, until something durable is written behind them.
"""

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol

from seedflood.errors import DiskFullError, JournalError
from seedflood.protocol.frontier import Frontier, Held
from seedflood.protocol.origin import OriginId
from seedflood.protocol.seedflood.messages import Bundle, ClosedEpoch
from seedflood.protocol.seedflood.opening import Inventory
from seedflood.protocol.swarm.messages import Member

Name = tuple[OriginId, int]
"""(origin, step) of a bundle."""


class Owner(Protocol):
    """The host of the disk."""

    def writing(self) -> None:
        """Called before every write; may raise to end the process at this instant."""

    def kept(self, bundles: Sequence[Bundle]) -> None:
        """These are durable now, and were the point of being so: bundles of the host itself."""


class MemoryJournal:
    """What is on the disk of one host, over all its lives. is_full: whatever wants to write is refused."""

    def __init__(self, refresh_period: int, owner: Owner) -> None:
        self._owner = owner
        self.incarnation = 0
        self.is_full = False
        self.members: dict[tuple[OriginId, bool], Member] = {}
        """By (origin, does the statement speak of its steps)."""
        self.bundles: dict[Name, Bundle] = {}
        self.closed: dict[int, ClosedEpoch] = {}
        self._refresh_period = refresh_period
        self._frontiers: dict[int, Frontier] = {}
        """Of each closed epoch, as it can be asked."""
        self._undo: list[tuple[Name | None, Callable[[], object]]] = []
        """One for each record that is not durable, oldest first; with the name of a bundle."""
        self._committed = 0
        """How many of these belong to groups that were committed."""

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

    def commit(self) -> None:
        if self._committed < len(self._undo):
            self._begin()
        self._committed = len(self._undo)

    def find(self, origin: OriginId, step: int) -> Bundle | None:
        bundle = self.bundles.get((origin, step))
        return None if bundle is None or self._is_covered(bundle) else bundle

    def following(self, origin: OriginId, step: int) -> Bundle | None:
        later = [bundle for name, bundle in self.bundles.items() if name[0] == origin and name[1] >= step]
        bundle = min(later, key=lambda one: one.step, default=None)
        return None if bundle is None or self._is_covered(bundle) else bundle

    def replace(self, bundle: Bundle) -> None:
        self._begin()
        self.bundles[bundle.origin, bundle.step] = bundle
        self._sync()

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
        """Does it whatever takes less room: here it is to be seen that nothing is lost by it."""
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
        lacking = [bundle for bundle in self.replay() if not held.holds(bundle.origin, bundle.step, bundle.last)]
        for epoch, closed in sorted(self.closed.items()):
            if not held.covers(closed.frontier):
                earlier = [bundle for bundle in lacking if self.epoch_of(bundle) < epoch]
                lacking = [bundle for bundle in lacking if self.epoch_of(bundle) >= epoch]
                yield from _batches(earlier, limit)
                yield closed
        yield from _batches(lacking, limit)

    # What happens to disks

    def crash(self, rng: random.Random) -> int:
        """SIGKILL: of the open group the end is lost, from a random record on. Returns how many records were lost."""
        return self._end(rng.randint(self._committed, len(self._undo)))

    def tear(self, rng: random.Random) -> int:
        """Power failure: the end of all that is not durable is lost. Returns how many records were lost."""
        return self._end(rng.randint(0, len(self._undo)))

    def damage(self, rng: random.Random, *, share: float, spare: OriginId | None = None) -> int:
        """Bad sectors: about this share of the records is lost, none that `spare` authored. Returns how many."""
        self._sync()
        bundles = [name for name in self.bundles if name[0] != spare and rng.random() < share]
        epochs = [epoch for epoch in sorted(self.closed) if rng.random() < share]
        members = [key for key in self.members if key[0] != spare and rng.random() < share]
        for name in bundles:
            del self.bundles[name]
        for epoch in epochs:
            del self.closed[epoch], self._frontiers[epoch]
        for key in members:
            del self.members[key]
        return len(bundles) + len(epochs) + len(members)

    def is_durable(self, bundle: Bundle) -> bool:
        """Would this bundle survive a power failure now, as itself or in the coefficients of its epoch?"""
        if self._is_covered(bundle):
            return True
        name = (bundle.origin, bundle.step)
        return name in self.bundles and all(name != undone for undone, _ in self._undo)

    def epoch_of(self, bundle: Bundle) -> int:
        return bundle.step // self._refresh_period

    def _add(self, bundle: Bundle) -> bool:
        name = (bundle.origin, bundle.step)
        known = self.bundles.get(name)
        if known is None:
            self.bundles[name] = bundle
            self._undo.append((name, lambda: self.bundles.pop(name, None)))
        elif known != bundle:
            raise JournalError(f"origin {bundle.origin:016x} has another bundle at step {bundle.step} already.")
        return known is None

    def _believe(self, member: Member) -> None:
        key = (member.origin, member.has_spoken)
        known = self.members.get(key)
        if known is None:
            self._undo.append((None, lambda: self.members.pop(key, None)))
        elif known.age <= member.age:
            self._undo.append((None, lambda: self.members.__setitem__(key, known)))
        else:
            return
        self.members[key] = member

    def _keep(self, closed: ClosedEpoch, frontier: Frontier) -> None:
        self.closed[closed.epoch], self._frontiers[closed.epoch] = closed, frontier

    def _begin(self) -> None:
        """Raises DiskFullError if there is no space; the open group is undone, as sqlite rolls back."""
        self._owner.writing()
        if self.is_full:
            self._lose(self._committed)
            raise DiskFullError("no space left on the simulated disk; wait until the fault ends.")

    def _sync(self) -> None:
        self._undo.clear()
        self._committed = 0

    def _end(self, kept: int) -> int:
        """The process ends: so many of the open records are found again by the next one, which cannot undo them."""
        lost = self._lose(kept)
        self._committed = len(self._undo)
        return lost

    def _lose(self, kept: int) -> int:
        lost = self._undo[kept:]
        for _, undo in reversed(lost):
            undo()
        del self._undo[kept:]
        self._committed = min(self._committed, kept)
        return len(lost)

    def _bundles_of(self, epoch: int) -> list[Bundle]:
        return [bundle for bundle in self.bundles.values() if self.epoch_of(bundle) == epoch]

    def _is_covered(self, bundle: Bundle) -> bool:
        frontier = self._frontiers.get(self.epoch_of(bundle))
        return frontier is not None and frontier.holds(bundle.origin, bundle.first_covered, bundle.last)


def _batches(bundles: list[Bundle], limit: int) -> Iterator[list[Bundle]]:
    return (bundles[k : k + limit] for k in range(0, len(bundles), limit))
