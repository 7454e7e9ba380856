"""Closed epochs: in the end the sum of an epoch's updates takes the place of its bundles.

A bundle belongs to the epoch of its `step`, with all the steps that it covers. An epoch is *complete* when every origin
has measured or skipped each of its steps, or left before it. Then nothing can come late for it, and its sum is the same
on every node. A node that has gone beyond a complete epoch *closes* it: it takes the sum, and states how far it has
closed, with a digest over all its sums.

Were sums taken while something could still come late, two nodes would soon hold different sums of one epoch, with no
bundles left to tell them apart; the simulation found that within three seeds. So it takes all `clients`, too: a host
that never came may have begun elsewhere.

When everyone who takes part has stated the same digest, the epoch is *compacted*: in the journal the sum takes the
place of the bundles. It has 8 r^2 bytes per matrix, however many updates there were. From then on a node that lacks
something of the epoch is given the sum. It may replace whatever part the node holds, since it covers the whole epoch.
The signed statements of the others tell whether it is right (`evidence`). No node drops its bundles before that.

A node may be wrong about what is complete. A host that leaves and returns may publish once more in an epoch that others
have closed without it, if its goodbye and its return travel together. So a statement has two digests: one of the
bundles that the sums stand for, one of the sums themselves. If sums stand for the same bundles and differ, the nodes
doubt their replicas. If they stand for different bundles, the nodes only wait. A bundle that comes late opens its epoch
again, even a compacted one, and a new sum is taken with it. Bundles reach everyone, so in the end all state the same.

Hosts that leave and return quickly may split into two sides: each goes on alone, because it believes that the other has
left. A node in the middle of an epoch then needs single rounds of the other side, which no sum can give it. And if both
sides have the same size, neither has signatures of most hosts. So when an origin has left before the end of the run,
bundles are kept for another RETURN_ROUNDS, unless it states the same sums as we do.

A dead origin keeps epochs open: it may have said something that nobody has heard yet. That ends when it returns, or
leaves.

All this is different if there is a *quorum* (`quorum`). Then an epoch that lacks something is closed as well, one
epoch later, and it is compacted when a quorum has signed the same. What comes late for a compacted epoch stays beside
its sum, which goes on to be stated. Only if somebody states another digest, because it had the late bundles in time, is
a new sum taken with them, and it replaces the first when a quorum has signed it.
"""

import hashlib
import sys
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace

from seedflood.protocol.frontier import Frontier, Held, Span, without
from seedflood.protocol.origin import OriginId
from seedflood.protocol.packing import pack_frontier, unpack, unpack_frontier
from seedflood.protocol.seedflood.chain import Chain
from seedflood.protocol.seedflood.evidence import takes_part
from seedflood.protocol.seedflood.messages import CLOSED_DIGESTS_MAX, Bundle, ClosedDigests, ClosedEpoch, EpochDigest
from seedflood.protocol.seedflood.outputs import SumEpoch
from seedflood.protocol.seedflood.quorum import Quorum
from seedflood.protocol.seedflood.rules import Rules
from seedflood.protocol.seedflood.statement import Closed, stated
from seedflood.protocol.seedflood.warrant import issue
from seedflood.protocol.swarm.messages import Member

CLOSING_ROUNDS = 8
"""An epoch may be closed so many rounds after its end. By then everybody knows who joined right before the end."""

RETURN_ROUNDS = 4096
"""How many rounds after its last step an origin that left may return and still find all bundles that it lacks."""

EPOCH_BYTES_MAX = 60 << 20
"""The largest sum that the wire carries (rank 128 in 480 matrices). Epochs with larger ones are never closed."""


