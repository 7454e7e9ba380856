"""What a node holds: single bundles, sums of closed epochs, and which of these are applied.

Every new bundle is noted in the frontier, persisted, passed on, and kept until its window closes. When a sum takes the
place of bundles, the steps that it covers count as held and as applied.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from seedflood.protocol.frontier import Frontier, Held
from seedflood.protocol.origin import OriginId
from seedflood.protocol.seedflood.admission import Admission, Terms
from seedflood.protocol.seedflood.bundles import Bundle
from seedflood.protocol.seedflood.certificates import Certificates
from seedflood.protocol.seedflood.contents import Contents
from seedflood.protocol.seedflood.epochs import Closings, digest_of
from seedflood.protocol.seedflood.flood import Flood
from seedflood.protocol.seedflood.messages import ClosedEpoch, EpochDigest
from seedflood.protocol.seedflood.opening import ends
from seedflood.protocol.seedflood.outputs import ClosedWindow, CloseReason, Outputs
from seedflood.protocol.seedflood.pending import Pending, describe_closing
from seedflood.protocol.seedflood.rules import Rules
from seedflood.protocol.seedflood.window import Window
from seedflood.protocol.swarm.outputs import Outbox
from seedflood.protocol.swarm.presence import Presence

WAITING_BUNDLES = 1 << 16
"""How many pulled bundles of a joining node may wait for the donor's standing (26 MB)."""

BACK_SECONDS = 10.0
"""Who was missing from no window for so long is back. A slow host is missing from most, and is not logged each time."""


