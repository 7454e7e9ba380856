"""SeedFlood's journal: every bundle that a node has, or the sum that replaced it.

The weights can be computed from the journal alone, and it serves peers that lack something.

An epoch is kept as bundles or as a sum: what its bundles add up to, with the frontier of the bundles in it. The sum is
ours (*compacted*) or a neighbour's (*adopted*). From then on its bundles are served to nobody. They are deleted at
once, or a few with every commit if they are many and nobody waits.

Signatures and the order of steps are not checked here; that is the core's task.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Self

from seedflood.protocol.frontier import Frontier, Held, Span
from seedflood.protocol.origin import STEP_MAX, OriginId
from seedflood.protocol.seedflood.bundles import Bundle
from seedflood.protocol.seedflood.messages import ClosedEpoch
from seedflood.protocol.seedflood.opening import Inventory
from seedflood.protocol.swarm.messages import Member
from seedflood.storage.disk import disk_errors
from seedflood.storage.journal import Journal
from seedflood.storage.seedflood.survey import Survey
from seedflood.storage.seedflood.tables import LOOKS_MAX, Bundles, Sums, steps_of, stretches
from seedflood.storage.store import Store
from seedflood.storage.tables import JournalTable

SLICE_STEPS = 4
"""Bundles that a sum replaced are deleted in slices of this many steps, which lie side by side on the disk."""

TIDY_WORK = 1024
"""How many bundles are deleted or looked for with one commit: at least as many as a round of 1,000 origins adds."""


class BundleJournal(Journal):
    """`BundleJournal.open`, then what the drivers of `host` want of a journal (`host/seedflood/seams`); `close`."""

    def __init__(self, store: Store, refresh_period: int) -> None:
        super().__init__(store)
        self._survey = Survey(store, refresh_period)
        self._refresh_period = refresh_period

    @classmethod
    def open(  # type: ignore[override]  # it has to be told more
        cls, path: Path | str, run_id: bytes, base_digest: bytes, *, refresh_period: int
    ) -> Self:
        """Like `Journal.open`. refresh_period: how many steps an epoch has."""
        return cls._open(path, run_id, base_digest, lambda store: cls(store, refresh_period))

    @property
    def tables(self) -> tuple[JournalTable, ...]:
        return *super().tables, self._survey

    def _begin(self) -> None:
        self._bundles = Bundles(self._store, self._refresh_period, self._survey.bundles)
        self._sums = Sums(self._store)
        self._inventory: Inventory | None = self._survey.inventory
        self._replaced = deque(
            (held, *steps_of(epoch, self._refresh_period)) for epoch, held in self._sums.frontiers().items()
        )
        """Bundles that sums replaced and that may not be deleted yet: (frontier, first step, last step)."""

    def append(self, bundles: Sequence[Bundle], members: Iterable[Member] = (), *, durable: bool) -> int:
        """Bundles that are there already are skipped, and so are statements older than those that are there. A bundle
        that differs from the one with the same origin and step raises JournalError: callers must catch equivocation
        before."""
        self._inventory = None
        with self._store.writing(durable=durable):
            new = self._bundles.add(bundles)
            for member in members:
                self._members.put(member)
        return new

    def count(self) -> int:
        """How many bundles there are."""
        return self._bundles.total

    def last_step(self, origin: OriginId) -> int:
        """The greatest step that is held of the origin; -1 if none."""
        frontier = Frontier()
        for held in self._sums.frontiers().values():
            frontier.add_held(one for one in held if one.origin == origin)
        return max(frontier.last(origin), self._bundles.last(origin))

    def size(self) -> dict[str, int]:
        return super().size() | {"bundles": self.count(), "closed_epochs": len(self._sums.epochs())}

    def inventory(self) -> Inventory:
        """What the journal holds. The first call returns what was found while opening; any other reads everything."""
        inventory, self._inventory = self._inventory, None
        if inventory is not None:
            return inventory
        with disk_errors(self.path, "read"):
            self._survey.is_whole()
        return self._survey.inventory

    def replay(self) -> Iterator[Bundle]:
        """Segment by segment, in the order in which segments were begun."""
        covered = {epoch: Frontier(held) for epoch, held in self._sums.frontiers().items()}
        for bundle in self._bundles.replay():
            frontier = covered.get(bundle.step // self._refresh_period)
            if frontier is None or not frontier.holds(bundle.origin, bundle.step):
                yield bundle

    def closed_epochs(self) -> Iterator[ClosedEpoch]:
        return map(self._sums.get, self._sums.frontiers())

    def find(self, origin: OriginId, step: int) -> Bundle | None:
        bundle = self._bundles.find(origin, step)
        return bundle if bundle is not None and self._is_single(bundle) else None

    def overlapping(self, bundle: Bundle) -> Iterator[Bundle]:
        for one in self._bundles.read(bundle.origin, bundle.first_covered, STEP_MAX):
            if one.first_covered <= bundle.last and self._is_single(one):
                yield one
            if one.step > bundle.last:
                return

    def cut(self, spans: Sequence[Span]) -> list[Bundle]:
        self._store.commit()  # what fails below undoes nothing else
        self._inventory = None
        with self._store.writing(durable=True):
            return [bundle for span in spans for bundle in self._bundles.cut(*span, is_meant=self._is_single)]

    def _is_single(self, bundle: Bundle) -> bool:
        """Is it in no sum?"""
        covered = Frontier(self._sums.frontier(bundle.step // self._refresh_period))
        return not covered.holds(bundle.origin, bundle.step)

    def adopt(self, closed: ClosedEpoch) -> list[Bundle]:
        assert Frontier(closed.frontier).covers(self._sums.frontier(closed.epoch)), "this would lose updates"
        steps = steps_of(closed.epoch, self._refresh_period)
        self._store.commit()  # what fails below undoes nothing else
        self._inventory = None
        with self._store.writing(durable=True):
            self._sums.put(closed)
            return self._bundles.thin(closed.frontier, *steps)

    def compact(self, closed: ClosedEpoch) -> int:
        """Another sum is always replaced: neighbours must get the frontier of this one."""
        first, last = steps_of(closed.epoch, self._refresh_period)
        covered = stretches(closed.frontier, first, last)
        self._store.commit()
        self._inventory = None
        with self._store.writing(durable=False):
            self._sums.put(closed)
        self._store.commit()
        self._replaced += (
            (closed.frontier, step, min(step + SLICE_STEPS - 1, last)) for step in range(first, last + 1, SLICE_STEPS)
        )
        return self._bundles.count(covered)

    def read_missing(self, frontier: Iterable[Held], limit: int = 1024) -> Iterator[ClosedEpoch | list[Bundle]]:
        """Sums by epoch, and before each sum the bundles of earlier epochs, per origin by step. A peer that is cut off
        in between then holds one range per origin, not one per sum."""
        asked = Frontier(frontier)
        known = Frontier(asked.held())
        known.add_held(self._sums.all().held())
        first = looks = 0
        for epoch in self._sums.epochs() if known != asked else ():
            if asked.covers(self._sums.frontier(epoch)):
                looks += 1
                if looks % LOOKS_MAX == 0:
                    yield []
                continue
            begin, end = steps_of(epoch, self._refresh_period)
            for batch in self._bundles.missing(known, limit, first, begin - 1):
                for bundle in batch:
                    known.add(*bundle.span)
                yield batch
            yield self._sums.get(epoch)
            first = end + 1
        yield from self._bundles.missing(known, limit)

    def commit(self) -> None:
        """Also deletes some of the bundles that sums replaced. If the group is rolled back, they stay until the next
        start."""
        work = 0
        while self._replaced and work < TIDY_WORK:
            replaced = stretches(*self._replaced.popleft())
            with self._store.writing(durable=False):
                work += len(replaced) + self._bundles.delete(replaced)
        super().commit()
