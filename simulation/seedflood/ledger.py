"""The ledger: a stand-in for the model. It sums integers by epoch, and knows which updates are in them.

An update adds a number to each of a few coefficients of its epoch, or, if the optimiser goes by steps, to the sum of
its step. The number is its scalar (or a hash of its payload) times a small weight, a hash of its origin, step and seed.
So the order of arrival does not matter, and equal sums on two hosts mean equal sets of updates (a false match has
probability 2^-64). All coefficients of an epoch are one integer here, 64 bits each. Another host's sum does not say
which updates are in it. The chronicle of everything that was ever published says what they must be, and the sum must
match.
"""

import hashlib
import math
import struct
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache

from seedflood.protocol.frontier import Frontier
from seedflood.protocol.origin import OriginId
from seedflood.protocol.packing import pack, unpack
from seedflood.protocol.seedflood.bundles import Bundle, Update
from seedflood.protocol.seedflood.messages import ClosedEpoch
from seedflood.protocol.seedflood.node import Node
from seedflood.protocol.seedflood.payload import PAIRS, Coefficients, Compression
from seedflood.protocol.seedflood.voting import DISPUTE_SECONDS
from simulation.seedflood.compression import decode_coefficients
from simulation.seedflood.journal import MemoryBundleJournal
from simulation.seedflood.optimisers import COEFFICIENTS, OptimizerName, after_steps

EPOCH_BYTES = 8 * COEFFICIENTS
"""Coefficients of an epoch, before compression. A world may have larger sums, whose other coefficients are 0."""

_COEFFICIENTS = struct.Struct(f"<{COEFFICIENTS}q")


