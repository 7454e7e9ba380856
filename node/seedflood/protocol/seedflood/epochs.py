"""Closed epochs: in the end the sum of an epoch's updates takes the place of its bundles.

A node *closes* an epoch that is complete: it takes the sum, and votes for it (`certificates`). When there is a
certificate and the journal has the sum, the epoch is *compacted*. The decisions depend only on the steps that a host
holds, so hosts vote alike. A bundle that comes late stays beside the sum.

When a node closes an epoch that lacks something, and which epochs stay bundles: docs/explanation/consensus.md.
"""

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import replace

from seedflood.protocol.frontier import Frontier, Held, Span, count_steps, pack_frontier, unpack_frontier, without
from seedflood.protocol.origin import OriginId
from seedflood.protocol.packing import packed_bytes_max, unpack
from seedflood.protocol.seedflood.bundles import Bundle
from seedflood.protocol.seedflood.certificates import EPOCHS_SENT_MAX, Certificates
from seedflood.protocol.seedflood.messages import ClosedEpoch, EpochDigest
from seedflood.protocol.seedflood.outputs import SumEpoch
from seedflood.protocol.seedflood.rules import Rules

CLOSING_ROUNDS = 8
"""An epoch may be closed so many rounds after its end. By then everybody knows the hosts that joined right before the
end."""

OVERDUE_EPOCHS = 16
"""Where a quorum is enough: so many epochs later a node closes an epoch whatever it lacks. So nobody waits longer for a
host that is there and publishes nothing."""

EPOCH_BYTES_MAX = 60 << 20
"""The largest sum that the wire carries (rank 128 in 480 matrices). An epoch with a larger sum is never closed."""

BUNDLE_BYTES, PAIR_BYTES = 80, 6
"""The bytes of a bundle in a journal without its values, and those of a pair in it."""

PACKED_SHARE = 2
"""The numbers of a sum take about 1 / PACKED_SHARE of their space when they are packed."""