class Closings:
    """Which epochs are closed here, and what is known of the others."""

    def __init__(self, rules: Rules, quorum: Quorum) -> None:
        self._rules = rules
        self._quorum = quorum
        self._held: dict[int, Frontier] = {}
        """By epoch, until it is compact: the steps that its bundles cover, and its sum if there is one."""
        self._digests: dict[int, EpochDigest] = {}
        """By closed epoch: the digests of its sum."""
        self._chain = Chain()
        """Over the digests of the epochs from the first on, as far as they have no gap."""
        self._sums: dict[int, ClosedEpoch] = {}
        """Closed, and not compacted yet."""
        self._kept: dict[int, bytes] = {}
        """By epoch: the steps that the sum in the journal covers, packed."""
        self._late: set[int] = set()
        """Compacted epochs of which bundles are held beside the sum that is stated."""
        self._summing: dict[int, tuple[Held, ...]] = {}
        """By epoch of which a sum is being taken: the steps that it will cover."""

    @property
    def before(self) -> int:
        """All epochs that end at or below this step are closed."""
        return len(self._chain) * self._rules.refresh_period

    def epoch_of(self, step: int) -> int:
        return step // self._rules.refresh_period

    def told(self) -> list[ClosedDigests]:
        """The digests of all epochs below `before`."""
        digests = self._chain.digests
        starts = range(0, len(digests), CLOSED_DIGESTS_MAX)
        return [ClosedDigests(k, tuple(digests[k : k + CLOSED_DIGESTS_MAX])) for k in starts]

    def restore(self, closed: ClosedEpoch) -> None:
        """The journal has this sum in place of bundles: found at start, or just adopted. If more is held of the epoch,
        a new sum has to be taken with it; with a quorum it stays beside the sum."""
        epoch, held = closed.epoch, self._held.pop(closed.epoch, None)
        self._open(epoch)
        self._kept[epoch] = pack_frontier(closed.frontier)
        is_all = held is None or Frontier(closed.frontier).covers(held.held())
        if is_all or self._quorum.is_in_force:
            self._close(closed)
        if held is not None and not is_all:
            _join(self._void_unless_signed(epoch), held.held())

    def hold(self, epoch: int, covered: Frontier) -> None:
        """At start: the journal has bundles of this epoch that cover these steps, beside a sum if there is one."""
        _join(self._void_unless_signed(epoch), covered.held())

    def note(self, bundles: Iterable[Bundle]) -> None:
        """These bundles are held now. A bundle that comes late for a sum makes the sum void, unless a quorum has signed
        it."""
        period, latest = self._rules.refresh_period, -1
        for origin, step, probes, skipped, _ in bundles:
            epoch = step // period
            if epoch != latest:
                latest, add = epoch, self._void_unless_signed(epoch).add
            add(origin, step - skipped, step + len(probes) - 1)

    def take_out(self, bundles: Iterable[Bundle]) -> None:
        """These bundles are held no more: sums of them are void."""
        spans: dict[int, list[Span]] = {}
        for bundle in bundles:
            spans.setdefault(self.epoch_of(bundle.step), []).append(bundle.span)
        for epoch, gone in spans.items():
            self._held[epoch] = Frontier(without(self._void(epoch).held(), gone))

    def compacted(self, origin: OriginId) -> Frontier:
        """The steps of an origin that are in compacted sums."""
        found = Frontier(ranges_max=sys.maxsize)
        for kept in self._kept.values():
            _join(found, (one for one in unpack_frontier(kept) if one.origin == origin))
        return found

    def _void_unless_signed(self, epoch: int) -> Frontier:
        """More is held of an epoch: voids a sum of it, unless a quorum has signed it. Returns what is held, to add to
        it."""
        if not (self._quorum.is_in_force and epoch in self._kept and epoch in self._digests):
            return self._void(epoch)
        self._late.add(epoch)
        return self._held.setdefault(epoch, Frontier(unpack_frontier(self._kept[epoch])))

    def _void(self, epoch: int) -> Frontier:
        """What is held of an epoch changes: voids a sum of it. Returns what is held, to change it."""
        if epoch in self._digests or epoch in self._summing:
            self._open(epoch)
        held = self._held.get(epoch)
        if held is None:
            held = self._held[epoch] = Frontier(unpack_frontier(self._kept.get(epoch, b"")))
        return held

    def _open(self, epoch: int) -> None:
        self._summing.pop(epoch, None)
        self._late.discard(epoch)
        self._sums.pop(epoch, None)
        if self._digests.pop(epoch, None) is not None:
            self._chain.cut(epoch)

    def may_adopt(self, closed: ClosedEpoch) -> bool:
        """May this sum take the place of what is held? Not while we take our own, and not if the journal's sum covers
        more."""
        kept = unpack_frontier(self._kept.get(closed.epoch, b""))
        return closed.epoch not in self._summing and Frontier(closed.frontier).covers(kept)

    def is_closed(self, epoch: int, digest: EpochDigest) -> bool:
        """Is the epoch summed here, with this digest?"""
        return self._digests.get(epoch) == digest

    def stands_for(self, bundle: Bundle) -> bool:
        """Does a sum in the journal cover this bundle?"""
        kept = Frontier(unpack_frontier(self._kept.get(self.epoch_of(bundle.step), b"")))
        return kept.holds(bundle.origin, bundle.step, bundle.last)

    def due(self, step: int, is_all_held: Callable[[int], bool]) -> list[SumEpoch]:
        """The sums to take when a node begins a round at `step`, with all updates of earlier steps applied.

        is_all_held: is every update held that is owed for the steps below this one? With a quorum an epoch is not
        waited for longer than another epoch takes.
        """
        orders: list[SumEpoch] = []
        if self._rules.epoch_bytes > EPOCH_BYTES_MAX or self._summing:
            return orders
        end = self.before
        while True:
            epoch, end = self.epoch_of(end), end + self._rules.refresh_period
            is_settled = step >= min(end + CLOSING_ROUNDS * self._rules.local_steps, self._rules.steps)
            is_overdue = self._quorum.is_in_force and step >= end + self._rules.refresh_period
            if step < end or not is_settled or not (is_overdue or is_all_held(end)):
                return orders
            if epoch not in self._digests:
                self._summing[epoch] = self._held.get(epoch, Frontier()).held()
                orders.append(SumEpoch(epoch, self._summing[epoch]))

    def summed(self, closed: ClosedEpoch) -> list[ClosedEpoch]:
        """A sum was taken. Returns it if in the journal it must replace a sum of fewer bundles at once. It is complete,
        unless there is a quorum, which then has to sign it first."""
        if self._summing.get(closed.epoch) != closed.frontier:
            return []  # more has come since it was ordered
        del self._summing[closed.epoch]
        if closed.epoch in self._kept and not self._quorum.is_in_force:
            self.restore(closed)
            return [closed]
        self._sums[closed.epoch] = closed
        self._close(closed)
        return []

    def distrust(self) -> None:
        """The coefficients are rebuilt from bundles and compacted sums, so all other sums have to be taken again."""
        self._summing.clear()
        for epoch in list(self._sums):
            self._open(epoch)

    def statement(self) -> Closed:
        """What to state: equal on nodes whose closed epochs have equal sums."""
        return Closed(self.before, *self._chain.at(len(self._chain)))

    def agreed(self, members: Collection[Member]) -> list[ClosedEpoch]:
        """The sums that may replace their bundles now, each returned once: a quorum has signed them, or everyone who
        takes part states the same of these epochs as we do."""
        if not self._sums:
            return []
        before = self._signed_before(members) if self._quorum.is_in_force else self._stated_before(members)
        settled = [self._sums.pop(epoch) for epoch in sorted(self._sums) if epoch < self.epoch_of(before)]
        for closed in settled:
            self.restore(closed)
        return [self._with_warrant(closed, members) for closed in settled] if self._quorum.is_in_force else settled

    def _signed_before(self, members: Iterable[Member]) -> int:
        """A quorum states of all epochs below this step what we do."""
        said = sorted(before for before, *_ in filter(self._is_ours, self._counted(members)))
        return said[-self._quorum.size] if len(said) >= self._quorum.size else 0

    def _with_warrant(self, closed: ClosedEpoch, members: Iterable[Member]) -> ClosedEpoch:
        """A sum of ours with the statements of those who have signed it."""
        signed = (member for member in self._quorum.of(members) if self._is_ours(stated(member).closed))
        return replace(closed, warrant=issue(self._chain, closed.epoch, signed, self._rules.refresh_period))

    def _stated_before(self, members: Collection[Member]) -> int:
        """Everyone who takes part states of all epochs below this step what we do.

        Where there are other origins, one of them must have stated it, even if it has left: nobody is its own witness.
        """
        if not all(self._is_ours(stated(member).closed) for member in members if self._has_finished(member)):
            return 0
        said = [(stated(member).closed, takes_part(member) or self._may_return(member)) for member in members]
        if any(is_counted and not self._is_ours(theirs) for theirs, is_counted in said):
            return 0
        before = min((theirs.before for theirs, is_counted in said if is_counted), default=self.before)
        witnesses = sum(theirs.before >= before and self._is_ours(theirs) for theirs, _ in said)
        return before if witnesses >= min(2, self._rules.clients) else 0

    def reconsider(self, members: Iterable[Member]) -> None:
        """Opens compacted epochs of which something came late, if somebody states another digest of them."""
        if self._late:
            others = [one for one in self._counted(members) if one.before <= self.before and not self._is_ours(one)]
            for epoch in sorted(self._late):
                if any(self.epoch_of(theirs.before) > epoch for theirs in others):
                    self._open(epoch)

    def misstated_by(self, members: Collection[Member]) -> list[Member]:
        """Whose sums stand for the same bundles as those that a quorum has signed, and differ."""
        if not self._quorum.is_in_force:
            return []
        before, period = self._signed_before(members), self._rules.refresh_period
        said = [(member, stated(member).closed) for member in self._quorum.of(members)]
        checked = [(member, one, self._chain.at(one.before // period)) for member, one in said if one.before <= before]
        return [member for member, one, ours in checked if one.frontier_digest == ours[0] and one.digest != ours[1]]

    def _counted(self, members: Iterable[Member]) -> list[Closed]:
        """What those state whose word counts for a quorum."""
        return [stated(member).closed for member in self._quorum.of(members)]

    def _has_finished(self, member: Member) -> bool:
        """Has it said everything of the run? If it has closed epochs with other bundles than we, these are to be found
        first."""
        return member.last_step == self._rules.steps - 1

    def _may_return(self, member: Member) -> bool:
        """May this host still return and need our bundles? Then somebody on its side of the network may also say
        more."""
        rules, last = self._rules, member.last_step
        has_left_on_the_way = last is not None and 0 <= last < rules.steps - 1
        return has_left_on_the_way and self.before <= (last or 0) + RETURN_ROUNDS * rules.local_steps

    def outvoted_by(self, members: Iterable[Member]) -> list[Member]:
        """The members whose sums stand for the same bundles as ours and differ, unless most members agree with us: then
        it is for the others to doubt. A member that has finished with our sums counts as one of ours."""
        if not self.before:
            return []
        ours = self.statement()
        said = [(m, stated(m).closed) for m in members if takes_part(m) or self._has_finished(m)]
        same = [(m, theirs) for m, theirs in said if theirs == ours or (takes_part(m) and theirs[:2] == ours[:2])]
        others = [m for m, theirs in same if theirs != ours]
        return others if others and 2 * len(others) >= len(same) else []

    def disputed(self, digests: Sequence[EpochDigest]) -> list[int]:
        """The compacted epochs of which these digests, from the first epoch on, say another sum of the same bundles."""
        known = ((epoch, told, self._digests.get(epoch)) for epoch, told in enumerate(digests))
        return [
            epoch
            for epoch, told, ours in known
            if ours is not None and epoch in self._kept and ours != told and ours[0] == told[0]
        ]

    def latest(self) -> list[int]:
        """The last compacted epoch, if there is one."""
        return [max(self._kept)] if self._kept else []

    def _is_ours(self, theirs: Closed) -> bool:
        """Have we closed all these epochs, with the same sums?"""
        epochs, rest = divmod(theirs.before, self._rules.refresh_period)
        return not rest and epochs <= len(self._chain) and theirs[1:] == self._chain.at(epochs)

    def _close(self, closed: ClosedEpoch) -> None:
        digest = digest_of(closed, self._rules.epoch_bytes)
        if self._digests.get(closed.epoch) == digest:
            return
        self._digests[closed.epoch] = digest
        self._chain.cut(closed.epoch)
        while (epoch := len(self._chain)) in self._digests:
            self._chain.append(self._digests[epoch])


def digest_of(closed: ClosedEpoch, epoch_bytes: int) -> EpochDigest:
    """The two digests of a sum. Raises ValueError if the coefficients do not have epoch_bytes bytes."""
    sum_digest = closed.sum_digest or hashlib.sha256(unpack(closed.coefficients, epoch_bytes)).digest()
    return EpochDigest(Frontier(closed.frontier).digest(), sum_digest)


def _join(frontier: Frontier, held: Iterable[Held]) -> None:
    for one in held:
        frontier.add_held(one)
