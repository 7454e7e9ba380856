"""Copies of a replica: a neighbour's checkpoint for a host that joins, whose optimiser is not adopted; or the replica
with which all end (`choice`), parameters alone, from any neighbour that has it.

A host asks one neighbour at a time, and another one if that one has no copy, breaks off, stands still or is slower than
another may be. Who has failed it less often is asked first. It keeps the part of a copy that has arrived: if the link
comes back, the transfer resumes there. A copy is large, so a donor serves few hosts at a time, none of them for long
without giving more, and does not serve a host again soon after, but at the end of the run.

A host that joins waits for a copy as long as anybody takes part whom it can reach. Where nobody does, it begins with
what it has, after as long as a start may take. Without any link it goes on waiting: the others may be well.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from seedflood.errors import PeerError
from seedflood.protocol.gasloc.carrier import Carrier
from seedflood.protocol.gasloc.messages import NEWEST, Decline, Kind, Offer, Reason, Want
from seedflood.protocol.gasloc.orders import Adopt, OpenCopy, Take
from seedflood.protocol.gasloc.rules import Bounds, GaslocRules
from seedflood.protocol.gasloc.transfer import Content, Receiving, Sending
from seedflood.protocol.gasloc.trust import STILL_SECONDS, TransferDeadline, Trust
from seedflood.protocol.origin import OriginId
from seedflood.protocol.swarm.neighbours import Neighbours
from seedflood.protocol.swarm.outputs import Outbox, Outputs
from seedflood.protocol.view import CatchingUp

CHANGES_MAX = 3
"""How often a donor may offer another copy than before: it has a newer checkpoint after a crash. Then the next one is
asked, or it could keep us for ever."""

PLACES = 2
"""How many hosts a donor serves at a time: one that crawls keeps no other one out."""

LAST_PLACES = 8
"""The same at the end of a run, when all want a copy at once. Who has it serves it on, so all have it soon."""

RESTING_PLACES = LAST_PLACES // 2
"""Of these, for hosts that rest as well: at the end nobody has the time for a rest. The others are for hosts that took
nothing yet, so those that crawl keep nobody out."""

CHANCES = 7
"""A copy may come this many times slower, by powers of two, than a link is expected to carry it: with 8 KB/s."""

ASK_SECONDS = 3.0
"""When all have refused, they are asked again so much later."""

REST_FACTOR = 4
"""A host that took a copy gets the next one only after this many times as long as the first one took, at least
ASK_SECONDS, or once there is another replica with which we end."""


@dataclass(eq=False, repr=False)
class Fetch:
    """The side that wants a copy. wanted: its digest, or `NEWEST`. round: of the copy that is fetched or was adopted.
    is_backed: of the replica with which all end (`Take`). is_adopting: it is all here."""

    _rules: GaslocRules
    _bounds: Bounds
    _neighbours: Neighbours
    _carrier: Carrier
    _trust: Trust
    _serve: "Serve"
    _outbox: Outbox[Outputs]
    donor: OriginId | None = None
    wanted: bytes = NEWEST
    round: int = 0
    is_backed: bool = False
    is_adopting: bool = False
    is_adopted: bool = False
    _receiving: Receiving | None = None
    _deadline: TransferDeadline = field(default_factory=lambda: TransferDeadline(0, 1, 0.0))
    _changes: int = 0
    _ask_at: float = 0.0
    _tried: set[OriginId] = field(default_factory=set)
    _giver: OriginId | None = None
    """Who sent the copy that is adopted."""

    @property
    def is_under_way(self) -> bool:
        return self.is_adopting or (self.donor is not None and self.is_likely(self.donor))

    def is_likely(self, donor: OriginId) -> bool:
        """May it still give a copy? Who failed us again and again is asked on, but nobody waits for it alone."""
        return self._trust.failures.get(donor, 0) <= CHANCES

    @property
    def moving(self) -> bytes | None:
        """The digest of what arrives, from a donor that has not failed us again and again."""
        if self._receiving is None or self.donor is None or not self.is_likely(self.donor):
            return None
        return self._receiving.digest

    def advance(self, donors: Mapping[OriginId, int], now: float, wanted: bytes = NEWEST) -> None:
        """Asks a neighbour for a copy, unless one is sending. donors: who has it by what they say, each with its
        round."""
        if wanted != self.wanted:
            self._drop()
            self._tried.clear()
            self.wanted, self._ask_at = wanted, 0.0
        if self.donor is not None:
            self._deadline.look(self._held, now)
            if now >= self._deadline.until:
                self._doubt(self.donor, donors, now)
        if self.donor is None and not self.is_adopting:
            self._ask(donors, now)

    def wake_at(self, now: float) -> float:
        if self.donor is not None:
            return self._deadline.until
        return self._ask_at if now < self._ask_at else float("inf")

    def offered(self, peer: OriginId, offer: Offer, now: float) -> None:
        """Takes a donor's offer. Raises PeerError if it cannot be a copy."""
        if offer.size > self._rules.copy_bytes_max or offer.round > self._rules.rounds:
            raise PeerError(f"offers a copy of {offer.size:,} bytes for round {offer.round}", reason="limit")
        if peer != self.donor or self.is_adopting:
            return
        if self.wanted not in (NEWEST, offer.digest):
            self._next()
            return
        is_first = self._receiving is None
        if self._receiving is not None and self._receiving.digest != offer.digest:
            self._changes += 1
            if self._changes > CHANGES_MAX:
                self._next()
                return
            self._carrier.stop(peer, self._receiving.digest)
            self._deadline.held = 0  # and it has no more time than before
        try:
            self._receiving = self._carrier.accept(peer, offer.digest, offer.size, now)
        except PeerError:  # nothing of this run has its size
            self._trust.failed(peer)
            self._next()
            return
        self.round = offer.round
        if is_first:
            self._begin_deadline(peer, now)
        if self._receiving.is_whole:
            self.arrived(peer, self._receiving)

    def declined(self, peer: OriginId) -> None:
        if peer == self.donor and self._receiving is None:
            self._next()

    def arrived(self, peer: OriginId, receiving: Receiving) -> None:
        """All bytes of a content are here. If it is the copy, orders to adopt it."""
        if receiving is self._receiving:
            self.is_adopting, self._giver, self.donor, self._receiving = True, peer, None, None
            self._tried.add(peer)  # if it is not what was offered, the next one is asked
            if self.wanted == NEWEST:
                self._outbox.order(Adopt(peer, receiving.digest, receiving.sink))
            else:
                self._serve.withdraw()  # what we have held is about to be replaced
                self._outbox.order(Take(peer, receiving.digest, receiving.sink, self.is_backed))

    def adopted(self, *, is_right: bool) -> None:
        self.is_adopting, self.is_adopted = False, is_right
        if not is_right and self._giver is not None:
            self._trust.failed(self._giver)

    def connected(self, peer: OriginId) -> None:
        if peer == self.donor:
            self._carrier.send(peer, Want(self.wanted))

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

    def _ask(self, donors: Mapping[OriginId, int], now: float) -> None:
        ranked = self._rank(donors)
        untried = [peer for peer in ranked if peer not in self._tried]
        if ranked and not untried:  # all of them refused: not at once again
            self._tried.clear()
            self._ask_at = now + ASK_SECONDS
        elif untried and now >= self._ask_at:
            self.donor = untried[0]
            self._begin_deadline(self.donor, now)
            self._carrier.send(self.donor, Want(self.wanted))

    def _rank(self, donors: Mapping[OriginId, int]) -> list[OriginId]:
        """Linked donors. First those that failed us least often."""
        able = [peer for peer in donors if peer in self._neighbours]
        return sorted(able, key=lambda peer: (self._trust.failures.get(peer, 0), -donors[peer], peer))

    def _doubt(self, donor: OriginId, donors: Mapping[OriginId, int], now: float) -> None:
        """The donor is too slow. If it gave anything it goes on, with half as much to give, unless another one has
        failed us less often; who had no place before may have one now."""
        self._trust.failed(donor)
        if self._held <= self._deadline.held:
            self._next()
            return
        self._tried.clear()
        if self._rank(donors)[:1] == [donor]:
            self._begin_deadline(donor, now)
        else:
            self._drop()

    def _begin_deadline(self, donor: OriginId, now: float) -> None:
        least = self._bounds.least_bytes(STILL_SECONDS, self._trust.failures.get(donor, 0))
        self._deadline = TransferDeadline(self._held, least, now)

    @property
    def _held(self) -> int:
        return self._receiving.held if self._receiving is not None else 0

    def _next(self) -> None:
        if self.donor is not None:
            self._tried.add(self.donor)
        self._drop()

    def _drop(self) -> None:
        if self.donor is not None and self._receiving is not None:
            self._carrier.stop(self.donor, self._receiving.digest)
        self.donor, self._receiving, self._changes = None, None, 0