class Chronicle:
    """Everything that any origin ever published, kept outside of all hosts: by (origin, step) what it sent first.

    contradictions: honest origins that sent something else later. is_tainted: sums cannot be checked, because a fault
    has changed coefficients (they stay wrong until the divergence detector notices), because a liar published two
    updates of one step, or skipped a step that it measured, or because published updates were cut off.
    """

    def __init__(
        self,
        refresh_period: int,
        compression: Compression = PAIRS,
        optimizer: OptimizerName = "sgd",
        epoch_bytes: int = EPOCH_BYTES,
    ) -> None:
        self.refresh_period = refresh_period
        self.epoch_bytes = epoch_bytes
        self.compression = compression
        self.optimizer: OptimizerName = optimizer
        self.bundles: dict[tuple[OriginId, int], Bundle] = {}
        self.updates: dict[tuple[OriginId, int], Update] = {}
        self.contradictions: list[str] = []
        self.is_tainted = False
        self.has_anyone_left = False
        self.has_begun = False
        """Has any host closed a window?"""
        self.liars: set[OriginId] = set()
        """Origins that lie. They are not judged."""
        self.is_lied_to = False
        """Do hosts lie that belong to the run?"""
        self.newcomers: set[OriginId] = set()
        """Origins that joined a run that had begun."""
        self.doubles: dict[OriginId, dict[Bundle, int]] = {}
        """For each origin with two processes: its bundles, with the process that wrote them down. Such a bundle counts
        as published once another host has taken it."""
        self.gone: set[Bundle] = set()
        """What only the process of an origin had on its disk that ended because a newer one had its key."""
        self.removed: dict[OriginId, float] = {}
        """When each host learned that it is removed."""
        self._tongues: dict[tuple[OriginId, int], dict[bytes, dict[OriginId, float]]] = {}
        """Who has taken what of each step of a liar, and when."""
        self._skipped: set[tuple[OriginId, int]] = set()
        """Steps that liars declared as skipped."""
        self._last: dict[OriginId, Bundle] = {}
        self._epochs: dict[int, list[Update]] = {}
        """Updates by the epoch of their bundle."""

    def say(self, bundle: Bundle) -> None:
        """Notes a bundle that its origin has published."""
        known = self.bundles.get((bundle.origin, bundle.step))
        if known is not None:
            if known != bundle:
                self._contradict(bundle.origin, bundle.step)
            return
        self.bundles[bundle.origin, bundle.step] = self._last[bundle.origin] = bundle
        for update in bundle.updates():
            if (update.origin, update.step) in self.updates:
                self._contradict(update.origin, update.step)
            self.updates[update.origin, update.step] = update
            self._epochs.setdefault(bundle.step // self.refresh_period, []).append(update)
        if bundle.origin in self.liars:
            self._note_skipped(bundle)

    def keep(self, bundle: Bundle, process: int) -> None:
        """A process of its origin has written the bundle durably. From now on it may be sent."""
        kept = self.doubles.get(bundle.origin)
        if kept is None:
            self.say(bundle)
        else:
            kept[bundle] = process

    def is_kept(self, bundle: Bundle) -> bool:
        """May the bundle be sent?"""
        is_first = self.bundles.get((bundle.origin, bundle.step)) == bundle
        return is_first or bundle in self.doubles.get(bundle.origin, ())

    def take(self, bundle: Bundle, taker: OriginId, now: float) -> None:
        """An honest host has taken the bundle from a neighbour."""
        if bundle.origin in self.doubles:
            self.say(bundle)
        if bundle.origin in self.liars:
            versions = self._tongues.setdefault((bundle.origin, bundle.step), {})
            versions.setdefault(bundle.body, {}).setdefault(taker, now)

    @property
    def two_tongued(self) -> set[OriginId]:
        """Liars of which honest hosts took two different updates of one step. A host that was removed before neighbours
        compare could tell nobody what it took."""

        def counts(takers: Mapping[OriginId, float]) -> bool:
            return any(self.removed.get(one, math.inf) - at >= DISPUTE_SECONDS for one, at in takers.items())

        return {origin for (origin, _), versions in self._tongues.items() if sum(map(counts, versions.values())) > 1}

    def unite(self, origin: OriginId, process: int, is_elsewhere: Callable[[Bundle], bool]) -> None:
        """Only this one of two processes is left. Bundles that the other one wrote are lost with its disk, unless
        another disk has them (is_elsewhere)."""
        for bundle, keeper in self.doubles.pop(origin, {}).items():
            if keeper == process:
                self.say(bundle)
            elif not is_elsewhere(bundle):
                self.gone.add(bundle)

    def _note_skipped(self, bundle: Bundle) -> None:
        """Taints the chronicle if a step was both measured and skipped, in whatever order: sums change when the second
        bundle is received."""
        skipped = {(bundle.origin, step) for step in range(bundle.first_covered, bundle.step)}
        measured = {(update.origin, update.step) for update in bundle.updates()}
        if measured & self._skipped or skipped & self.updates.keys():
            self.is_tainted = True
        self._skipped |= skipped

    def _contradict(self, origin: OriginId, step: int) -> None:
        """Notes a contradiction. If the origin is a liar, sums can no longer be checked, only compared."""
        if origin in self.liars:
            self.is_tainted = True
        else:
            self.contradictions.append(f"{origin:016x} spoke twice about step {step}")

    def last(self, origin: OriginId) -> Bundle | None:
        """The last bundle that the origin published."""
        return self._last.get(origin)

    def forget(self, before: int) -> None:
        """Saves memory in long runs: drops everything about steps below this one, which must be the first of an
        epoch."""
        for epoch in [one for one in self._epochs if one < before // self.refresh_period]:
            del self._epochs[epoch]
        for known in (self.bundles, self.updates):
            for name in [one for one in known if one[1] < before]:
                del known[name]

    def covered(self, frontier: Frontier, epoch: int) -> list[Update]:
        """The published updates of this epoch that the frontier covers."""
        return [u for u in self._epochs.get(epoch, ()) if frontier.holds(u.origin, u.step)]

    def digest(self, frontier: Frontier, sums: Mapping[int, Frontier]) -> bytes:
        """The digest of a ledger that has applied exactly this frontier. sums: by epoch, what the sum covers that has
        taken the place of its bundles. What came too late for it stands beside it, and if the optimiser goes by steps
        it adds nothing."""
        counting = {} if self.optimizer == "sgd" else sums
        return digest_of(
            {epoch: self.add_up(self.covered(counting.get(epoch, frontier), epoch)) for epoch in self._epochs}
        )

    def add_up(self, updates: Iterable[Update]) -> int:
        """The coefficients that the updates of one epoch give."""
        return after_steps(self.optimizer, 0, self.by_step(updates))

    def by_step(self, updates: Iterable[Update]) -> dict[int, int]:
        """The sum of the updates of each step."""
        sums: dict[int, int] = {}
        for update in updates:
            sums[update.step] = sums.get(update.step, 0) + weigh(update, self.compression)
        return sums


class Ledger:
    """Stands in for a replica. mistakes: updates that were applied twice, and sums that do not match their updates."""

    def __init__(self, chronicle: Chronicle) -> None:
        self.sums: dict[int, int] = {}
        self.applied: Counter[tuple[OriginId, int]] = Counter()
        self.mistakes: list[str] = []
        self._chronicle = chronicle
        self._steps: dict[int, tuple[int, dict[int, int]]] = {}
        """For an optimiser that goes by steps, by epoch: the coefficients at its start, and the sum of each step
        since."""
        self._adopted: set[int] = set()
        """The epochs of which a sum was put in place of the updates."""

    def apply(self, updates: Iterable[Update]) -> None:
        by_epoch: dict[int, list[Update]] = defaultdict(list)
        for update in updates:
            self._count(update)
            by_epoch[update.step // self._chronicle.refresh_period].append(update)
        for epoch, ours in by_epoch.items():
            self._add(epoch, self._chronicle.by_step(ours))

    def adopt(self, closed: ClosedEpoch, others: Sequence[Bundle]) -> None:
        self._forget(closed.epoch)
        self._put(closed)
        self.apply(update for bundle in others for update in bundle.updates())

    def seal(self, epoch: int) -> None:
        """Our sum of an epoch is final."""
        self._adopted.add(epoch)
        self._steps.pop(epoch, None)

    def rebuild(self, closed: Sequence[ClosedEpoch], updates: Sequence[Update]) -> None:
        self.sums, self.applied, self._steps, self._adopted = {}, Counter(), {}, set()
        for one in closed:
            self._put(one)
        self.apply(updates)

    def coefficients(self, epoch: int) -> bytes:
        number = _to_bytes(self.sums.get(epoch, 0))
        return pack(number.ljust(self._chronicle.epoch_bytes, b"\0"))

    def digest(self) -> bytes:
        return digest_of(self.sums)

    def forget(self, before: int) -> None:
        """Saves memory: forgets which updates below this step were applied. Their sums stay."""
        for name in [one for one in self.applied if one[1] < before]:
            del self.applied[name]
        for epoch in [one for one in self._steps if one < before // self._chronicle.refresh_period]:
            del self._steps[epoch]

    def _add(self, epoch: int, by_step: Mapping[int, int]) -> None:
        optimizer, held = self._chronicle.optimizer, self.sums.get(epoch, 0)
        if optimizer == "sgd":
            self.sums[epoch] = after_steps(optimizer, held, by_step)
            return
        if epoch in self._adopted:
            return
        begun_with, sums = self._steps.setdefault(epoch, (held, {}))
        for step, one in by_step.items():
            sums[step] = sums.get(step, 0) + one
        self.sums[epoch] = after_steps(optimizer, begun_with, sums)

    def _put(self, closed: ClosedEpoch) -> None:
        coefficients = unpack(closed.coefficients, self._chronicle.epoch_bytes)
        total = _from_bytes(coefficients[:EPOCH_BYTES])
        covered = self._chronicle.covered(Frontier(closed.frontier), closed.epoch)
        if self._chronicle.add_up(covered) != total and not self._chronicle.is_tainted:
            self.mistakes.append(f"took coefficients of epoch {closed.epoch} that are not the sum of their updates")
        self.sums[closed.epoch] = total
        self._adopted.add(closed.epoch)
        for update in covered:
            self._count(update)

    def _count(self, update: Update) -> None:
        """Counts how often an update was applied. A mistake is noted at once, because a rebuild would hide it."""
        name = update.origin, update.step
        if update.origin in self._chronicle.liars and name not in self._chronicle.updates:
            self._chronicle.is_tainted = True  # the liar sent it only to us
        self.applied[name] += 1
        count = self.applied[name]
        if count > 1:
            self.mistakes.append(f"applied ({update.origin:016x}, {update.step}) {count} times")

    def _forget(self, epoch: int) -> None:
        for name in [n for n in self.applied if n[1] // self._chronicle.refresh_period == epoch]:
            del self.applied[name]
        self.sums.pop(epoch, None)
        self._steps.pop(epoch, None)


def find_outdated(node: Node, journal: MemoryBundleJournal, ledger: Ledger, finished_at: float) -> str | None:
    """Does a node that ended its run have other coefficients than follow from its journal? This is allowed if an origin
    contradicted itself after the end, or after the node's patience had run out."""
    divergence = node.seedflood.exchange.divergence
    patient_until = (node.seedflood.ending.since or 0.0) + node._patience.linger_seconds
    if divergence.is_outdated and divergence.is_settled(min(patient_until, math.nextafter(finished_at, 0.0))):
        return None
    updates = [update for bundle in journal.replay() for update in bundle.updates()]
    made_again = Ledger(ledger._chronicle)
    made_again.rebuild(list(journal.closed_epochs()), updates)
    is_same = made_again.digest() == ledger.digest()
    return None if is_same else "ends the run with other coefficients than its journal gives"


def digest_of(sums: Mapping[int, int]) -> bytes:
    state = hashlib.sha256()
    for epoch, total in sorted(sums.items()):
        if total:
            state.update(struct.pack("<q", epoch) + total.to_bytes(EPOCH_BYTES + 8, "little", signed=True))
    return state.digest()


@lru_cache(maxsize=1 << 16)
def weigh(update: Update, compression: Compression = PAIRS) -> int:
    """The integer that an update adds to its epoch. It depends on origin, step and everything in the update."""
    value = update.value
    if isinstance(value, tuple):
        loss, scalar = value
    else:
        assert isinstance(compression, Coefficients)
        loss, scalar = update.loss, _number(decode_coefficients(compression, value))
    name = struct.pack(">QQI", update.origin, update.step, loss)
    weights = hashlib.sha256(name).digest()[:COEFFICIENTS]
    return scalar * sum((weight + 1) << (64 * k) for k, weight in enumerate(weights))


def _number(values: Sequence[int]) -> int:
    """A number of 24 bits made of the values. Times its weight it is no more than an update may add to a
    coefficient."""
    return 1 + int.from_bytes(hashlib.sha256(struct.pack(f">{len(values)}q", *values)).digest()[:3], "big")


def _to_bytes(total: int) -> bytes:
    """The coefficients as signed integers of 64 bits, like those of a replica."""
    cells: list[int] = []
    for _ in range(COEFFICIENTS):
        cell = (total + (1 << 63)) % (1 << 64) - (1 << 63)
        cells.append(cell)
        total = (total - cell) >> 64
    return _COEFFICIENTS.pack(*cells)


def _from_bytes(coefficients: bytes) -> int:
    return sum(cell << (64 * k) for k, cell in enumerate(_COEFFICIENTS.unpack(coefficients)))
