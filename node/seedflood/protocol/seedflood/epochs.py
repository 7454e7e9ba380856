"""Closed epochs: in the end the sum of an epoch's updates takes the place of its bundles.

A node *closes* an epoch that is complete: it takes the sum, and votes for it (`certificates`). When there is a
certificate and the journal has the sum, the epoch is *compacted*. What decides follows from the steps that are held
alone, so hosts vote alike. A bundle that comes late stays beside the sum.

When an epoch is closed that lacks something, and what stays bundles: docs/explanation/consensus.md.
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
"""An epoch may be closed so many rounds after its end. By then everybody knows who joined right before the end."""

OVERDUE_EPOCHS = 16
"""Where a quorum is enough: after so many epochs an epoch is closed whatever is lacking, so nobody waits longer for
a host that is there and does not speak."""

EPOCH_BYTES_MAX = 60 << 20
"""The largest sum that the wire carries (rank 128 in 480 matrices). Epochs with larger ones are never closed."""

BUNDLE_BYTES, PAIR_BYTES = 80, 6
"""What a bundle takes in a journal without its values, and what a pair takes in it."""

PACKED_SHARE = 2
"""The numbers of a sum take about one part in so many when they are packed."""


class Closings:
    """Which epochs are closed here, and which are compacted."""

    def __init__(self, rules: Rules, certificates: Certificates) -> None:
        self._rules = rules
        self._certificates = certificates
        self._held: dict[int, Frontier] = {}
        """By epoch: the steps that its bundles and its sum cover; only of epochs with bundles."""
        self._are_small: dict[int, bool] = {}
        """By epoch: do its bundles take less space than its sum? Only of epochs that were looked at since a bundle came
        or went."""
        self._sums: dict[int, ClosedEpoch] = {}
        """Closed, and not compacted yet."""
        self._digests: dict[int, EpochDigest] = {}
        """Of these sums."""
        self._unwritten: dict[int, tuple[ClosedEpoch, float]] = {}
        """Sums that may replace bundles, and since when. The journal does not have them yet."""
        self._kept: dict[int, bytes] = {}
        """By compacted epoch: the steps that its sum covers, packed."""
        self._summing: dict[int, tuple[Held, ...]] = {}
        """By epoch of which a sum is being taken: the steps that it will cover."""
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
        """Has any host ended an epoch, as far as is known here?"""
        return self._certificates.has_votes or self.before > 0

    def epoch_of(self, step: int) -> int:
        return step // self._rules.refresh_period

    def restore(self, closed: ClosedEpoch) -> None:
        """The journal has this sum in place of bundles: found at start, adopted, or compacted just now. What else is
        held of the epoch stays beside it."""
        epoch, held = closed.epoch, self._held.pop(closed.epoch, None)
        self._void(epoch)
        self._kept[epoch] = pack_frontier(closed.frontier)
        if held is not None and not Frontier(closed.frontier).covers(held.held()):
            self._holding(epoch).add_held(held.held())

    def hold(self, epoch: int, covered: Frontier) -> None:
        """At start: the journal has bundles of this epoch that cover these steps, beside a sum if there is one."""
        self._holding(epoch).add_held(covered.held())

    def note(self, bundles: Iterable[Bundle]) -> None:
        """These bundles are held now."""
        period, latest = self._rules.refresh_period, -1
        for origin, step, length, skipped, _ in bundles:
            epoch = step // period
            if epoch != latest:
                latest, add = epoch, self._holding(epoch).add
                self._summing.pop(epoch, None)  # it would lack them
            add(origin, step - skipped, step + length - 1)

    def take_out(self, bundles: Iterable[Bundle]) -> None:
        """These bundles are held no more: sums of them are void."""
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
        """The epochs that could be compacted when a node is at `step`, and are not. Nobody wants to compact a small
        one."""
        return [epoch for epoch in self._over(step) if not self._is_small(epoch)]

    def _over(self, step: int) -> list[int]:
        """The open epochs that are over, and long enough, for who begins a round at `step`."""
        if self._rules.epoch_bytes > EPOCH_BYTES_MAX:
            return []
        return [epoch for epoch in self._open_epochs() if self._may_close(epoch, step)]

    def _may_close(self, epoch: int, step: int) -> bool:
        end = (epoch + 1) * self._rules.refresh_period
        return end <= step >= min(end + CLOSING_ROUNDS * self._rules.local_steps, self._rules.steps)

    def _is_small(self, epoch: int) -> bool:
        """Do the bundles of an epoch take less space than its sum?"""
        if epoch not in self._are_small:
            self._are_small[epoch] = is_small(self._rules, epoch, self._held[epoch].held())
        return self._are_small[epoch]

    def may_adopt(self, epoch: int) -> bool:
        """May another's sum take the place of what is held? Not while we take our own: it would be applied twice."""
        return epoch not in self._kept and epoch not in self._summing

    def summed_elsewhere(self, step: int, *, is_relay: bool) -> list[int]:
        """The epochs that are over at `step` and bundles here, and of which enough hosts have voted for a sum that
        cannot be made here: other steps are held, its votes are forgotten, or this is a relay. Only the earliest
        EPOCHS_SENT_MAX on which anybody has voted are looked at."""
        voted = [epoch for epoch in self._over(step) if self._certificates.is_voted_on(epoch)]
        sums = ((epoch, self._certificates.believed(epoch)) for epoch in voted[:EPOCHS_SENT_MAX])
        return [epoch for epoch, one in sums if one is not None and (is_relay or not self._may_make(epoch, one))]

    def _may_make(self, epoch: int, digests: EpochDigest) -> bool:
        if self._is_small(epoch):
            return False
        is_same = self._held[epoch].digest() == digests.frontier_digest
        return is_same and bool(self._certificates.votes_for(epoch, digests))

    def due(
        self, step: int, is_all_held: Callable[[int], bool], is_held_of_reached: Callable[[int], bool]
    ) -> list[SumEpoch]:
        """The sums to take when a node begins a round at `step`, with all updates of earlier steps applied.

        is_all_held: is every update held that is owed for the steps below this one? is_held_of_reached: the same, of
        the hosts that are linked with us, through whomever.
        """
        orders: list[SumEpoch] = []
        if self._rules.epoch_bytes > EPOCH_BYTES_MAX or self._summing:
            return orders
        for epoch in self._open_epochs():
            if epoch in self._sums or self._is_small(epoch):
                continue
            end, held = (epoch + 1) * self._rules.refresh_period, self._held[epoch]
            if not self._may_close(epoch, step):
                break
            if (vote := self._certificates.ours_on(epoch)) is not None:  # then only what we voted for, or others did
                wanted = {vote.digests, self._certificates.of(epoch) or vote.digests}
                if held.digest() not in {digests.frontier_digest for digests in wanted}:
                    continue
            elif not is_all_held(end) and not self._is_overdue(step, end, is_held_of_reached):
                break
            self._summing[epoch] = held.held()
            orders.append(SumEpoch(epoch, self._summing[epoch]))
        return orders

    def _is_overdue(self, step: int, end: int, is_held_of_reached: Callable[[int], bool]) -> bool:
        """Is an epoch to be closed though something is lacking? One epoch later all hold the same of who is gone."""
        period = self._rules.refresh_period
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
        """The coefficients are rebuilt from bundles and compacted sums, so all other sums have to be taken again, but
        for those that others have certified."""
        self._summing.clear()
        self._sums.clear()
        self._digests.clear()
        self._ours.clear()

    @property
    def is_any_beside(self) -> bool:
        """Is anything beside a sum of ours? Our coefficients may have it among the steps of the sum, and not after; the
        journal gives the sum first."""
        return not self._held.keys().isdisjoint(self._ours)

    def digests(self, epoch: int) -> EpochDigest | None:
        """Of our sum of an epoch that is not compacted yet."""
        return self._digests.get(epoch)

    def agreed(self, may_replace: Callable[[int, EpochDigest], bool], now: float) -> list[ClosedEpoch]:
        """The sums that may replace their bundles now, each returned once, with its certificate. They are `unwritten`
        until the journal has them (`wrote`). may_replace: may that of this epoch, which has a certificate?"""
        certificates, digests = self._certificates, self._digests
        certified = [epoch for epoch in sorted(self._sums) if certificates.of(epoch) == digests[epoch]]
        settled = []
        for epoch in certified:
            votes = certificates.certificate(epoch, digests[epoch])
            if not votes or not may_replace(epoch, digests[epoch]):  # without votes nobody would take the sum from us
                continue
            settled.append(replace(self._sums[epoch], certificate=votes))
            self._void(epoch)
            self._unwritten[epoch] = settled[-1], now
        certificates.forget(but=self._sums.keys() | self._summing.keys())
        return settled

    @property
    def unwritten(self) -> list[ClosedEpoch]:
        """The sums that may replace their bundles, and that the journal does not have yet."""
        return [closed for closed, _ in self._unwritten.values()]

    def wrote(self, closed: ClosedEpoch, now: float) -> float:
        """The journal has this sum of ours. Returns since when it might have had it."""
        _, since = self._unwritten.get(closed.epoch, (closed, now))
        self.restore(closed)
        self._ours.add(closed.epoch)
        return since

    def _open_epochs(self) -> list[int]:
        """The epochs of which bundles count, but for those whose sum only waits to be written."""
        return sorted(self._held.keys() - self._kept.keys() - self._unwritten.keys())

    def _holding(self, epoch: int) -> Frontier:
        """What is held of an epoch, to change it."""
        self._are_small.pop(epoch, None)
        held = self._held.get(epoch)
        if held is None:
            kept = self._kept.get(epoch)
            held = self._held[epoch] = Frontier() if kept is None else Frontier(unpack_frontier(kept))
        return held

    def _void(self, epoch: int) -> None:
        self._unwritten.pop(epoch, None)
        self._summing.pop(epoch, None)
        self._sums.pop(epoch, None)
        self._digests.pop(epoch, None)