class Closings:
    """Which epochs are closed here, and which are compacted.

    An epoch is in `_held` while it has bundles. Meanwhile it passes through `_summing` (its sum is being taken),
    `_sums` and `_digests` (it is closed), and `_unwritten` (its sum may replace its bundles). Once it is compacted, it
    is in `_kept`; bundles that come later are in `_held` again.
    """

    def __init__(self, rules: Rules, certificates: Certificates) -> None:
        self._rules = rules
        self._certificates = certificates
        self._held: dict[int, Frontier] = {}
        """By epoch with bundles: the steps that its bundles and its sum cover."""
        self._are_small: dict[int, bool] = {}
        """By epoch: do its bundles take less space than its sum? A cache: a bundle that comes or goes drops the
        entry."""
        self._sums: dict[int, ClosedEpoch] = {}
        """By epoch that is closed and not compacted yet: its sum."""
        self._digests: dict[int, EpochDigest] = {}
        """The digests of these sums."""
        self._unwritten: dict[int, tuple[ClosedEpoch, float]] = {}
        """By epoch: a sum that may replace bundles, and since when. The journal does not have it yet."""
        self._kept: dict[int, bytes] = {}
        """By compacted epoch: the steps that its sum covers, packed."""
        self._summing: dict[int, tuple[Held, ...]] = {}
        """By epoch whose sum is being taken: the steps that it will cover."""
        self._ours: set[int] = set()
        """The epochs that we compacted ourselves since the coefficients were last made from the journal."""

    @property
    def before(self) -> int:
        """All epochs that end at or below this step are compacted."""
        epoch = 0
        while epoch in self._kept:
            epoch += 1
        return epoch * self._rules.refresh_period

    @property
    def has_anyone_ended(self) -> bool:
        """Has any host ended an epoch, as far as we know?"""
        return self._certificates.has_votes or self.before > 0

    def epoch_of(self, step: int) -> int:
        return step // self._rules.refresh_period

    def restore(self, closed: ClosedEpoch) -> None:
        """The journal has this sum in place of bundles: found at start, adopted, or compacted just now. Bundles of the
        epoch that it does not cover stay beside it."""
        epoch = closed.epoch
        held = self._held.pop(epoch, None)
        self._void(epoch)
        self._kept[epoch] = pack_frontier(closed.frontier)
        if held is None:
            return
        is_any_beside = not Frontier(closed.frontier).covers(held.held())
        if is_any_beside:
            self._holding(epoch).add_held(held.held())

    def hold(self, epoch: int, covered: Frontier) -> None:
        """At start: the journal has bundles of this epoch that cover these steps, beside a sum if there is one."""
        self._holding(epoch).add_held(covered.held())

    def note(self, bundles: Iterable[Bundle]) -> None:
        """These bundles are held now."""
        period = self._rules.refresh_period
        latest = -1
        for origin, step, length, skipped, _ in bundles:
            epoch = step // period
            if epoch != latest:
                latest = epoch
                add = self._holding(epoch).add
                self._summing.pop(epoch, None)  # the sum would lack them
            add(origin, step - skipped, step + length - 1)

    def take_out(self, bundles: Iterable[Bundle]) -> None:
        """These bundles are no longer held, so sums of them are void."""
        spans: dict[int, list[Span]] = {}
        for bundle in bundles:
            spans.setdefault(self.epoch_of(bundle.step), []).append(bundle.span)
        for epoch, gone in spans.items():
            self._void(epoch)
            self._held[epoch] = Frontier(without(self._holding(epoch).held(), gone))

    def compacted(self, origin: OriginId) -> Frontier:
        """The steps of an origin that are in compacted sums."""
        found = Frontier()
        for kept in self._kept.values():
            found.add_held(one for one in unpack_frontier(kept) if one.origin == origin)
        return found

    def overdue(self, step: int) -> list[int]:
        """The epochs that could be compacted when a node is at `step`, and are not. A small one stays bundles."""
        return [epoch for epoch in self._over(step) if not self._is_small(epoch)]

    def _over(self, step: int) -> list[int]:
        """The open epochs that are over for long enough to be closed by a node that begins a round at `step`."""
        if self._rules.epoch_bytes > EPOCH_BYTES_MAX:
            return []
        return [epoch for epoch in self._open_epochs() if self._may_close(epoch, step)]

    def _may_close(self, epoch: int, step: int) -> bool:
        end = (epoch + 1) * self._rules.refresh_period
        earliest = min(end + CLOSING_ROUNDS * self._rules.local_steps, self._rules.steps)
        return step >= max(end, earliest)

    def _is_small(self, epoch: int) -> bool:
        """Do the bundles of an epoch take less space than its sum?"""
        if epoch not in self._are_small:
            self._are_small[epoch] = is_small(self._rules, epoch, self._held[epoch].held())
        return self._are_small[epoch]

    def may_adopt(self, epoch: int) -> bool:
        """May the sum of another host take the place of what is held? Not while we take our own: it would be applied
        twice."""
        return epoch not in self._kept and epoch not in self._summing

    def summed_elsewhere(self, step: int, *, is_relay: bool) -> list[int]:
        """The epochs that are over at `step`, are bundles here, and have enough votes for a sum that cannot be made
        here: other steps are held, its votes are forgotten, or this is a relay. Looks only at the earliest
        EPOCHS_SENT_MAX on which anybody has voted."""
        voted = [epoch for epoch in self._over(step) if self._certificates.is_voted_on(epoch)]
        elsewhere = []
        for epoch in voted[:EPOCHS_SENT_MAX]:
            digests = self._certificates.believed(epoch)
            if digests is None:
                continue
            if is_relay or not self._may_make(epoch, digests):
                elsewhere.append(epoch)
        return elsewhere

    def _may_make(self, epoch: int, digests: EpochDigest) -> bool:
        """May this node make a sum with these digests from its bundles?"""
        if self._is_small(epoch):
            return False
        is_same = self._held[epoch].digest() == digests.frontier_digest
        return is_same and bool(self._certificates.votes_for(epoch, digests))

    def due(
        self, step: int, is_all_held: Callable[[int], bool], is_held_of_reached: Callable[[int], bool]
    ) -> list[SumEpoch]:
        """The sums to take when a node begins a round at `step`, with all updates of earlier steps applied.

        is_all_held: is every update held that is owed for the steps below this one? is_held_of_reached: the same, of
        the hosts that are linked with us, directly or through others.
        """
        orders: list[SumEpoch] = []
        if self._rules.epoch_bytes > EPOCH_BYTES_MAX or self._summing:
            return orders
        for epoch in self._open_epochs():
            if epoch in self._sums or self._is_small(epoch):
                continue
            end = (epoch + 1) * self._rules.refresh_period
            held = self._held[epoch]
            if not self._may_close(epoch, step):
                break
            vote = self._certificates.ours_on(epoch)
            if vote is not None:
                # Nobody votes twice. So another sum than the one that we voted for, or that others certified, is of no
                # use.
                certified = self._certificates.of(epoch) or vote.digests
                if held.digest() not in (vote.digests.frontier_digest, certified.frontier_digest):
                    continue
            elif not is_all_held(end) and not self._is_overdue(step, end, is_held_of_reached):
                break
            self._summing[epoch] = held.held()
            orders.append(SumEpoch(epoch, self._summing[epoch]))
        return orders

    def _is_overdue(self, step: int, end: int, is_held_of_reached: Callable[[int], bool]) -> bool:
        """Is an epoch that ended at `end` to be closed, even if it lacks something?"""
        period = self._rules.refresh_period
        # One epoch later repair has usually brought to all hosts what a dead host published, so they vote alike.
        if not self._certificates.is_by_quorum or step < end + period:
            return False
        return step >= end + OVERDUE_EPOCHS * period or is_held_of_reached(end)

    def summed(self, closed: ClosedEpoch) -> EpochDigest | None:
        """A sum was taken. Returns its digests, unless something has come or changed since it was ordered."""
        if self._summing.pop(closed.epoch, None) != closed.frontier:
            return None
        self._sums[closed.epoch] = closed
        self._digests[closed.epoch] = digest_of(closed, self._rules.epoch_bytes)
        return self._digests[closed.epoch]

    def distrust(self) -> None:
        """The coefficients are rebuilt from bundles and compacted sums. So all other sums have to be taken again,
        except those that others have certified."""
        self._summing.clear()
        self._sums.clear()
        self._digests.clear()
        self._ours.clear()

    @property
    def is_any_beside(self) -> bool:
        """Is anything beside a sum of ours? Our coefficients may have it among the steps of the sum, but the journal
        gives the sum first."""
        return not self._held.keys().isdisjoint(self._ours)

    def digests(self, epoch: int) -> EpochDigest | None:
        """The digests of our sum of an epoch that is not compacted yet."""
        return self._digests.get(epoch)

    def agreed(self, may_replace: Callable[[int, EpochDigest], bool], now: float) -> list[ClosedEpoch]:
        """The sums that may replace their bundles now, with their certificates. Returns each once. They are `unwritten`
        until the journal has them (`wrote`). may_replace: may our sum of this epoch replace its bundles? It has a
        certificate."""
        certificates = self._certificates
        settled = []
        for epoch in sorted(self._sums):
            digests = self._digests[epoch]
            if certificates.of(epoch) != digests:
                continue
            votes = certificates.certificate(epoch, digests)
            if not votes:
                continue  # nobody would take the sum from us without votes
            if not may_replace(epoch, digests):
                continue
            closed = replace(self._sums[epoch], certificate=votes)
            settled.append(closed)
            self._void(epoch)
            self._unwritten[epoch] = closed, now
        certificates.forget(but=self._sums.keys() | self._summing.keys())
        return settled

    @property
    def unwritten(self) -> list[ClosedEpoch]:
        """The sums that may replace their bundles, and that the journal does not have yet."""
        return [closed for closed, _ in self._unwritten.values()]

    def wrote(self, closed: ClosedEpoch, now: float) -> float:
        """The journal has this sum of ours. Returns since when the sum might replace its bundles."""
        _, since = self._unwritten.get(closed.epoch, (closed, now))
        self.restore(closed)
        self._ours.add(closed.epoch)
        return since

    def _open_epochs(self) -> list[int]:
        """The epochs whose bundles count, in order, without those whose sum only waits to be written."""
        return sorted(self._held.keys() - self._kept.keys() - self._unwritten.keys())

    def _holding(self, epoch: int) -> Frontier:
        """The steps that are held of an epoch, to be changed by the caller."""
        self._are_small.pop(epoch, None)
        held = self._held.get(epoch)
        if held is None:
            kept = self._kept.get(epoch)
            held = Frontier() if kept is None else Frontier(unpack_frontier(kept))
            self._held[epoch] = held
        return held

    def _void(self, epoch: int) -> None:
        """Forgets a sum of ours that is not in the journal."""
        self._unwritten.pop(epoch, None)
        self._summing.pop(epoch, None)
        self._sums.pop(epoch, None)
        self._digests.pop(epoch, None)