@dataclass(slots=True)
class Place:
    """A host that is served since then, or is about to be, with what it wanted."""

    since: float
    wanted: bytes
    offer: Offer | None = None
    sending: Sending | None = None
    deadline: TransferDeadline | None = None


class Serve:
    """The side that gives copies: of the newest checkpoint, and of the replica with which we end."""

    def __init__(self, bounds: Bounds, carrier: Carrier, outbox: Outbox[Outputs]) -> None:
        self._least = bounds.least_bytes(STILL_SECONDS, CHANCES)
        self._carrier = carrier
        self._outbox = outbox
        self._places: dict[OriginId, Place] = {}
        self._rest_until: dict[OriginId, float] = {}
        self._final: tuple[Content, int] | None = None
        """Our replica at the end of the run, and the round."""

    @property
    def peers(self) -> Collection[OriginId]:
        """The hosts that are served, or are about to be."""
        return self._places.keys()

    def publish(self, content: Content, round_: int) -> None:
        """With this replica we end, as far as we know."""
        self.withdraw()
        self._rest_until.clear()  # nobody has taken anything of this one
        self._final = content, round_

    def withdraw(self) -> None:
        """The replica is about to be replaced: nothing of it is sent any more."""
        self._final = None
        self._free(peer for peer, place in self._places.items() if place.wanted != NEWEST)

    def wanted(self, peer: OriginId, wanted: bytes, now: float, *, can_serve: bool) -> None:
        place = self._places.get(peer)
        if place is not None and place.wanted != wanted:
            self._rest(peer, now)
            place = None
        if place is not None:
            if place.offer is not None:
                self._carrier.send(peer, place.offer)  # it lost the link, and goes on
            return
        has_it = can_serve if wanted == NEWEST else self._final is not None and self._final[0].digest == wanted
        is_resting = now < self._rest_until.get(peer, 0.0)
        places, of_resting = (PLACES, 0) if wanted == NEWEST else (LAST_PLACES, RESTING_PLACES)
        taken = sum((place.wanted == NEWEST) == (wanted == NEWEST) for place in self._places.values())
        if not has_it or taken >= (of_resting if is_resting else places):
            self._carrier.send(peer, Decline(Kind.COPY, 0, Reason.BUSY, 0))
            return
        self._places[peer] = Place(now, wanted)
        if wanted == NEWEST:
            self._outbox.order(OpenCopy(peer))
        elif self._final is not None:
            self.opened(peer, *self._final, now)

    def opened(self, peer: OriginId, content: Content | None, round_: int, now: float) -> None:
        """Answers an `OpenCopy`. content: None if there is nothing."""
        place = self._places.get(peer)
        if place is None:
            return
        if content is None:
            del self._places[peer]
            self._carrier.send(peer, Decline(Kind.COPY, 0, Reason.BUSY, 0))
            return
        place.sending, place.deadline = self._carrier.offer(peer, content), TransferDeadline(0, self._least, now)
        place.offer = Offer(Kind.COPY, round_, content.digest, content.size)
        self._carrier.send(peer, place.offer)

    def advance(self, now: float) -> None:
        for peer, place in list(self._places.items()):
            sending, deadline = place.sending, place.deadline
            if sending is None or deadline is None:
                continue
            deadline.look(sending.taken, now)
            if sending.is_done or now >= deadline.until:
                self._rest(peer, now)

    def wake_at(self) -> float:
        return min(
            (one.deadline.until for one in self._places.values() if one.deadline is not None), default=float("inf")
        )

    def _rest(self, peer: OriginId, now: float) -> None:
        self._rest_until[peer] = now + REST_FACTOR * max(now - self._places[peer].since, ASK_SECONDS)
        self._free([peer])

    def _free(self, peers: Iterable[OriginId]) -> None:
        for peer in list(peers):
            sending = self._places.pop(peer).sending
            if sending is not None:
                self._carrier.withdraw(peer, sending.content.digest)