def is_small(rules: Rules, epoch: int, held: Iterable[Held]) -> bool:
    """Do the bundles of an epoch take less space than its sum, as far as their steps show? held: these steps. Of turns
    only one is measured; the other steps of a round of turns are skipped. What a bundle skips before the epoch begins
    does not count. No size on a disk does either, so hosts that would vote for one sum agree on whether to take it."""
    first, end = epoch * rules.refresh_period, (epoch + 1) * rules.refresh_period
    measured = count_steps(held, first, end) // rules.turn_rounds
    value_bytes = measured * (rules.compression.size or PAIR_BYTES)
    bundle_bytes = measured // rules.local_steps * BUNDLE_BYTES + value_bytes
    return bundle_bytes < rules.epoch_bytes // PACKED_SHARE


def sum_bytes_max(rules: Rules) -> int:
    """The most bytes of a sum that anybody keeps, compressed."""
    return packed_bytes_max(min(rules.epoch_bytes, EPOCH_BYTES_MAX))


def digest_of(closed: ClosedEpoch, epoch_bytes: int) -> EpochDigest:
    """The two digests of a sum. Raises ValueError if the coefficients do not have epoch_bytes bytes."""
    sum_digest = closed.sum_digest or hashlib.sha256(unpack(closed.coefficients, epoch_bytes)).digest()
    return EpochDigest(Frontier(closed.frontier).digest(), sum_digest)
