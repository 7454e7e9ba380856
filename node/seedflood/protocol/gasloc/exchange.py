"""The exchange of a round: its partners, how far each pair is, and how long to wait.

It does not know what the node does next (`algorithm`), how bytes are transferred (`transfer`), or what they mean.

A partner that is not in our own matching is accepted only while the first partners may still come. Otherwise late ones
could hold us up one after the other.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from seedflood.errors import PeerError
from seedflood.protocol.gasloc.carrier import Carrier
from seedflood.protocol.gasloc.ledger import Ledger
from seedflood.protocol.gasloc.matching import Edge, Lottery, edge_of, match
from seedflood.protocol.gasloc.messages import Decline, Kept, Kind, Offer, Outcome, Reason
from seedflood.protocol.gasloc.orders import Correct, Drop, Keep, Share
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


@dataclass(eq=False, repr=False)
class Exchange:
    """One exchange after the other. round: the one that is exchanged, or was last. content: our parameters for it; None
    if none is exchanged. mixed, skipped: how many pairs, in this life. seconds: what the last exchange took. news: how
    many messages moved a pair on; of each kind there is one per round and partner."""

    _rules: GaslocRules
    _bounds: Bounds
    _presence: Presence
    _pace: Pace
    _ledger: Ledger
    _carrier: Carrier
    _trust: Trust
    _outbox: Outbox[Outputs]
    round: int = -1
    mixed: int = 0
    skipped: int = 0
    news: int = 0
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
        self._outbox.tell("matched", "debug", round=round_, partners=names)
        for partner in partners:
            if partner in self._presence.neighbours and self._trust.is_trusted(partner, round_):
                self._open(partner, now)
        for peer, offer in list(self._offers.items()):
            if offer.round == round_ and peer not in self._pairings and peer in self._presence.neighbours:
                self._consider(peer, offer, now)

    def end(self, now: float) -> tuple[Share, ...]:
        """Ends the round. Returns the partners that mix with us. Pairs in doubt stay in doubt."""
        assert self.content is not None, "a round ends once"
        assert self.is_over, "somebody is waited for"
        shares = tuple(one.share for one in self._pairings.values() if one.stage is PairStage.MIXED)
        for partner in self._pairings:
            self._carrier.withdraw(partner, self.content.digest)
        self.content = None
        self.seconds = self._pace.exchange_seconds = now - self._began_at
        self.partners = tuple(sorted(share.partner for share in shares))
        return tuple(sorted(shares))

    def abandon(self, now: float) -> None:
        """We leave, so no partner is waited for any more."""
        for pairing in self._pairings.values():
            self._give_up(pairing, Reason.AWAY, now)

    def _open(self, partner: OriginId, now: float) -> None:
        if self._ledger.doubt(partner) is not None:
            self._remind(partner)
            return
        assert self.content is not None, "nothing is encoded"
        content, encoding = self.content, self._rules.encoding_of(self.round)
        ours = Offer(Kind.ROUND, self.round, content.digest, content.size, self._slots, encoding)
        is_decider = self._decides(partner, self.round)
        pairing = Pairing(partner, is_decider, ours, now, self._open_until)
        self._pairings[partner] = pairing
        self._ledger.offer(partner, self.round, content.digest)
        self._carrier.offer(partner, content)
        self._carrier.say(partner, ours)
        offer = self._offers.get(partner)
        if offer is not None and offer.round == self.round:
            self._begin_transfer(pairing, offer, now)

    def _consider(self, peer: OriginId, offer: Offer, now: float) -> None:
        """Handles an offer of a neighbour that is not our partner in our view of the graph; its view differs. It is
        accepted if a place is left."""
        taken = sum(one.stage is not PairStage.SKIPPED for one in self._pairings.values())
        if not self._trust.is_trusted(peer, self.round):
            self._decline(peer, offer, Reason.DISTRUST)
        elif self._ledger.doubt(peer) is not None:
            self._decline(peer, offer, Reason.DOUBT)
            self._remind(peer)
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
        what is never offered. The first offer for a round counts: a host whose key was copied may make a second one,
        before it has heard how far its other life is."""
        self._check_offer(peer, offer)
        if self._is_second(peer, offer):
            self._decline(peer, offer, Reason.PASSED)
            return
        self._offers[peer] = offer
        our_round = self.round if self.is_open else our_round
        pairing = self._pairings.get(peer) if self.is_open else None
        if offer.round < our_round:
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
        pairing = self._pairing_of(peer, decline.round)
        if pairing is None or not pairing.is_pending:
            return
        if pairing.may_skip:
            self._skip(pairing, decline.reason.name.lower())
        else:
            self._remind(peer)  # a partner that has forgotten the pair may have decided to mix before

    def arrived(self, peer: OriginId, receiving: Receiving, now: float) -> None:
        """All bytes of a content are here."""
        pairing = self._pairings.get(peer)
        if pairing is None or pairing.theirs is None or pairing.theirs.digest != receiving.digest:
            return
        if pairing.stage is PairStage.MOVING:
            pairing.enter(PairStage.KEEPING)
            rate = receiving.throughput(now)
            if rate is not None:
                self._pace.measured(peer, rate)
            self._outbox.order(Keep(pairing.ours.round, peer, receiving.digest, receiving.sink))

    def kept(self, round_: int, partner: OriginId, digest: bytes, *, is_right: bool) -> None:
        """A `Keep` is done."""
        pairing = self._pairing_of(partner, round_)
        if pairing is None or pairing.stage is not PairStage.KEEPING:
            self._outbox.order(Drop(round_, partner))
        elif not is_right:
            self._refuse(pairing, "digest")
        else:
            pairing.enter(PairStage.HELD)
            if not pairing.is_decider:
                self._ledger.prepare(partner, round_, pairing.degree, digest)
                self._carrier.say(partner, Kept(round_, digest))
            elif pairing.has_kept:
                self._decide(pairing)

    def heard_kept(self, peer: OriginId, kept: Kept) -> None:
        """The peer holds what we sent, and waits for our decision. Raises PeerError if the decision is its own."""
        if not self._decides(peer, kept.round):
            raise PeerError("asks for a word that is its own", reason="order")
        pairing = self._pairing_of(peer, kept.round)
        if pairing is not None and pairing.is_pending and pairing.ours.digest == kept.digest:
            self.news += not pairing.has_kept
            pairing.has_kept = True
            if pairing.stage is PairStage.HELD:
                self._decide(pairing)
        else:
            self._carrier.say(peer, Outcome(kept.round, self._ledger.has_mixed(peer, kept.round)))

    def heard_outcome(self, peer: OriginId, outcome: Outcome) -> None:
        """The decision about the pair that we are prepared for."""
        entry = self._ledger.doubt(peer)
        if entry is None or entry.round != outcome.round:
            return
        self.news += 1
        self._ledger.settle(peer, entry, is_mixed=outcome.is_mixed)
        pairing = self._pairing_of(peer, entry.round)
        if not outcome.is_mixed:
            self._outbox.order(Drop(entry.round, peer))
            if pairing is not None:
                self._skip(pairing, "late")
        elif pairing is not None and self.is_open:
            self._finish(pairing)
        else:
            self.mixed += 1
            self._outbox.order(Correct(entry.round, peer, entry.weight))
            name = self._presence.membership.name(peer)
            self._outbox.tell("mixed late", partner=name, round=entry.round)

    def remind(self) -> None:
        """Called now and then: repeats what may have been lost."""
        for partner in self._pairings:
            self._offer_again(partner)
        for partner, _ in self._ledger.doubts():
            self._remind(partner)

    def connected(self, peer: OriginId) -> None:
        self._offer_again(peer)
        self._remind(peer)

    def disconnected(self, peer: OriginId) -> None:
        self._offers.pop(peer, None)

    # Time

    def advance(self, now: float) -> None:
        """Gives up partners whose deadline has passed. A partner whose link broke has less time."""
        for partner, pairing in self._pairings.items():
            if not pairing.is_pending:
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
        if pairing.lost_at is None:
            return pairing.deadline
        return min(pairing.deadline, pairing.lost_at + self._bounds.relink_seconds)

    def _give_up(self, pairing: Pairing, reason: Reason, now: float) -> None:
        """Stops waiting for a partner. A decision that was made, or that the partner makes, is not changed by this."""
        if not pairing.is_pending:
            return
        if not pairing.may_skip:
            pairing.enter(PairStage.DOUBT)
            return
        if pairing.stage is PairStage.MOVING and reason is Reason.LATE:
            self._pace.failed(pairing.partner)
        self._carrier.say(pairing.partner, Decline(Kind.ROUND, pairing.ours.round, reason, self.round))
        if pairing.is_decider:
            self._carrier.say(pairing.partner, Outcome(pairing.ours.round, is_mixed=False))
        self._skip(pairing, reason.name.lower())

    # How a pair ends

    def _decide(self, pairing: Pairing) -> None:
        """Both ends hold the other's parameters: decides durably that the pair mixes, whatever happens then."""
        assert pairing.theirs is not None, "nothing is held of the partner"
        self._ledger.decide(pairing.partner, pairing.ours.round, pairing.degree, pairing.theirs.digest)
        self._carrier.say(pairing.partner, Outcome(pairing.ours.round, is_mixed=True))
        self._finish(pairing)

    def _finish(self, pairing: Pairing) -> None:
        pairing.enter(PairStage.MIXED)
        self.mixed += 1
        name = self._presence.membership.name(pairing.partner)
        self._outbox.tell("exchanged", "debug", partner=name, round=pairing.ours.round, bytes=pairing.ours.size)

    def _skip(self, pairing: Pairing, reason: str) -> None:
        if pairing.stage is PairStage.HELD and pairing.is_decider:
            self._outbox.order(Drop(pairing.ours.round, pairing.partner))
        pairing.enter(PairStage.SKIPPED)
        self.skipped += 1
        if pairing.theirs is not None:
            self._carrier.stop(pairing.partner, pairing.theirs.digest)
        self._carrier.withdraw(pairing.partner, pairing.ours.digest)
        name = self._presence.membership.name(pairing.partner)
        self._outbox.tell("exchange skipped", partner=name, round=pairing.ours.round, reason=reason)

    def _refuse(self, pairing: Pairing, reason: str) -> None:
        """Distrusts a partner that offers or sends something else than parameters of this run."""
        self._trust.lied(pairing.partner, self.round)
        self._carrier.say(pairing.partner, Decline(Kind.ROUND, pairing.ours.round, Reason.DISTRUST, self.round))
        self._skip(pairing, reason)

    def _decline(self, peer: OriginId, offer: Offer, reason: Reason) -> None:
        self._carrier.say(peer, Decline(Kind.ROUND, offer.round, reason, max(self.round, 0)))

    def _offer_again(self, partner: OriginId) -> None:
        pairing = self._pairings.get(partner)
        if self.is_open and pairing is not None and pairing.stage in (PairStage.OFFERED, PairStage.MOVING):
            self._carrier.say(partner, pairing.ours)

    def _remind(self, partner: OriginId) -> None:
        """Asks the partner for its decision, if we are prepared for a pair with it."""
        entry = self._ledger.doubt(partner)
        if entry is not None:
            self._carrier.say(partner, Kept(entry.round, entry.theirs))

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

    def _decides(self, partner: OriginId, round_: int) -> bool:
        """Is the decision about this pair ours?"""
        return self._lottery.first(round_, (self._origin, partner)) == self._origin
