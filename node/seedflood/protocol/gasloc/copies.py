"""Copies of a replica for hosts that join: a neighbour's checkpoint. The state of its optimiser is not adopted.

A host that joins asks one neighbour at a time, and another one if that one has no copy, breaks off, stands still or is
slower than another may be. Who has failed it less often is asked first. It keeps the part of a copy that has arrived:
if the link comes back, the transfer resumes there. A copy is large, so a donor serves few hosts at a time, none of them
for long without giving more, and does not serve a host again soon after.

A host waits for a copy as long as anybody takes part whom it can reach. Where nobody does, it begins with what it has,
after as long as a start may take. Without any link it goes on waiting: the others may be well.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from seedflood.errors import PeerError
from seedflood.protocol.gasloc.carrier import Carrier
from seedflood.protocol.gasloc.messages import Decline, Kind, Offer, Progress, Reason, Want
from seedflood.protocol.gasloc.orders import Adopt, OpenCopy
from seedflood.protocol.gasloc.outbox import Outbox
from seedflood.protocol.gasloc.rules import Bounds, GaslocRules
from seedflood.protocol.gasloc.transfer import Content, Receiving, Sending
from seedflood.protocol.gasloc.trust import STILL_SECONDS, Trust, Watch
from seedflood.protocol.origin import OriginId
from seedflood.protocol.swarm.neighbours import Neighbours
from seedflood.protocol.view import CatchingUp

CHANGES_MAX = 3
"""How often a donor may offer another copy than before: it has a newer checkpoint after a crash. Then the next one is
asked, or it could keep us for ever."""

PLACES = 2
"""How many hosts a donor serves at a time: one that crawls keeps no other one out."""

CHANCES = 7
"""A copy may come this many times slower, by powers of two, than a link is expected to carry it: with 8 KB/s."""

REST_FACTOR = 4
"""A host that took a copy gets the next one only after this many times as long as the first one took."""


class Fetch:
    """The side that joins. round: of the copy that is fetched or was adopted. is_adopting: it is all here. least_round:
    an older copy is of no use."""

    def __init__(
        self,
        rules: GaslocRules,
        bounds: Bounds,
        neighbours: Neighbours,
        carrier: Carrier,
        trust: Trust,
        outbox: Outbox,
    ) -> None:
        self.donor: OriginId | None = None
        self.round = self.least_round = 0
        self.is_adopting = False
        self.is_adopted = False
        self._rules = rules
        self._bounds = bounds
        self._neighbours = neighbours
        self._carrier = carrier
        self._trust = trust
        self._outbox = outbox
        self._receiving: Receiving | None = None
        self._watch = Watch(0, 1, 0.0)
        self._changes = 0
        self._ask_at = 0.0
        self._tried: set[OriginId] = set()
        self._giver: OriginId | None = None
        """Who sent the copy that is adopted."""

    @property
    def is_under_way(self) -> bool:
        return self.is_adopting or (self.donor is not None and self.is_likely(self.donor))

    def is_likely(self, donor: OriginId) -> bool:
        """May it still give a copy? Who failed us again and again is asked on, but nobody waits for it alone."""
        return self._trust.failures.get(donor, 0) <= CHANCES

    def advance(self, progress: Mapping[OriginId, Progress], now: float) -> None:
        """Asks a neighbour for a copy, unless one is sending. progress: of the neighbours."""
        if self.donor is not None:
            self._watch.look(self._held, now)
            if now >= self._watch.until:
                self._doubt(self.donor, progress, now)
        if self.donor is None and not self.is_adopting:
            self._ask(progress, now)

    def wake_at(self, now: float) -> float:
        if self.donor is not None:
            return self._watch.until
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
        is_first = self._receiving is None
        if self._receiving is not None and self._receiving.digest != offer.digest:
            self._changes += 1
            if self._changes > CHANGES_MAX:
                self._next()
                return
            self._carrier.forget(peer, self._receiving.digest)
            self._watch.held = 0  # and it has no more time than before
        self._receiving = self._carrier.accept(peer, offer.digest, offer.size, now)
        self.round = offer.round
        if is_first:
            self._begin_watch(peer, now)
        if self._receiving.is_whole:
            self.arrived(peer, self._receiving)

    def declined(self, peer: OriginId) -> None:
        if peer == self.donor and self._receiving is None:
            self._next()

    def arrived(self, peer: OriginId, receiving: Receiving) -> None:
        """All bytes of a content are here. If it is the copy, orders to adopt it."""
        if receiving is self._receiving:
            self._carrier.forget(peer, receiving.digest)
            self.is_adopting, self._giver, self.donor, self._receiving = True, peer, None, None
            self._tried.add(peer)  # if it is not what was offered, the next one is asked
            self._outbox.order(Adopt(peer, receiving.digest, receiving.sink))

    def adopted(self, *, is_right: bool) -> None:
        self.is_adopting, self.is_adopted = False, is_right
        if not is_right and self._giver is not None:
            self._trust.failed(self._giver)

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
        ranked = self._rank(progress)
        untried = [peer for peer in ranked if peer not in self._tried]
        if ranked and not untried:  # all of them said no: not at once again
            self._tried.clear()
            self._ask_at = now + STILL_SECONDS
        elif untried and now >= self._ask_at:
            self.donor = untried[0]
            self._begin_watch(self.donor, now)
            self._carrier.say(self.donor, Want())

    def _rank(self, progress: Mapping[OriginId, Progress]) -> list[OriginId]:
        """The neighbours that have a copy, by their word. First those that failed us least often."""
        donors = [peer for peer, one in progress.items() if one.can_serve and one.round >= self.least_round]
        able = [peer for peer in donors if peer in self._neighbours]
        return sorted(able, key=lambda peer: (self._trust.failures.get(peer, 0), -progress[peer].round, peer))

    def _doubt(self, donor: OriginId, progress: Mapping[OriginId, Progress], now: float) -> None:
        """The donor is too slow. If it gave anything it goes on, with half as much to give, unless another one has
        failed us less often; who had no place before may have one now."""
        self._trust.failed(donor)
        if self._held <= self._watch.held:
            self._next()
            return
        self._tried.clear()
        if self._rank(progress)[:1] == [donor]:
            self._begin_watch(donor, now)
        else:
            self._drop()

    def _begin_watch(self, donor: OriginId, now: float) -> None:
        least = self._bounds.least_bytes(STILL_SECONDS, self._trust.failures.get(donor, 0))
        self._watch = Watch(self._held, least, now)

    @property
    def _held(self) -> int:
        return self._receiving.held if self._receiving is not None else 0

    def _next(self) -> None:
        if self.donor is not None:
            self._tried.add(self.donor)
        self._drop()

    def _drop(self) -> None:
        if self.donor is not None and self._receiving is not None:
            self._carrier.forget(self.donor, self._receiving.digest)
        self.donor, self._receiving, self._changes = None, None, 0


@dataclass(slots=True)
class Place:
    """A host that is served since then, or is about to be."""

    since: float
    offer: Offer | None = None
    sending: Sending | None = None
    watch: Watch | None = None


class Serve:
    """The side that gives copies."""

    def __init__(self, bounds: Bounds, carrier: Carrier, outbox: Outbox) -> None:
        self._least = bounds.least_bytes(STILL_SECONDS, CHANCES)
        self._carrier = carrier
        self._outbox = outbox
        self._places: dict[OriginId, Place] = {}
        self._rest_until: dict[OriginId, float] = {}

    @property
    def peers(self) -> Collection[OriginId]:
        """The hosts that are served, or are about to be."""
        return self._places.keys()

    def wanted(self, peer: OriginId, now: float, *, can_serve: bool) -> None:
        place = self._places.get(peer)
        if place is not None:
            if place.offer is not None:
                self._carrier.say(peer, place.offer)  # it lost the link, and goes on
        elif not can_serve or len(self._places) >= PLACES or now < self._rest_until.get(peer, 0.0):
            self._carrier.say(peer, Decline(Kind.COPY, 0, Reason.BUSY, 0))
        else:
            self._places[peer] = Place(now)
            self._outbox.order(OpenCopy(peer))

    def opened(self, peer: OriginId, content: Content | None, round_: int, now: float) -> None:
        """Answers an `OpenCopy`. content: None if there is nothing."""
        place = self._places.get(peer)
        if place is None:
            return
        if content is None:
            del self._places[peer]
            self._carrier.say(peer, Decline(Kind.COPY, 0, Reason.BUSY, 0))
            return
        place.sending, place.watch = self._carrier.offer(peer, content), Watch(0, self._least, now)
        place.offer = Offer(Kind.COPY, round_, content.digest, content.size)
        self._carrier.say(peer, place.offer)

    def advance(self, now: float) -> None:
        for peer, place in list(self._places.items()):
            sending, watch = place.sending, place.watch
            if sending is None or watch is None:
                continue
            watch.look(sending.taken, now)
            if sending.is_done or now >= watch.until:
                self._rest_until[peer] = now + REST_FACTOR * (now - place.since)
                self._carrier.withdraw(peer, sending.content.digest)
                del self._places[peer]

    def wake_at(self) -> float:
        return min((one.watch.until for one in self._places.values() if one.watch is not None), default=float("inf"))
