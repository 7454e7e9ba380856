"""A model of integers: it sums updates by epoch and counts which it holds, so that checks can look inside.

An update adds its scalar (or a number that follows from its payload), times a small weight that follows from its name,
to each of a few coefficients of its epoch, or to what was told of its step if the optimiser goes by steps: the order of
arrival does not matter; equal sums on two hosts mean equal sets of updates (a false match has odds of 2^-64). All
coefficients of an epoch are one integer here, 64 bits each. Sums that another host made come without names; which
updates they are is told by the chronicle of everything that was ever published, and the sum proves it.
"""

import hashlib
import struct
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

from seedflood.protocol.frontier import Frontier
from seedflood.protocol.origin import OriginId
from seedflood.protocol.packing import pack, unpack
from seedflood.protocol.seedflood.messages import Bundle, ClosedEpoch, Update
from seedflood.protocol.seedflood.node import Node
from seedflood.protocol.seedflood.payload import PAIRS, Telling, decode_payload
from seedflood.simulation.seedflood.journal import MemoryBundleJournal
from seedflood.simulation.seedflood.optimisers import COEFFICIENTS, OptimizerName, after_steps

EPOCH_BYTES = 8 * COEFFICIENTS
"""Coefficients of an epoch, before compression."""

_COEFFICIENTS = struct.Struct(f"<{COEFFICIENTS}q")


