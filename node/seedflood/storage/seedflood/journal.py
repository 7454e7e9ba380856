"""SeedFlood's journal: every bundle a node has, or the sum that has taken its place.

The weights follow from the journal alone, and a peer that lacks something is served from it.

An epoch is kept as bundles, or as what they add up to: a sum of ours (*compacted*) or of a neighbour (*adopted*), and
the frontier of the bundles that it stands for. From then on nobody is given these bundles; they are deleted at once,
or, when they are many and nobody waits for it, a little with every commit.

Not known here: whether signatures are right, or whether steps follow each other; that is the core's.
"""

import sys
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Self

from seedflood.protocol.frontier import Frontier, Held
from seedflood.protocol.origin import OriginId
from seedflood.protocol.seedflood.messages import Bundle, ClosedEpoch
from seedflood.protocol.seedflood.opening import Inventory
from seedflood.protocol.swarm.messages import Member
from seedflood.storage.disk import told
from seedflood.storage.journal import Journal, Opened, identity_of, opened
from seedflood.storage.seedflood.learned import Learned
from seedflood.storage.seedflood.records import encode_epoch
from seedflood.storage.seedflood.survey import Survey
from seedflood.storage.seedflood.tables import LOOKS_MAX, steps_of, stretches
from seedflood.storage.store import Store
from seedflood.storage.tables import Table

SLICE_STEPS = 4
"""What a sum has replaced is deleted in slices of so many steps: neighbours on the disk."""

TIDY_WORK = 1024
"""Bundles and looks for them with one commit: no fewer than a round of 1,000 origins brings."""


