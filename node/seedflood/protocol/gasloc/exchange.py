"""The exchange of a round: its partners, how far each pair is, and how long to wait.

An end that has all of its partner's parameters waits until the partner has all of ours, because ours must not change
before. So both ends mix, or none does, unless one of them dies, is cut off, or comes to its deadline: then one mixes
alone. It does not know what the node does next (`algorithm`), how bytes are transferred (`transfer`), or what they
mean.

What that does to the mean of all replicas: docs/explanation/gossip.md.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from seedflood.errors import PeerError
from seedflood.protocol.gasloc.carrier import Carrier
from seedflood.protocol.gasloc.matching import Edge, Lottery, edge_of, match
from seedflood.protocol.gasloc.messages import Decline, Kind, Offer, Reason
from seedflood.protocol.gasloc.orders import Share
from seedflood.protocol.gasloc.pace import Pace
from seedflood.protocol.gasloc.pairing import Pairing, PairStage
from seedflood.protocol.gasloc.rules import Bounds, GaslocRules
from seedflood.protocol.gasloc.statement import known_graph, standing_still
from seedflood.protocol.gasloc.transfer import Content, Receiving
from seedflood.protocol.gasloc.trust import Trust
from seedflood.protocol.origin import OriginId
from seedflood.protocol.swarm.outputs import Outbox, Outputs
from seedflood.protocol.swarm.presence import Presence
from seedflood.protocol.view import Blocker

DECLINE_HOPS = 4
"""How long a word may take that a pair does not mix, as a part of the eight hops that a transfer may take besides."""


@dataclass(eq=False, repr=False)
class Exchange:
    """One exchange after the other. round: the one that is exchanged, or was last. content: our parameters for it; None
    if none is exchanged. mixed, skipped: how many pairs, in this life. seconds: what the last exchange took."""

    _rules: GaslocRules
    _bounds: Bounds
    _presence: Presence
    _pace: Pace
    _carrier: Carrier
    _trust: Trust
    _outbox: Outbox[Outputs]
    round: int = -1
    mixed: int = 0
    skipped: int = 0
    seconds: float = 0.0
    pairs: tuple[Edge, ...] = ()
    """Our own ones of the round, as we know it."""
    partners: tuple[OriginId, ...] = ()
    """The partners with whom the last exchange mixed."""
    content: Content | None = None
    _slots: int = 0
    _began_at: float = 0.0
    _open_until: float = 0.0
    _pairings: dict[OriginId, Pairing] = field(default_factory=dict)
    """Those of the last exchange stay until the next one begins."""
    _offers: dict[OriginId, Offer] = field(default_factory=dict)
    """The last one of each neighbour."""

    def __post_init__(self) -> None:
        self._origin = self._presence.ours.origin
        self._lottery = Lottery(self._rules.run_seed)

    @property
    def is_open(self) -> bool:
        return self.content is not None

    @property
    def is_over(self) -> bool:
        """Does the round wait for nobody any more?"""
        return not any(pairing.is_pending for pairing in self._pairings.values())

    @property
    def is_vain(self) -> bool:
        """Were all pairs skipped?"""
        return all(pairing.stage is PairStage.SKIPPED for pairing in self._pairings.values())

    # A round

    def begin(self, round_: int, content: Content, now: float) -> None:
        """Offers our parameters to the partners of the round."""
        self.round, self.content, self._began_at = round_, content, now
        self._open_until = now + self._pace.wait_seconds()
        self._pace.size, self._pairings = content.size, {}
        slots = self._rules.slots_of(round_)
        still = standing_still(self._presence.membership, self._pace.silent(now), self._origin, round_)
        graph = known_graph(self._presence.membership, still, is_any=self._rules.is_closing(round_))
        partners = match(graph, self._lottery, round_, slots).get(self._origin, ())
        self.pairs = tuple(edge_of(self._origin, partner) for partner in partners)
        self._slots = slots or max(1, len(partners))
        names = self._presence.membership.names(partners)
        self._outbox.log("matched", "debug", round=round_, partners=names)
        for partner in partners:
            if partner in self._presence.neighbours and self._trust.is_trusted(partner, round_):
                self._open(partner, now)
        for peer, offer in list(self._offers.items()):
            if offer.round == round_ and peer not in self._pairings and peer in self._presence.neighbours:
                self._consider(peer, offer, now)

    def end(self, now: float) -> tuple[Share, ...]:
        """Ends the round. Returns what is mixed."""
        assert self.content is not None, "a round ends once"
        assert self.is_over, "somebody is waited for"
        mixed = [one for one in self._pairings.values() if one.stage is PairStage.MIXED]
        shares = sorted((one.share for one in mixed), key=lambda share: share.partner)
        for partner in self._pairings:
            self._carrier.withdraw(partner, self.content.digest)
        for pairing in mixed:
            pairing.sink = None
        self.mixed += len(mixed)
        self.content = None
        self.seconds = self._pace.exchange_seconds = now - self._began_at
        self.partners = tuple(share.partner for share in shares)
        return tuple(shares)

    def abandon(self, now: float) -> None:
        """We leave, so no partner is waited for any more."""
        for pairing in self._pairings.values():
            self._give_up(pairing, Reason.AWAY, now)

    def refused(self, partners: Iterable[OriginId]) -> None:
        """What these partners sent was not what they had offered, so it was not mixed."""
        for partner in partners:
            self._trust.lied(partner, self.round)
            self.mixed -= 1
            self._log_skipped(partner, self.round, "digest")

    def _open(self, partner: OriginId, now: float) -> None:
        assert self.content is not None, "nothing is encoded"
        content, encoding = self.content, self._rules.encoding_of(self.round)
        ours = Offer(Kind.ROUND, self.round, content.digest, content.size, self._slots, encoding)
        sending = self._carrier.offer(partner, content)
        pairing = Pairing(partner, ours, sending, now, self._open_until)
        self._pairings[partner] = pairing
        self._carrier.send(partner, ours)
        offer = self._offers.get(partner)
        if offer is not None and offer.round == self.round:
            self._begin_transfer(pairing, offer, now)

    def _consider(self, peer: OriginId, offer: Offer, now: float) -> None:
        """Handles an offer of a neighbour that is not our partner in our view of the graph; its view differs. It is
        accepted if a place is left."""
        taken = sum(one.stage is not PairStage.SKIPPED for one in self._pairings.values())
        if not self._trust.is_trusted(peer, self.round):
            self._decline(peer, offer, Reason.DISTRUST)
        elif taken >= self._slots:
            self._decline(peer, offer, Reason.TAKEN)
        elif now > self._open_until:
            self._decline(peer, offer, Reason.LATE)  # else late offers could hold us up one after the other
        else:
            self._open(peer, now)

    def _begin_transfer(self, pairing: Pairing, offer: Offer, now: float) -> None:
        """The partner has reached the round, too: starts the transfer."""
        pairing.theirs = offer
        pairing.enter(PairStage.MOVING)
        size = pairing.ours.size + offer.size
        pairing.deadline = now + self._pace.transfer_seconds(pairing.partner, size)
        try:
            receiving = self._carrier.accept(pairing.partner, offer.digest, offer.size, now)
        except PeerError:
            self._refuse(pairing, "size")
            return
        if receiving.is_whole:
            self.arrived(pairing.partner, receiving, now)

    # What partners say

    def offered(self, peer: OriginId, offer: Offer, now: float, our_round: int) -> None:
        """Takes an offer. our_round: the next one that we exchange, if none is being exchanged. Raises PeerError for
        what is never offered. The first offer for a round counts: a host that was started again may make a second
        one."""
        self._check_offer(peer, offer)
        if self._is_second(peer, offer):
            self._decline(peer, offer, Reason.PASSED)
            return
        self._offers[peer] = offer
        our_round = self.round if self.is_open else our_round
        pairing = self._pairing_of(peer, offer.round)
        if pairing is not None and pairing.stage in (PairStage.HELD, PairStage.MIXED):
            self._carrier.confirm(peer, offer.digest, offer.size)  # it does not know yet that we have all of it
        elif offer.round < our_round:
            self._decline(peer, offer, Reason.PASSED)
        elif not self.is_open or offer.round > our_round:
            return  # it is handled when we reach that round
        elif pairing is None:
            self._consider(peer, offer, now)
        elif pairing.stage is PairStage.OFFERED:
            self._begin_transfer(pairing, offer, now)
        elif pairing.stage is PairStage.SKIPPED:
            self._decline(peer, offer, Reason.LATE)

    def declined(self, peer: OriginId, decline: Decline) -> None:
        """The partner does not mix with us, so we do not mix with it, even if we have all of its parameters."""
        pairing = self._pairing_of(peer, decline.round)
        if pairing is not None and pairing.is_pending:
            self._skip(pairing, decline.reason.name.lower())

    def arrived(self, peer: OriginId, receiving: Receiving, now: float) -> None:
        """All bytes of a content are here."""
        pairing = self._pairings.get(peer)
        if pairing is None or pairing.theirs is None or pairing.theirs.digest != receiving.digest:
            return
        if pairing.stage is PairStage.MOVING:
            pairing.enter(PairStage.HELD)
            pairing.sink = receiving.sink
            rate = receiving.throughput(now)
            if rate is not None:
                self._pace.measured(peer, rate)

    def remind(self) -> None:
        """Called now and then: repeats what may have been lost."""
        for partner in self._pairings:
            self._offer_again(partner)

    def connected(self, peer: OriginId) -> None:
        self._offer_again(peer)

    def disconnected(self, peer: OriginId) -> None:
        self._offers.pop(peer, None)

    # Time

    def advance(self, now: float) -> None:
        """Ends pairs of which both ends have all, and gives up partners whose deadline has passed. A partner whose link
        broke has less time."""
        for partner, pairing in self._pairings.items():
            if not pairing.is_pending:
                continue
            if pairing.stage is PairStage.HELD and pairing.sending.is_done:
                self._mix(pairing)
                continue
            if partner in self._presence.neighbours:
                pairing.lost_at = None
            elif pairing.lost_at is None:
                pairing.lost_at = now
            if now >= self._end_of(pairing):
                self._give_up(pairing, Reason.LATE, now)

    def wake_at(self) -> float:
        pending = (self._end_of(one) for one in self._pairings.values() if one.is_pending)
        return min(pending, default=float("inf"))

    def blockers(self) -> Iterator[Blocker]:
        membership = self._presence.membership
        for pairing in self._pairings.values():
            if pairing.is_pending:
                step = pairing.ours.round * self._rules.local_steps
                yield Blocker("partner", pairing.partner, membership.name(pairing.partner), step, pairing.since)

    def _end_of(self, pairing: Pairing) -> float:
        """Who lacks parameters gives up a little sooner than who has them, which learns of it and does not mix
        alone."""
        deadline = pairing.deadline
        if pairing.stage is PairStage.MOVING:
            deadline -= DECLINE_HOPS * self._pace.hop_seconds
        if pairing.lost_at is None:
            return deadline
        return min(deadline, pairing.lost_at + self._bounds.relink_seconds)

    # How a pair ends

    def _give_up(self, pairing: Pairing, reason: Reason, now: float) -> None:
        """Stops waiting for a partner. What we have of it is mixed."""
        if pairing.stage is PairStage.HELD:
            self._mix(pairing)
        elif pairing.is_pending:
            if pairing.stage is PairStage.MOVING and reason is Reason.LATE:
                self._pace.failed(pairing.partner)
            self._carrier.send(pairing.partner, Decline(Kind.ROUND, pairing.ours.round, reason, self.round))
            self._skip(pairing, reason.name.lower())

    def _mix(self, pairing: Pairing) -> None:
        pairing.enter(PairStage.MIXED)
        name = self._presence.membership.name(pairing.partner)
        self._outbox.log("exchanged", "debug", partner=name, round=pairing.ours.round, bytes=pairing.ours.size)

    def _skip(self, pairing: Pairing, reason: str) -> None:
        pairing.enter(PairStage.SKIPPED)
        pairing.sink = None
        if pairing.theirs is not None:
            # To stop it aloud would read as if we had all of it.
            self._carrier.forget(pairing.partner, pairing.theirs.digest)
        self._carrier.withdraw(pairing.partner, pairing.ours.digest)
        self._log_skipped(pairing.partner, pairing.ours.round, reason)

    def _log_skipped(self, partner: OriginId, round_: int, reason: str) -> None:
        self.skipped += 1
        name = self._presence.membership.name(partner)
        self._outbox.log("exchange skipped", partner=name, round=round_, reason=reason)

    def _refuse(self, pairing: Pairing, reason: str) -> None:
        """Distrusts a partner that offers something else than parameters of this run."""
        self._trust.lied(pairing.partner, self.round)
        self._carrier.send(pairing.partner, Decline(Kind.ROUND, pairing.ours.round, Reason.DISTRUST, self.round))
        self._skip(pairing, reason)

    def _decline(self, peer: OriginId, offer: Offer, reason: Reason) -> None:
        self._carrier.send(peer, Decline(Kind.ROUND, offer.round, reason, max(self.round, 0)))

    def _offer_again(self, partner: OriginId) -> None:
        pairing = self._pairings.get(partner)
        if self.is_open and pairing is not None and pairing.is_pending:
            self._carrier.send(partner, pairing.ours)

    def _check_offer(self, peer: OriginId, offer: Offer) -> None:
        rules = self._rules
        if offer.round >= rules.rounds:
            raise PeerError(f"offers round {offer.round} of {rules.rounds}", reason="limit")
        if offer.size > rules.content_bytes_max:
            raise PeerError(f"offers {offer.size:,} bytes, more than a replica takes", reason="limit")
        if offer.encoding != rules.encoding_of(offer.round) or not offer.degree:
            raise PeerError("offers parameters that this run does not exchange", reason="limit")

    def _is_second(self, peer: OriginId, offer: Offer) -> bool:
        """Has it offered something else for the same round?"""
        pairing = self._pairings.get(peer)
        known = self._offers.get(peer) or (pairing.theirs if pairing is not None else None)
        return known is not None and known.round == offer.round and known != offer

    def _pairing_of(self, peer: OriginId, round_: int) -> Pairing | None:
        """Our pair with a host in that round, if it is the latest; its round may be over."""
        pairing = self._pairings.get(peer)
        return pairing if pairing is not None and pairing.ours.round == round_ else None
