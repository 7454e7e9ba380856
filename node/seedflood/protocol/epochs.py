"""Closed epochs: what the updates of an epoch add up to, in the end instead of them.

A bundle belongs to the epoch of its `step`, with all the steps that it covers. An epoch is *complete* when every origin
has had its say about every step of it: measured, skipped, or left before. Nothing can come late for it then, and its
sum is the same on every node. A node that has left a complete epoch behind *closes* it: it takes the sum, and states
up to where it has closed, with a digest of all sums.

When everyone who takes part has stated the same, the journal is *compacted*: the sum takes the place of the bundles,
8 r^2 bytes per matrix however many updates there were. Whoever lacks anything of the epoch is given the sum, which may
replace any part of it, since it covers all of it. It is the donor's word; the signed statements of all tell whether it
is right, and a contradiction raises the alarm. Who has bundles gives none up before that is settled.

That an origin is dead keeps epochs open: it may have said something that nobody has heard yet. It ends when the origin
returns, or leaves.
"""

import hashlib
import struct
from collections.abc import Callable, Iterable

from seedflood.protocol.frontier import Frontier
from seedflood.protocol.messages import STEP_MAX, Bundle, ClosedEpoch, Member
from seedflood.protocol.outputs import SumEpoch
from seedflood.protocol.packing import unpack
from seedflood.protocol.rules import Rules

CLOSING_ROUNDS = 8
"""So many rounds after its end an epoch may be closed: who joined right before the end is known by then."""

EPOCH_BYTES_MAX = 60 << 20
"""Larger sums than the wire carries are not made: rank 128 in 480 matrices."""


class Closings:
    """Which epochs are closed here, and what is known of the others.

    before: all epochs that end at or below this step are closed. compact_before: the same of compacted ones.
    is_changed: sums are new since this was cleared.
    """

    def __init__(self, rules: Rules) -> None:
        self.before = 0
        self.compact_before = 0
        self.is_changed = False
        self._rules = rules
        self._held: dict[int, Frontier] = {}
        """What the bundles of each epoch cover, until it is compact."""
        self._digests: dict[int, bytes] = {}
        """Of the sums of closed epochs."""
        self._sums: dict[int, ClosedEpoch] = {}
        """Closed, and not compacted yet."""
        self._summing: set[int] = set()

    def epoch_of(self, step: int) -> int:
        return step // self._rules.refresh_period

    def restore(self, closed: ClosedEpoch) -> None:
        """The journal has this sum in the place of bundles: at start, or because it was adopted."""
        self._sums.pop(closed.epoch, None)
        self._held.pop(closed.epoch, None)
        self._close(closed)
        while (epoch := self.epoch_of(self.compact_before)) in self._digests and epoch not in self._sums:
            self.compact_before += self._rules.refresh_period

    def note(self, bundles: Iterable[Bundle]) -> None:
        """These are held. One of a compacted epoch stays by itself; one that comes late for a sum makes it void."""
        period = self._rules.refresh_period
        for bundle in bundles:
            epoch = bundle.step // period
            if epoch in self._digests or epoch in self._summing:
                if self._is_compact(epoch):
                    continue
                self._void(epoch)
            held = self._held.get(epoch)
            if held is None:
                held = self._held[epoch] = Frontier()
            held.add(*bundle.span)

    def _void(self, epoch: int) -> None:
        self._summing.discard(epoch)
        if self._sums.pop(epoch, None) is not None:
            del self._digests[epoch]
            self.before = min(self.before, epoch * self._rules.refresh_period)
            self.is_changed = True

    def may_adopt(self, closed: ClosedEpoch) -> bool:
        """Can the sum take the place of what is here? Not of the one that all agreed on, nor of one in the making."""
        return closed.epoch not in self._summing and not self._is_compact(closed.epoch)

    def due(self, step: int, is_all_held: Callable[[int], bool]) -> list[SumEpoch]:
        """What is to be closed by a node that begins a round at `step`, with all updates of earlier steps applied.

        is_all_held: is held what everyone has to say below a step?
        """
        orders: list[SumEpoch] = []
        if self._rules.epoch_bytes > EPOCH_BYTES_MAX or self._summing:
            return orders
        end = self.before
        while True:
            epoch, end = self.epoch_of(end), end + self._rules.refresh_period
            is_settled = step >= min(end + CLOSING_ROUNDS * self._rules.local_steps, self._rules.steps)
            if step < end or not is_settled or not is_all_held(end):
                return orders
            if epoch not in self._digests:
                self._summing.add(epoch)
                orders.append(SumEpoch(epoch, self._held.get(epoch, Frontier()).held()))

    def summed(self, closed: ClosedEpoch) -> None:
        """A sum was taken."""
        if closed.epoch in self._summing:
            self._summing.discard(closed.epoch)
            self._sums[closed.epoch] = closed
            self._close(closed)

    def distrust(self) -> None:
        """The coefficients are made again from bundles and compacted sums: all other sums are to be taken again."""
        for epoch in self._sums:
            del self._digests[epoch]
        self._sums.clear()
        self._summing.clear()
        self.before = 0
        self._count_closed()

    def digest(self) -> bytes:
        """32 bytes that are equal on nodes whose closed epochs have equal sums."""
        hasher = hashlib.sha256(b"seedflood closed 1\0" + struct.pack(">Q", self.before))
        for epoch in range(self.epoch_of(self.before)):
            hasher.update(self._digests[epoch])
        return hasher.digest()

    def agreed(self, members: Iterable[Member]) -> list[ClosedEpoch]:
        """What is to be compacted now: everyone who takes part states the same as we. Once.

        Where there are others, one of them must have said it, even if it has left: nobody is its own witness.
        """
        if not self._sums:
            return []
        ours = (self.before, self.digest())
        members = list(members)
        witnesses = sum(_stated(member) == ours for member in members)
        if witnesses < min(2, self._rules.clients) or any(_stated(m) != ours for m in members if _takes_part(m)):
            return []
        settled = [self._sums.pop(epoch) for epoch in sorted(self._sums) if epoch < self.epoch_of(self.before)]
        for closed in settled:
            self.restore(closed)
        return settled

    def outvoted_by(self, members: Iterable[Member]) -> Member | None:
        """Someone whose sums of the same epochs are other than ours, unless most are with us: it is they who doubt."""
        if not self.before:
            return None
        ours = self.digest()
        same = [member for member in members if _takes_part(member) and member.closed_before == self.before]
        others = [member for member in same if member.closed_digest != ours]
        return others[0] if 2 * len(others) >= max(1, len(same)) else None

    def _close(self, closed: ClosedEpoch) -> None:
        digest = hashlib.sha256(unpack(closed.coefficients, self._rules.epoch_bytes)).digest()
        self.is_changed |= self._digests.get(closed.epoch) != digest
        self._digests[closed.epoch] = digest
        self._count_closed()

    def _count_closed(self) -> None:
        while self.epoch_of(self.before) in self._digests:
            self.before += self._rules.refresh_period

    def _is_compact(self, epoch: int) -> bool:
        return epoch in self._digests and epoch not in self._sums


def _takes_part(member: Member) -> bool:
    return not member.has_left and member.first_step < STEP_MAX


def _stated(member: Member) -> tuple[int, bytes]:
    return member.closed_before, member.closed_digest
