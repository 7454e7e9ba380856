"""Copies of a replica for hosts that join: parameters and the state of the optimiser, from a neighbour.

A host that joins asks one neighbour at a time, and the next one if that one has no copy, breaks off or stands still. It
keeps the part of a copy that has arrived: if the link comes back, the transfer resumes there. A copy is large, so a
donor serves one host at a time, and does not serve a host again soon after.
"""

from collections.abc import Mapping

from seedflood.errors import PeerError
from seedflood.protocol.gasloc.carrier import Carrier
from seedflood.protocol.gasloc.messages import Decline, Kind, Offer, Progress, Reason, Want
from seedflood.protocol.gasloc.orders import Adopt, OpenCopy
from seedflood.protocol.gasloc.outbox import Outbox
from seedflood.protocol.gasloc.rules import GaslocRules
from seedflood.protocol.gasloc.transfer import Content, Receiving, Sending
from seedflood.protocol.origin import OriginId
from seedflood.protocol.swarm.neighbours import Neighbours
from seedflood.protocol.view import CatchingUp

STILL_SECONDS = 30.0
"""After this time without a byte a host gives up its donor, and a donor the host that it serves."""

CHANGES_MAX = 3
"""How often a donor may offer another copy than before: it has a newer checkpoint after a crash. Then the next one is
asked, or it could keep us for ever."""

REST_FACTOR = 4
"""A host that took a copy gets the next one only after this many times as long as the first one took."""


class Fetch:
    """The side that joins. round: of the copy that is fetched or was adopted. is_adopting: it is all here. least_round:
    an older copy is of no use."""

    def __init__(self, rules: GaslocRules, neighbours: Neighbours, carrier: Carrier, outbox: Outbox) -> None:
        self.donor: OriginId | None = None
        self.round = self.least_round = 0
        self.is_adopting = False
        self.is_adopted = False
        self._rules = rules
        self._neighbours = neighbours
        self._carrier = carrier
        self._outbox = outbox
        self._receiving: Receiving | None = None
        self._held = self._changes = 0
        self._heard_at = self._ask_at = 0.0
        self._tried: set[OriginId] = set()

    @property
    def is_under_way(self) -> bool:
        return self.donor is not None or self.is_adopting

    def advance(self, progress: Mapping[OriginId, Progress], now: float) -> None:
        """Asks a neighbour for a copy, unless one is sending. progress: of the neighbours."""
        receiving = self._receiving
        if receiving is not None and receiving.held > self._held:
            self._held, self._heard_at = receiving.held, now
        if self.donor is not None and now - self._heard_at >= STILL_SECONDS:
            self._next()
        if self.donor is None and not self.is_adopting:
            self._ask(progress, now)

    def wake_at(self, now: float) -> float:
        if self.donor is not None:
            return self._heard_at + STILL_SECONDS
        return self._ask_at if now < self._ask_at else float("inf")

    def offered(self, peer: OriginId, offer: Offer, now: float) -> None:
        """Takes a donor's offer. Raises PeerError if it cannot be a copy."""
        if offer.size > self._rules.copy_bytes_max or offer.round > self._rules.rounds:
            raise PeerError(f"offers a copy of {offer.size:,} bytes for round {offer.round}", reason="limit")
        if peer != self.donor or self.is_adopting:
            return
        if offer.round < self.least_round:
            self._next()
            return
        if self._receiving is None:
            self._heard_at = now
        elif self._receiving.digest != offer.digest:
            self._changes += 1
            if self._changes > CHANGES_MAX:
                self._next()
                return
            self._carrier.forget(peer, self._receiving.digest)
            self._held = 0
        self._receiving = self._carrier.accept(peer, offer.digest, offer.size, now)
        self.round = offer.round
        self._held = max(self._held, self._receiving.held)
        if self._receiving.is_whole:
            self.arrived(peer, self._receiving)

    def declined(self, peer: OriginId) -> None:
        if peer == self.donor and self._receiving is None:
            self._next()

    def arrived(self, peer: OriginId, receiving: Receiving) -> None:
        """All bytes of a content are here. If it is the copy, orders to adopt it."""
        if receiving is self._receiving:
            self._carrier.forget(peer, receiving.digest)
            self.is_adopting, self.donor, self._receiving = True, None, None
            self._tried.add(peer)  # if it is not what was offered, the next one is asked
            self._outbox.order(Adopt(peer, receiving.digest, receiving.sink))

    def adopted(self, *, is_right: bool) -> None:
        self.is_adopting, self.is_adopted = False, is_right

    def connected(self, peer: OriginId) -> None:
        if peer == self.donor:
            self._carrier.say(peer, Want())

    def progress(self) -> CatchingUp | None:
        """How many bytes of the copy are here; None if none is being fetched."""
        if self.donor is None or self._receiving is None:
            return None
        return CatchingUp(self.donor, self._receiving.held, self._receiving.size, "bytes")

    def end(self) -> None:
        """No copy is wanted any more."""
        self._next()
        self._tried.clear()
        self.is_adopted = False

    def _ask(self, progress: Mapping[OriginId, Progress], now: float) -> None:
        donors = [peer for peer, one in progress.items() if one.can_serve and one.round >= self.least_round]
        able = [peer for peer in donors if peer in self._neighbours]
        untried = [peer for peer in able if peer not in self._tried]
        if able and not untried:  # all of them said no: not at once again
            self._tried.clear()
            self._ask_at = now + STILL_SECONDS
        elif untried and now >= self._ask_at:
            self.donor = max(untried, key=lambda peer: (progress[peer].round, -peer))
            self._heard_at = now
            self._carrier.say(self.donor, Want())

    def _next(self) -> None:
        if self.donor is not None:
            self._tried.add(self.donor)
            if self._receiving is not None:
                self._carrier.forget(self.donor, self._receiving.digest)
        self.donor, self._receiving, self._held, self._changes = None, None, 0, 0