class BundleJournal(Journal):
    """`BundleJournal.open`, then `append`, `commit`, `replay`, `read_missing`; `close`."""

    def __init__(self, file: Opened, survey: Survey) -> None:
        super().__init__(file)
        self._learned = Learned(file.store, file.identity, survey)
        self._bundles, self._sums = self._learned.bundles, self._learned.sums
        self._survey = survey
        self._inventory: Inventory | None = survey.inventory
        self._sum_salt = file.identity.salt("epoch")
        self._refresh_period = survey.refresh_period
        self._replaced = deque(
            (held, *steps_of(epoch, self._refresh_period)) for epoch, held in self._sums.frontiers().items()
        )
        """What sums stand for, and may still be there: (frontier, first step, last step)."""

    @classmethod
    def open(  # type: ignore[override]  # it has to be told more
        cls, path: Path | str, run_id: bytes, base_digest: bytes, *, refresh_period: int
    ) -> Self:
        """Like `Journal.open`. refresh_period: how many steps an epoch has."""
        identity = identity_of(run_id, base_digest)
        survey = Survey(identity.salt("strand"), refresh_period)

        def tables_of(store: Store) -> list[Table]:
            return [*cls.tables_of(store, identity), Learned(store, identity, survey)]

        with opened(path, identity, tables_of) as file:
            return cls(file, survey)

    def append(self, bundles: Sequence[Bundle], members: Iterable[Member] = (), *, durable: bool) -> int:
        """Adds to the open group; `durable`: the group is on the disk before this returns.

        Returns how many bundles were new. What is there already is skipped, as is a statement older than the one that
        is there. A bundle that differs from the one under its (origin, step) is a JournalError: the caller must not
        let equivocation come this far.
        """
        self._inventory = None
        with self._store.writing(durable=durable):
            new = self._bundles.add(bundles)
            for member in members:
                self._members.put(member)
        return new

    def count(self) -> int:
        """How many bundles there are."""
        return self._bundles.count_all()

    def count_closed(self) -> int:
        """How many epochs are kept as sums."""
        return len(self._sums.frontiers())

    def last_step(self, origin: OriginId) -> int:
        """The greatest step that is held of the origin; -1 if none."""
        frontier = Frontier()
        for held in self._sums.frontiers().values():
            for one in held:
                if one.origin == origin:
                    frontier.add_held(one)
        return max(frontier.last(origin), self._bundles.last(origin))

    def size(self) -> dict[str, int]:
        return super().size() | {"bundles": self.count(), "closed_epochs": self.count_closed()}

    def inventory(self) -> Inventory:
        """What is there. Known from the opening when it is asked for first; else everything is read."""
        inventory, self._inventory = self._inventory, None
        if inventory is not None:
            return inventory
        with told(self.path, "read"):
            self._learned.is_whole()
        return self._survey.inventory

    def replay(self) -> Iterator[Bundle]:
        """All bundles that no sum stands for, strand by strand in the order in which these began; streamed."""
        covered = {epoch: Frontier(held) for epoch, held in self._sums.frontiers().items()}
        for bundle in self._bundles.replay():
            frontier = covered.get(bundle.step // self._refresh_period)
            if frontier is None or not frontier.holds(bundle.origin, bundle.step):
                yield bundle

    def closed_epochs(self) -> Iterator[ClosedEpoch]:
        """All epochs that are kept as sums."""
        return map(self._sums.get, self._sums.frontiers())

    def find(self, origin: OriginId, step: int) -> Bundle | None:
        """The bundle that begins with this step, unless a sum has taken its place."""
        if Frontier(self._sums.frontier(step // self._refresh_period)).holds(origin, step):
            return None
        return self._bundles.find(origin, step)

    def following(self, origin: OriginId, step: int) -> Bundle | None:
        """The first bundle of an origin that begins with this step or a later one, unless a sum has taken its place."""
        found = self._bundles.following(origin, step)
        return found if found is not None and self.find(origin, found.step) == found else None

    def replace(self, bundle: Bundle) -> None:
        """Keeps this one in the place of the one of the same origin and step, or of none, durably: its origin has said
        both, or has declared the step as skipped."""
        self._store.commit()  # what fails below undoes nothing else
        with self._store.writing(durable=True):
            self._bundles.replace(bundle)

    def adopt(self, closed: ClosedEpoch) -> list[Bundle]:
        """Keeps a foreign sum in the place of the bundles it covers, durably; returns the epoch's other bundles."""
        assert Frontier(closed.frontier).covers(self._sums.frontier(closed.epoch)), "this would lose updates"
        steps = steps_of(closed.epoch, self._refresh_period)
        self._store.commit()  # what fails below undoes nothing else
        self._inventory = None
        with self._store.writing(durable=True):
            self._sums.put(closed)
            return self._bundles.thin(closed.frontier, *steps)

    def compact(self, closed: ClosedEpoch) -> int:
        """Keeps a sum of ours in the place of its bundles, if that takes less room; returns how many it replaced.

        In the place of another sum always: what it stands for is what neighbours are told.
        """
        first, last = steps_of(closed.epoch, self._refresh_period)
        covered = stretches(closed.frontier, first, last)
        record = encode_epoch(closed.epoch, closed.frontier, self._sum_salt)
        is_kept_as_sum = bool(self._sums.frontier(closed.epoch))
        if not is_kept_as_sum and not self._bundles.take_more(len(record) + len(closed.coefficients), covered):
            return 0
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
        """What the frontier lacks: sums, and before each the bundles of earlier epochs, per origin by step.

        Bundles come in batches of up to `limit`; an empty one means that it took a while to find nothing. By epochs,
        so that who is cut off in between holds one range of an origin, not one per sum.
        """
        asked = Frontier(frontier, ranges_max=sys.maxsize)
        known = Frontier(asked.held(), ranges_max=sys.maxsize)
        for one in self._sums.all().held():
            known.add_held(one)
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

    def _tidy(self) -> None:
        """Deletes a little of what compaction has left to do, too; if that is undone, the next start does it."""
        work = 0
        while self._replaced and work < TIDY_WORK:
            replaced = stretches(*self._replaced.popleft())
            with self._store.writing(durable=False):
                work += len(replaced) + self._bundles.delete(replaced)
        if not self._replaced:
            super()._tidy()