@dataclass(eq=False, repr=False)
class Holdings:
    """frontier: what is held. updated: the origins of which something new has come since it was last cleared."""

    _rules: Rules
    frontier: Frontier
    _admission: Admission
    certificates: Certificates
    _flood: Flood
    _outbox: Outbox[Outputs]
    pending: Pending = field(default_factory=Pending)
    _settle_at: int = WAITING_BUNDLES
    updated: dict[OriginId, None] = field(default_factory=dict)
    duplicates: int = 0
    _missing: dict[OriginId, float] = field(default_factory=dict)
    """When who was missing from a window last."""

    def __post_init__(self) -> None:
        self.closings = Closings(self._rules, self.certificates)
        self.applied = self.pending.applied
        """The updates that are in the coefficients once all orders are carried out."""
        self.contents = Contents(self._rules)

    def restore(
        self, bundles: Iterable[Bundle], closed: Iterable[ClosedEpoch], settled: Mapping[int, Frontier]
    ) -> None:
        """What the journal holds, at start. settled: by epoch, the steps of bundles that are applied before anything
        else."""
        for one in closed:
            self.certificates.note(one.epoch, digest_of(one, self._rules.epoch_bytes), one.certificate)
            self.closings.restore(one)
            self.contents.forget(one.epoch)
            self._hold_epoch(one)
        for epoch, covered in settled.items():
            self.closings.hold(epoch, covered)
            self.frontier.add_held(covered.held())
            self.applied.add_held(covered.held())
        for bundle in bundles:
            self.frontier.add(*bundle.span)
            self.pending.add([bundle])
            self.closings.note([bundle])
            self.contents.note([bundle])

    def connect(self, peer: OriginId, held: Iterable[Held]) -> None:
        """Offers a new neighbour what waits for windows here; the rest it pulls. held: by the neighbour."""
        self._flood.connect(peer, held)
        self._flood.offer(peer, list(self.pending))

    def disconnect(self, peer: OriginId) -> None:
        self._flood.disconnect(peer)

    def receive(self, peer: OriginId, bundles: Sequence[Bundle], terms: Terms) -> list[Bundle]:
        """Takes the bundles that are new and may be used, and returns them. Raises PeerError for a forgery, having used
        nothing."""
        holds, admits, add_new = self.frontier.holds, self._admission.admits, self.frontier.add_new
        news = [(bundle, span) for bundle in bundles if not holds(*(span := bundle.span))]
        self.duplicates += len(bundles) - len(news)
        admitted = [(bundle, span) for bundle, span in news if admits(bundle, span, terms)]
        taken = []
        for bundle, span in admitted:
            if add_new(*span) or self._take_half_new(peer, bundle):
                taken.append(bundle)
        self._keep(taken)
        self._flood.spread(taken, peer)
        return taken

    def publish(self, bundle: Bundle) -> None:
        """Takes a bundle of our own."""
        self.frontier.add(*bundle.span)
        self._keep([bundle])
        self._flood.spread([bundle])

    def receive_epoch(self, closed: ClosedEpoch, signed: EpochDigest) -> bool:
        """Takes a sum in place of bundles; returns whether it was used. signed: the digests that others have signed.
        Raises PeerError if the sum has other digests, or cannot be of this run."""
        self._admission.check_epoch(closed, signed)
        if not self.closings.may_adopt(closed.epoch):
            self._outbox.log("epoch not adopted", "warning", epoch=closed.epoch)
            return False
        outputs = self._outbox.outputs
        outputs.adopt.append(closed)
        self.pending.drop(lambda bundle: self.closings.epoch_of(bundle.step) == closed.epoch)
        self.contents.forget(closed.epoch)
        self.certificates.note(closed.epoch, signed, closed.certificate)
        self.closings.restore(closed)
        self._hold_epoch(closed)
        return True

    def _take_half_new(self, peer: OriginId, bundle: Bundle) -> bool:
        """Takes a bundle that covers steps that are held, and others, if it may be taken; returns whether it was. Its
        origin contradicts itself. If it only skips what compacted sums cover, which stand, it is taken. Otherwise the
        journal has the other half of a proof (`equivocation`)."""
        origin, first, last = bundle.span
        if self.frontier.holds(origin, first, last):
            return False  # the batch says it twice
        if not self.frontier.can_add(origin, first):
            self._admission.refuse("too far ahead")
            return False
        if self._is_beside_sums(bundle):
            self.frontier.add(origin, first, last)
            return True
        outputs = self._outbox.outputs
        outputs.check.append((peer, bundle))
        self._admission.refuse("equivocation")
        return False

    def _is_beside_sums(self, bundle: Bundle) -> bool:
        """Is all that is held already of a bundle's steps in compacted sums, and was none of it measured?"""
        origin, first, last = bundle.span
        covered = self.closings.compacted(origin)
        if covered.holds_any(origin, bundle.step, last):
            return False
        for low, high in self.frontier.gaps(origin, last):
            covered.add(origin, low, high)
        return covered.holds(origin, first, last)

    def settle(self, may_apply_before: Callable[[], int]) -> None:
        """While a node joins, pulled bundles wait for the donor's standing. Those of a long run would not fit into
        memory, so all but the last rounds of each origin are applied now and then (`opening`)."""
        if len(self.pending) >= self._settle_at:
            self.apply(self.pending.take_below(ends(self.frontier, self._rules, limit=may_apply_before())))
            self._settle_at = WAITING_BUNDLES + 2 * len(self.pending)

    def apply(self, window: ClosedWindow | None) -> None:
        """Orders these updates to be applied; None: nothing."""
        if window is not None:
            self._outbox.order(window)

    def apply_before(self, step: int) -> None:
        """Orders all that waits of the steps below `step` to be applied, outside of any window."""
        self.apply(self.pending.take_before(step))

    def close(self, window: Window, reason: CloseReason, now: float, presence: Presence) -> None:
        """The window has closed: applies what has come for it, and logs whose updates it has."""
        closed = self.pending.take_window(window, self._rules, reason, now)
        self.apply(closed)
        outputs, is_news = self._outbox.outputs, self._is_news(closed.missing, now)
        outputs.events.append(describe_closing(closed, presence, is_news=is_news))

    def _is_news(self, missing: Iterable[OriginId], now: float) -> bool:
        """Does somebody begin to be missing, or are all back?"""
        before, new = self._missing, dict.fromkeys(missing, now)
        self._missing = {origin: at for origin, at in before.items() if now - at < BACK_SECONDS} | new
        return not new.keys() <= before.keys() or bool(before and not self._missing)

    def _keep(self, bundles: Sequence[Bundle]) -> None:
        """These bundles are new and already in the frontier: they are persisted, and kept until their window closes."""
        self.closings.note(bundles)
        self.contents.note(bundles)
        self.updated.update(dict.fromkeys([bundle.origin for bundle in bundles]))
        self.pending.add(bundles)
        self._outbox.outputs.bundles += bundles

    def _hold_epoch(self, closed: ClosedEpoch) -> None:
        self.frontier.add_held(closed.frontier)
        self.applied.add_held(closed.frontier)
        self.updated.update(dict.fromkeys(held.origin for held in closed.frontier))