def is_small(rules: Rules, epoch: int, held: Iterable[Held]) -> bool:
    """Do the bundles of an epoch take less space than its sum, as far as their steps show? held: these steps. Neither
    sizes on a disk count nor what a bundle skips before the epoch begins. So hosts that would vote for one sum agree on
    whether to take it."""
    first = epoch * rules.refresh_period
    end = first + rules.refresh_period
    # Hosts may take turns. Then each measures only one round in `turn_rounds`, and skips the others.
    measured = count_steps(held, first, end) // rules.turn_rounds
    value_bytes = measured * (rules.compression.size or PAIR_BYTES)
    bundle_bytes = measured // rules.local_steps * BUNDLE_BYTES + value_bytes
    return bundle_bytes < rules.epoch_bytes // PACKED_SHARE


def sum_bytes_max(rules: Rules) -> int:
    """The most bytes of a sum that any host keeps, compressed."""
    return packed_bytes_max(min(rules.epoch_bytes, EPOCH_BYTES_MAX))


def digest_of(closed: ClosedEpoch, epoch_bytes: int) -> EpochDigest:
    """The two digests of a sum. Raises ValueError if the coefficients do not have epoch_bytes bytes."""
    sum_digest = closed.sum_digest
    if not sum_digest:
        sum_digest = hashlib.sha256(unpack(closed.coefficients, epoch_bytes)).digest()
    return EpochDigest(Frontier(closed.frontier).digest(), sum_digest)