class Chronicle:
    """Everything that any origin ever said, kept outside of all hosts: (origin, step) -> what it said first.

    contradictions: who said something else later. is_tainted: coefficients of some host were changed behind its back,
    so that sums may be wrong until the digest watch has found it; or a liar said two things under one step, or skipped
    one that it measured.
    """

    def __init__(self, refresh_period: int, telling: Telling = PAIRS, optimizer: OptimizerName = "sgd") -> None:
        self.refresh_period = refresh_period
        self.telling = telling
        self.optimizer: OptimizerName = optimizer
        self.bundles: dict[tuple[OriginId, int], Bundle] = {}
        self.updates: dict[tuple[OriginId, int], Update] = {}
        self.contradictions: list[str] = []
        self.is_tainted = False
        self.has_anyone_left = False
        self.liars: set[OriginId] = set()
        """Origins that nobody answers for."""
        self.doubles: dict[OriginId, dict[Bundle, int]] = {}
        """Origins with two processes: what each of these keeps. Said is of it what anybody else has taken."""
        self._tongues: dict[tuple[OriginId, int], Bundle] = {}
        self.two_tongued: set[OriginId] = set()
        """Liars of whom honest hosts took two contents under one step."""
        self._skipped: set[tuple[OriginId, int]] = set()
        """By liars."""
        self._last: dict[OriginId, Bundle] = {}
        self._epochs: dict[int, list[Update]] = {}
        """By the epoch of the bundle."""

    def say(self, bundle: Bundle) -> None:
        """Notes a bundle that its origin wrote down or sent."""
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
        """A process of its origin has written it down: it may be sent from now on, and is not lost any more."""
        kept = self.doubles.get(bundle.origin)
        if kept is None:
            self.say(bundle)
        else:
            kept[bundle] = process

    def is_kept(self, bundle: Bundle) -> bool:
        """May it be sent?"""
        is_said = self.bundles.get((bundle.origin, bundle.step)) == bundle
        return is_said or bundle in self.doubles.get(bundle.origin, ())

    def take(self, bundle: Bundle) -> None:
        """An honest host has taken it from its neighbour."""
        if bundle.origin in self.doubles:
            self.say(bundle)
        if bundle.origin in self.liars:
            content = bundle._replace(signature=b"")
            if self._tongues.setdefault((bundle.origin, bundle.step), content) != content:
                self.two_tongued.add(bundle.origin)

    def unite(self, origin: OriginId, process: int) -> None:
        """Only this one is left of two processes: what the other one kept and told nobody went with it."""
        for bundle, keeper in self.doubles.pop(origin, {}).items():
            if keeper == process:
                self.say(bundle)

    def _note_skipped(self, bundle: Bundle) -> None:
        """What was measured stands beside what skips it, whichever was said first: sums change when it turns up."""
        skipped = {(bundle.origin, step) for step in range(bundle.first_covered, bundle.step)}
        measured = {(update.origin, update.step) for update in bundle.updates()}
        if measured & self._skipped or skipped & self.updates.keys():
            self.is_tainted = True
        self._skipped |= skipped

    def _contradict(self, origin: OriginId, step: int) -> None:
        """A liar may: then nobody can say from outside what sums should be, only that they are equal."""
        if origin in self.liars:
            self.is_tainted = True
        else:
            self.contradictions.append(f"{origin:016x} spoke twice about step {step}")

    def last(self, origin: OriginId) -> Bundle | None:
        """What the origin said last."""
        return self._last.get(origin)

    def forget(self, before: int) -> None:
        """For runs of many days: drops what was said about steps below this one, the first of an epoch."""
        for epoch in [one for one in self._epochs if one < before // self.refresh_period]:
            del self._epochs[epoch]
        for known in (self.bundles, self.updates):
            for name in [one for one in known if one[1] < before]:
                del known[name]

    def covered(self, frontier: Frontier, epoch: int) -> list[Update]:
        """What was said in this epoch and the frontier covers."""
        return [u for u in self._epochs.get(epoch, ()) if frontier.holds(u.origin, u.step)]

    def digest(self, frontier: Frontier) -> bytes:
        """What a ledger with exactly this frontier applied must have."""
        return digest_of({epoch: self.add_up(self.covered(frontier, epoch)) for epoch in self._epochs})

    def add_up(self, updates: Iterable[Update]) -> int:
        """What the updates of one epoch come to."""
        return after_steps(self.optimizer, 0, self.told(updates))

    def told(self, updates: Iterable[Update]) -> dict[int, int]:
        """Of each step, together."""
        sums: dict[int, int] = {}
        for update in updates:
            sums[update.step] = sums.get(update.step, 0) + weigh(update, self.telling)
        return sums


class Ledger:
    """Stands in for a replica. mistakes: updates applied twice, and sums that are not those of their updates."""

    def __init__(self, chronicle: Chronicle) -> None:
        self.sums: dict[int, int] = {}
        self.applied: Counter[tuple[OriginId, int]] = Counter()
        self.mistakes: list[str] = []
        self._chronicle = chronicle
        self._steps: dict[int, tuple[int, dict[int, int]]] = {}
        """Of an optimiser that goes by steps, per epoch: what it began with, and what was told of each step since."""

    def apply(self, updates: Iterable[Update]) -> None:
        by_epoch: dict[int, list[Update]] = defaultdict(list)
        for update in updates:
            self._count(update)
            by_epoch[update.step // self._chronicle.refresh_period].append(update)
        for epoch, ours in by_epoch.items():
            self._add(epoch, self._chronicle.told(ours))

    def adopt(self, closed: ClosedEpoch, others: Sequence[Bundle]) -> None:
        self._forget(closed.epoch)
        self._put(closed)
        self.apply(update for bundle in others for update in bundle.updates())

    def rebuild(self, closed: Sequence[ClosedEpoch], updates: Sequence[Update]) -> None:
        self.sums, self.applied, self._steps = {}, Counter(), {}
        for one in closed:
            self._put(one)
        self.apply(updates)

    def coefficients(self, epoch: int) -> bytes:
        return pack(_to_bytes(self.sums.get(epoch, 0)))

    def digest(self) -> bytes:
        return digest_of(self.sums)

    def forget(self, before: int) -> None:
        """Which updates of steps below this one were applied; their sums stay."""
        for name in [one for one in self.applied if one[1] < before]:
            del self.applied[name]
        for epoch in [one for one in self._steps if one < before // self._chronicle.refresh_period]:
            del self._steps[epoch]

    def _add(self, epoch: int, told: Mapping[int, int]) -> None:
        optimizer, held = self._chronicle.optimizer, self.sums.get(epoch, 0)
        if optimizer == "sgd":
            self.sums[epoch] = after_steps(optimizer, held, told)
            return
        begun_with, sums = self._steps.setdefault(epoch, (held, {}))
        for step, one in told.items():
            sums[step] = sums.get(step, 0) + one
        self.sums[epoch] = after_steps(optimizer, begun_with, sums)

    def _put(self, closed: ClosedEpoch) -> None:
        total = _from_bytes(unpack(closed.coefficients, EPOCH_BYTES))
        covered = self._chronicle.covered(Frontier(closed.frontier), closed.epoch)
        if self._chronicle.add_up(covered) != total and not self._chronicle.is_tainted:
            self.mistakes.append(f"took coefficients of epoch {closed.epoch} that are not the sum of their updates")
        self.sums[closed.epoch] = total
        for update in covered:
            self._count(update)

    def _count(self, update: Update) -> None:
        """Said at once: a rebuild would hide it."""
        name = update.origin, update.step
        if update.origin in self._chronicle.liars and name not in self._chronicle.updates:
            self._chronicle.is_tainted = True  # it told us alone
        self.applied[name] += 1
        count = self.applied[name]
        if count > 1:
            self.mistakes.append(f"applied ({update.origin:016x}, {update.step}) {count} times")

    def _forget(self, epoch: int) -> None:
        for name in [n for n in self.applied if n[1] // self._chronicle.refresh_period == epoch]:
            del self.applied[name]
        self.sums.pop(epoch, None)
        self._steps.pop(epoch, None)


def find_outdated(node: Node, journal: MemoryBundleJournal, ledger: Ledger) -> str | None:
    """Has a node that ends its run other coefficients than its journal gives? It may if its patience was over before an
    origin contradicted itself."""
    watch, patient_until = (
        node.seedflood.exchange.watch,
        (node.seedflood.ending.since or 0.0) + node._patience.linger_seconds,
    )
    if watch.is_outdated and watch.is_settled(patient_until):
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
def weigh(update: Update, telling: Telling = PAIRS) -> int:
    """The same told by another origin or at another step weighs something else, and so does each value of a payload."""
    told = update.told
    seed, scalar = told if isinstance(told, tuple) else (0, _number(decode_payload(telling, told)))
    name = struct.pack(">QQI", update.origin, update.step, seed)
    weights = hashlib.sha256(name).digest()[:COEFFICIENTS]
    return scalar * sum((weight + 1) << (64 * k) for k, weight in enumerate(weights))


def _number(values: Sequence[int]) -> int:
    """24 bits, so that weighted it is no more than an update may add to a coefficient."""
    return 1 + int.from_bytes(hashlib.sha256(struct.pack(f">{len(values)}q", *values)).digest()[:3], "big")


def _to_bytes(total: int) -> bytes:
    """Each coefficient by itself, as a replica has them."""
    cells: list[int] = []
    for _ in range(COEFFICIENTS):
        cell = (total + (1 << 63)) % (1 << 64) - (1 << 63)
        cells.append(cell)
        total = (total - cell) >> 64
    return _COEFFICIENTS.pack(*cells)


def _from_bytes(coefficients: bytes) -> int:
    return sum(cell << (64 * k) for k, cell in enumerate(_COEFFICIENTS.unpack(coefficients)))