class Serve:
    """The side that gives copies. peer: the host that is served, or about to be."""

    def __init__(self, carrier: Carrier, outbox: Outbox) -> None:
        self.peer: OriginId | None = None
        self._carrier = carrier
        self._outbox = outbox
        self._sending: Sending | None = None
        self._offer: Offer | None = None
        self._since = 0.0
        self._rest_until: dict[OriginId, float] = {}

    def wanted(self, peer: OriginId, now: float, *, can_serve: bool) -> None:
        if peer == self.peer:
            if self._offer is not None:
                self._carrier.say(peer, self._offer)  # it lost the link, and goes on
        elif not can_serve or self.peer is not None or now < self._rest_until.get(peer, 0.0):
            self._carrier.say(peer, Decline(Kind.COPY, 0, Reason.BUSY, 0))
        else:
            self.peer, self._since = peer, now
            self._outbox.order(OpenCopy(peer))

    def opened(self, peer: OriginId, content: Content | None, round_: int, now: float) -> None:
        """Answers an `OpenCopy`. content: None if there is nothing."""
        if peer != self.peer:
            return
        if content is None:
            self.peer = None
            self._carrier.say(peer, Decline(Kind.COPY, 0, Reason.BUSY, 0))
            return
        self._sending = self._carrier.offer(peer, content, now)
        self._offer = Offer(Kind.COPY, round_, content.digest, content.size)
        self._carrier.say(peer, self._offer)

    def advance(self, now: float) -> None:
        sending = self._sending
        if self.peer is None or sending is None:
            return
        if sending.is_done or now - sending.heard_at >= STILL_SECONDS:
            self._rest_until[self.peer] = now + REST_FACTOR * (now - self._since)
            self._carrier.withdraw(self.peer, sending.content.digest)
            self.peer = self._sending = self._offer = None

    def wake_at(self) -> float:
        return self._sending.heard_at + STILL_SECONDS if self._sending is not None else float("inf")
