"""The journal: every bundle a node has, and the newest statement of each member.

The weights follow from the journal alone, and a peer that lacks something is served from it. What is appended joins a
group (`store`), which ends

* durably (own bundles): on the disk before `append` returns, so that after any crash, power failure included, the
  origin never says something else under the same step;
* by `commit` (bundles of others): a power failure may lose the tail, which neighbours have and repair brings back.

An epoch is kept as bundles, or as what they add up to: a sum of ours (*compacted*) or of a neighbour (*adopted*), and
the frontier of the bundles that it stands for. From then on nobody is given these bundles; they are deleted at once,
or, when they are many and nobody waits for it, a little with every commit.

A damaged file is found when it is opened, and what can be read of it is kept (`salvage`). Reads never hold a statement
open between batches: a slow peer blocks neither appends nor the checkpoint that keeps the log file small. Not known
here: whether signatures are right, or whether steps follow each other; that is the core's.
"""

import contextlib
import fcntl
import os
import sys
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Self

from seedflood.errors import ExitCode, JournalError
from seedflood.protocol.frontier import Frontier, Held
from seedflood.protocol.origin import OriginId
from seedflood.protocol.seedflood.messages import Bundle, ClosedEpoch
from seedflood.protocol.seedflood.opening import Inventory
from seedflood.protocol.swarm.messages import Member
from seedflood.storage.disk import told
from seedflood.storage.layout import FORMAT_VERSION, INCARNATION
from seedflood.storage.records import (
    Identity,
    Salts,
    decode_member,
    decode_number,
    encode_epoch,
    encode_member,
    encode_number,
)
from seedflood.storage.salvage import Damage, are_records_whole, make_usable
from seedflood.storage.store import Store
from seedflood.storage.survey import Survey
from seedflood.storage.tables import LOOKS_MAX, Bundles, Sums, signed, steps_of, stretches

SLICE_STEPS = 4
"""What a sum has replaced is deleted in slices of so many steps: neighbours on the disk."""

TIDY_WORK = 1024
"""Bundles and looks for them with one commit: no fewer than a round of 1,000 origins brings."""


class JournalLockedError(JournalError):
    """Another living process has the journal: it may be on its way out, so trying again is right."""

    exit_code = ExitCode.TRY_AGAIN


class Journal:
    """`Journal.open`, then `append`, `commit`, `replay`, `read_missing`; `close`. One thread at a time.

    Every method raises JournalError, those that write DiskFullError if there is no space. Whatever fails undoes the
    whole open group. damage: what had happened to the file when it was opened, if anything.
    """

    def __init__(
        self, store: Store, salts: Salts, refresh_period: int, lock: int, damage: Damage | None, survey: Survey
    ) -> None:
        self.path = store.path
        self.damage = damage
        self._store = store
        self._salts = salts
        self._bundles = Bundles(store, salts.strand, refresh_period, survey.bundles)
        self._inventory: Inventory | None = survey.inventory
        self._sums = Sums(store, salts.epoch)
        self._refresh_period = refresh_period
        self._replaced = deque(
            (held, *steps_of(epoch, refresh_period)) for epoch, held in self._sums.frontiers().items()
        )
        """What sums stand for, and may still be there: (frontier, first step, last step)."""
        self._lock = lock

    @classmethod
    def open(cls, path: Path | str, run_id: bytes, base_digest: bytes, *, refresh_period: int) -> Self:
        """Opens or creates the file (mode 0600); what is damaged of it is lost, the rest is kept.

        Raises JournalLockedError if another process has it, ConfigError if it belongs to another run or base model,
        JournalError if it cannot be read or written.
        """
        path = Path(path)
        salts = Salts.of(run_id, base_digest)
        with contextlib.ExitStack() as undo:
            lock = _take_lock(path)
            undo.callback(os.close, lock)
            with told(path, "open"):
                damage, survey = make_usable(path, Identity(FORMAT_VERSION, run_id, base_digest), salts, refresh_period)
                store = Store.open(path)
            undo.callback(store.close)
            journal = cls(store, salts, refresh_period, lock, damage, survey)
            undo.pop_all()
        return journal

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the open group; idempotent. What was appended is in one file afterwards."""
        if self._lock < 0:
            return
        try:
            self._store.close()
        finally:
            os.close(self._lock)
            self._lock = -1

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
                self._put_member(member)
        return new

    def commit(self) -> None:
        """Ends the open group: from here on kill -9 cannot take it away."""
        self._tidy()
        self._store.commit()

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

    def members(self) -> list[Member]:
        """Of each origin the newest statement that speaks of its steps, and the newest that does not."""
        rows = self._store.rows("SELECT record FROM members")
        return [self._store.decode(decode_member, record, self._salts.member, "a member") for (record,) in rows]

    def inventory(self) -> Inventory:
        """What is there. Known from the opening when it is asked for first; else everything is read."""
        inventory, self._inventory = self._inventory, None
        if inventory is not None:
            return inventory
        survey = Survey(self._salts.strand, self._refresh_period)
        with told(self.path, "read"):
            are_records_whole(self._store.connection, self._salts, survey)
        return survey.inventory

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
        record = encode_epoch(closed.epoch, closed.frontier, self._salts.epoch)
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

    def next_incarnation(self, at_least: int = 1) -> int:
        """Counts the starts of this node, durably. at_least: the clock, so that a lost journal does not count again."""
        rows = self._store.rows("SELECT record FROM meta WHERE key = ?", INCARNATION)
        last = self._store.decode(decode_number, rows[0][0], self._salts.number, "the incarnation") if rows else 0
        incarnation = max(last + 1, at_least)
        with self._store.writing(durable=True):
            record = encode_number(incarnation, self._salts.number)
            self._store.connection.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (INCARNATION, record))
        return incarnation

    def _tidy(self) -> None:
        """Joins a little of what compaction has left to do to the group; if that is undone, the next start does it."""
        work = 0
        while self._replaced and work < TIDY_WORK:
            replaced = stretches(*self._replaced.popleft())
            with self._store.writing(durable=False):
                work += len(replaced) + self._bundles.delete(replaced)
        if not self._replaced:
            self._store.shrink()

    def _put_member(self, member: Member) -> None:
        key, salt = (signed(member.origin), int(member.has_spoken)), self._salts.member
        rows = self._store.rows("SELECT record FROM members WHERE origin = ? AND has_spoken = ?", *key)
        if (
            not rows
            or self._store.decode(decode_member, rows[0][0], salt, f"the member {member.name}").age <= member.age
        ):
            self._store.connection.execute(
                "INSERT OR REPLACE INTO members VALUES (?, ?, ?)", (*key, encode_member(member, salt))
            )


def _take_lock(path: Path) -> int:
    """The lock is a file of its own and falls with the process, however that ends."""
    with told(path, "open"):
        lock = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        raise JournalLockedError(
            f"another seedflood process uses {path}; stop it, or give this one another --state folder", path=str(path)
        ) from None
    return lock
