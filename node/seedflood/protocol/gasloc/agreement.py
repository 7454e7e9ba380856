"""Exact agreement in a round: all hosts go on from the same parameters, the mean of theirs.

**Reduce along a tree, broadcast by flooding.** A host waits for the sums of its children in the tree (`tree`), adds its
own parameters, and offers their mean to its parent, with the number of hosts in it. The root's mean is the result. A
host that has the result offers it to all neighbours, and everyone takes it from the first one that does. Each host, the
root too, goes on from the decoded bytes. So replicas are equal bit by bit, whatever the encoding. The root states the
digest of its result to everyone before it offers it, and no other result is taken (`testimony`).

**Views of the graph may differ.** If a host is the parent of another one only in its own view, it is told so and does
not wait. A host that is offered a sum takes it, whatever its view is. A sum is final before it is offered, so nobody is
counted twice.

**Every wait is bounded.** A child that is missing is left out, with its whole subtree. A host without a result in time
keeps its parameters, and the next round heals it. Two roots (because their views differed) give two results; the next
round heals that, too.

gathering  waits for the sums of the children
summing    the compute side computes the mean
waiting    our mean is offered to the parent; waits for the result
fetching   the result is being received
taking     the compute side checks the result, and goes on from it
agreed     done; the result is offered to all neighbours
missed     there is no result for us

It does not know what the node does next (`algorithm`), or how bytes are transferred (`transfer`).
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from seedflood.errors import PeerError
from seedflood.protocol.gasloc.carrier import Carrier
from seedflood.protocol.gasloc.ledger import Ledger
from seedflood.protocol.gasloc.messages import Decline, Kind, Offer, Reason
from seedflood.protocol.gasloc.orders import Agree, Gather, Total
from seedflood.protocol.gasloc.outbox import Outbox
from seedflood.protocol.gasloc.pace import Pace
from seedflood.protocol.gasloc.rules import Bounds, GaslocRules
from seedflood.protocol.gasloc.stated import Result
from seedflood.protocol.gasloc.testimony import Testimony
from seedflood.protocol.gasloc.transfer import Content, Receiving, Sending, Sink
from seedflood.protocol.gasloc.trust import Trust
from seedflood.protocol.lifecycle import follow
from seedflood.protocol.origin import OriginId
from seedflood.protocol.swarm.presence import Presence
from seedflood.protocol.view import Blocker

LAST_WAIT_FACTOR = 3
"""At the end of a run we wait this many times as long, because a host that misses that agreement has to take a copy."""


UNCOUNTED_ROUNDS = 3
"""After so many results without our parameters we say what can be done about it, and again each time that they are
twice as many, as long as they are a third of all."""


class Stage(StrEnum):
    GATHERING = "gathering"
    SUMMING = "summing"
    WAITING = "waiting"
    FETCHING = "fetching"
    TAKING = "taking"
    AGREED = "agreed"
    MISSED = "missed"


TRANSITIONS: Mapping[Stage, tuple[Stage, ...]] = {
    Stage.GATHERING: (Stage.SUMMING, Stage.WAITING, Stage.FETCHING, Stage.MISSED),
    Stage.SUMMING: (Stage.WAITING, Stage.TAKING, Stage.MISSED),
    Stage.WAITING: (Stage.FETCHING, Stage.MISSED),
    Stage.FETCHING: (Stage.TAKING, Stage.WAITING, Stage.MISSED),
    Stage.TAKING: (Stage.AGREED, Stage.WAITING, Stage.MISSED),
    Stage.AGREED: (),
    Stage.MISSED: (),
}
"""Which stage may follow which in one round. From gathering to waiting: we have no children, so our own parameters are
offered. To fetching: the others have a result without us. Back to waiting: what was fetched was not a result, or its
link broke."""


@dataclass(slots=True)
class Below:
    """A child whose sum we wait for. hosts: how many may be in it, by the graph that we know; one if it is not our
    child. offer: of the sum, once it has come. is_here: all bytes of the sum are here."""

    deadline: float
    hosts: int = 1
    offer: Offer | None = None
    is_here: bool = False


class Agreement:
    """The agreement of one round after the other. round: the open one, or the last. content: our parameters for it;
    None if no round is open. agreed, missed: how many rounds, since the process began. uncounted: how many of the
    agreed ones our own parameters are not in. hosts: how many are in the last result. seconds: how long the last round
    took."""

    def __init__(
        self,
        rules: GaslocRules,
        bounds: Bounds,
        presence: Presence,
        pace: Pace,
        ledger: Ledger,
        carrier: Carrier,
        trust: Trust,
        outbox: Outbox,
    ) -> None:
        self.round = -1
        self.agreed = self.missed = self.uncounted = self.hosts = 0
        self.seconds = 0.0
        self.content: Content | None = None
        self.stage = Stage.MISSED
        self.testimony = Testimony(rules, presence, pace, outbox)
        self._origin = presence.ours.origin
        self._rules = rules
        self._bounds = bounds
        self._presence = presence
        self._pace = pace
        self._ledger = ledger
        self._carrier = carrier
        self._trust = trust
        self._outbox = outbox
        self._parent: OriginId | None = None
        self._below: dict[OriginId, Below] = {}
        self._heard: set[OriginId] = set()
        """The hosts whose sums were handled in this round, whether they count or not."""
        self._has_gathered, self._room = False, 0
        """Is any other host in our sum? How many may still come into it: no more than there are, whatever is said."""
        self._began_at = self._until = 0.0
        self._raised: tuple[Offer, Sending] | None = None
        """The sum that we have offered to our parent, and its transfer."""
        self._source: tuple[OriginId, Offer, float] | None = None
        """(the neighbour that sends the result, its offer, the deadline)."""
        self._result: tuple[Offer, Content] | None = None
        """The last result that we have, for neighbours that lack it."""
        self._lost_at: dict[OriginId, float] = {}
        """Since when links are down to hosts that we wait for."""
        self._sums: dict[OriginId, Offer] = {}
        self._results: dict[OriginId, Offer] = {}
        """The last offer of each neighbour."""
        self._given: set[OriginId] = set()
        """The neighbours to which the result is offered."""
        self._elsewhere: dict[OriginId, int] = {}
        """By neighbour: the last round in which it had another parent."""

    @property
    def is_open(self) -> bool:
        return self.content is not None

    @property
    def is_over(self) -> bool:
        """Does the round wait for nobody any more?"""
        return self.stage in (Stage.AGREED, Stage.MISSED)

    @property
    def is_vain(self) -> bool:
        return self.stage is Stage.MISSED

    def is_decided(self, now: float) -> bool:
        """Did a neighbour offer us the result of the agreement at the end of the run?"""
        offers = [offer for offer in self._results.values() if self._rules.is_last_agreement(offer.round)]
        return any(self._is_believed(offer, now) for offer in offers)

    # A round

    def begin(self, round_: int, content: Content, now: float) -> None:
        """Begins a round: waits for the sums of our children, or for a result.

        The last result was still on its way down when we had it already, one transfer for each level below us. So
        children begin later than we do, and those below them later still.
        """
        self.round, self.content, self._began_at = round_, content, now
        self.stage, self._raised, self._source = Stage.GATHERING, None, None
        self._has_gathered = False
        self._heard.clear()
        self._lost_at.clear()
        self._pace.size = content.size
        self._ledger.enter(self._origin, round_)
        place = self.testimony.find_place(round_, now)
        self.testimony.begin(round_, place, now)
        wait = self._pace.wait_seconds() * (LAST_WAIT_FACTOR if self._rules.is_last_agreement(round_) else 1)
        level = self._bounds.transfer_seconds(content.size, None, self._pace.hop_seconds)
        self._until = min(now + wait + (3 * place.height + 1) * level, now + self._bounds.seconds_max)
        self._parent, self._room = place.parent, len(self._presence.membership) - 1
        self._below = {
            child: Below(
                min(now + wait + levels * level + (levels + 1) * self._down(child), self._until), place.hosts[child]
            )
            for child, levels in place.children.items()
            if child in self._presence.neighbours
            and self._trust.is_trusted(child, self.round)
            and self._is_below_us(child)
        }
        self._outbox.tell("agreement begins", "debug", round=round_, below=self._names(self._below))
        for peer in self._presence.neighbours:
            if peer != self._parent:
                self._carrier.say(peer, Decline(Kind.SUM, round_, Reason.TAKEN, round_))
        for peer, offer in list(self._sums.items()):
            self._take_sum(peer, offer, now)
        self._fetch_any(now)
        self._close_if_whole(now)

    def end(self, now: float) -> bool:
        """Ends the round. Returns whether there is a result; our parameters are that result then."""
        assert self.content is not None, "a round ends once"
        assert self.is_over, "somebody is waited for"
        self._withdraw()
        self._tell_of_others()
        self.content = None
        self.seconds = self._pace.exchange_seconds = now - self._began_at
        if self.stage is Stage.AGREED:
            self.agreed += 1
        else:
            self.missed += 1
            self._outbox.tell("no agreement", round=self.round)
        return self.stage is Stage.AGREED

    def abandon(self, now: float) -> None:
        """We leave, so nobody is waited for any more."""
        if not self.is_over:
            self._enter(Stage.MISSED)

    # What neighbours say

    def offered(self, peer: OriginId, offer: Offer, now: float, our_round: int) -> None:
        """Takes an offer of a sum or a result. our_round: the next one, if none is open. Raises PeerError for what is
        never offered."""
        self._check_offer(peer, offer)
        if offer.kind is Kind.SUM:
            self._sums[peer] = offer
            if offer.round < (self.round if self.is_open else our_round):
                self._carrier.say(peer, Decline(Kind.SUM, offer.round, Reason.PASSED, max(self.round, 0)))
            else:
                self._take_sum(peer, offer, now)
        else:
            self._results[peer] = offer
            self._fetch_any(now)

    def declined(self, peer: OriginId, decline: Decline, now: float) -> None:
        """From our parent: our sum does not count. From any other host: it is not our child."""
        if decline.kind is not Kind.SUM:
            return
        if peer == self._parent and self.is_open and decline.round == self.round and decline.reason != Reason.TAKEN:
            self._hurry(now)
        elif decline.reason == Reason.TAKEN:
            self._elsewhere[peer] = decline.round
            if decline.round == self.round and peer in self._below and self._below[peer].offer is None:
                del self._below[peer]
                self._close_if_whole(now)

    def arrived(self, peer: OriginId, receiving: Receiving, now: float) -> None:
        """All bytes of a content are here."""
        digest, sink = receiving.digest, receiving.sink
        below = self._below.get(peer) if self.stage is Stage.GATHERING else None
        if below is not None and below.offer is not None and below.offer.digest == digest and not below.is_here:
            below.is_here = True
            self._measure(peer, receiving, now)
            self._outbox.order(Gather(self.round, peer, digest, below.hosts, sink))
        elif self.stage is Stage.FETCHING and self._is_source(peer, digest):
            self._measure(peer, receiving, now)
            self._enter(Stage.TAKING)
            self._order_agree(digest, sink)

    def connected(self, peer: OriginId, now: float) -> None:
        self._lost_at.pop(peer, None)
        self._repeat(peer, now)

    def disconnected(self, peer: OriginId) -> None:
        self._sums.pop(peer, None)
        self._results.pop(peer, None)

    def heard(self, origins: Collection[OriginId], now: float) -> None:
        """There are new statements of these hosts: of results, perhaps."""
        self.testimony.heard(origins)
        self._fetch_any(now)

    def remind(self, now: float) -> None:
        """Called now and then: repeats what may have been lost."""
        for peer in self._presence.neighbours:
            self._repeat(peer, now)

    # What the compute side answers

    def gathered(self, round_: int, peer: OriginId, now: float, *, is_right: bool) -> None:
        """A `Gather` is done."""
        if round_ != self.round or self.stage is not Stage.GATHERING:
            return
        if is_right:
            self._has_gathered = True
        else:
            self._trust.lied(peer, self.round)
        self._below.pop(peer, None)
        self._close_if_whole(now)

    def totalled(self, round_: int, content: Content | None, hosts: int, now: float) -> None:
        """A `Total` is done."""
        if round_ != self.round or self.stage is not Stage.SUMMING:
            return
        if content is None:
            self._enter(Stage.MISSED)
        elif self._parent is None:
            offer = self._make_offer(Kind.RESULT, content, hosts)
            self._source = self._origin, offer, self._until
            self._enter(Stage.TAKING)
            self._order_agree(content.digest, None)
        else:
            self._raise(self._parent, content, hosts, now)

    def taken(self, round_: int, content: Content | None, now: float) -> None:
        """An `Agree` is done. content: the result; None if it was none."""
        if round_ != self.round or self.stage is not Stage.TAKING or self._source is None:
            return
        source, offer, _ = self._source
        if content is None:
            if source != self._origin:
                self._trust.lied(source, self.round)
            self._fail_fetch(now)
            return
        self._enter(Stage.AGREED)
        self._count_ours()
        self._withdraw()
        self._forget_result()
        self._result, self.hosts = (offer, content), offer.degree
        self.testimony.went_on(Result(offer.round, offer.digest))
        if source == self._origin:
            self._presence.declare()  # before it is offered; nobody believes it without this
        facts = {"hosts": offer.degree, "seconds": round(now - self._began_at, 3)}
        self._outbox.tell("agreed", "debug", round=offer.round, **facts)
        for peer in self._presence.neighbours:
            if peer != source:
                self._give(peer, now)

    # Time

    def advance(self, now: float) -> None:
        """Gives up hosts whose deadline has passed. A host whose link broke has less time."""
        if not self.is_open or self.is_over or self.stage in (Stage.SUMMING, Stage.TAKING):
            return
        for peer in self._awaited():
            if peer in self._presence.neighbours:
                self._lost_at.pop(peer, None)
            else:
                self._lost_at.setdefault(peer, now)
        if self.stage is Stage.FETCHING and self._source is not None:
            if now >= self._end_of(self._source[0], self._source[2]):
                self._fail_fetch(now)
        elif self.stage is Stage.GATHERING:
            for peer, one in list(self._below.items()):
                if not one.is_here and now >= self._end_of(peer, one.deadline):
                    self._leave_out(peer)
            self._close_if_whole(now)
        elif now >= self._end_of_wait():
            self._enter(Stage.MISSED)

    def wake_at(self) -> float:
        if not self.is_open or self.is_over:
            return float("inf")
        if self.stage is Stage.FETCHING and self._source is not None:
            return self._end_of(self._source[0], self._source[2])
        if self.stage is Stage.GATHERING:
            ends = (self._end_of(peer, one.deadline) for peer, one in self._below.items() if not one.is_here)
            return min(ends, default=float("inf"))
        return self._end_of_wait() if self.stage is Stage.WAITING else float("inf")

    def blockers(self) -> Iterator[Blocker]:
        membership = self._presence.membership
        step = min(self.round * self._rules.local_steps, self._rules.steps)
        for peer in self._awaited():
            yield Blocker("partner", peer, membership.name(peer), step, self._began_at)
        if self.stage is Stage.WAITING and self._parent is None:  # our own result no longer counts
            yield Blocker("partner", None, "any neighbour", step, self._began_at)

    # Small things

    def _enter(self, stage: Stage) -> None:
        """Raises AssertionError, having changed nothing, if the stage may not follow."""
        self.stage = follow(self.stage, stage, TRANSITIONS)

    def _awaited(self) -> list[OriginId]:
        if self.stage is Stage.GATHERING:
            return list(self._below)
        if self.stage is Stage.FETCHING and self._source is not None:
            return [self._source[0]]
        return [self._parent] if self.stage is Stage.WAITING and self._parent is not None else []

    def _down(self, child: OriginId) -> float:
        """How long the last result may have taken to a child after we had it."""
        known, size = self._pace.throughput(child) or 0.0, self.content.size if self.content is not None else 0
        return self._bounds.transfer_factor * size / max(known, self._bounds.throughput_min)

    def _end_of(self, peer: OriginId, deadline: float) -> float:
        lost_at = self._lost_at.get(peer)
        return deadline if lost_at is None else min(deadline, lost_at + self._bounds.relink_seconds)

    def _end_of_wait(self) -> float:
        return self._until if self._parent is None else self._end_of(self._parent, self._until)

    def _take_sum(self, peer: OriginId, offer: Offer, now: float) -> None:
        is_late = not self.is_open or self.stage is not Stage.GATHERING or offer.round != self.round
        if is_late or peer in self._heard:
            return
        self._heard.add(peer)
        hosts = min(offer.degree, self._below[peer].hosts if peer in self._below else 1, self._room)
        self._room -= hosts
        self._below[peer] = Below(now + self._pace.transfer_seconds(peer, offer.size), hosts, offer)
        receiving = self._accept(peer, offer, now) if hosts and self._trust.is_trusted(peer, self.round) else None
        if receiving is None:
            self._carrier.say(peer, Decline(Kind.SUM, offer.round, Reason.DISTRUST, self.round))
            self._leave_out(peer)
            self._close_if_whole(now)
        elif receiving.is_whole:
            self.arrived(peer, receiving, now)

    def _accept(self, peer: OriginId, offer: Offer, now: float) -> Receiving | None:
        """Accepts an offer. None if nothing in this run has its size."""
        try:
            return self._carrier.accept(peer, offer.digest, offer.size, now)
        except PeerError:
            self._trust.lied(peer, self.round)
            return None

    def _close_if_whole(self, now: float) -> None:
        """Closes our sum if no child is waited for any more."""
        if self.stage is not Stage.GATHERING or self._below:
            return
        if self._parent is not None and not self._has_gathered and self.content is not None:
            self._raise(self._parent, self.content, 1, now)
            return
        self._enter(Stage.SUMMING)
        is_root, is_last = self._parent is None, self._rules.is_last_agreement(self.round)
        self._outbox.order(Total(self.round, has_momentum=is_root and not is_last))

    def _raise(self, parent: OriginId, content: Content, hosts: int, now: float) -> None:
        """Offers our sum to the parent."""
        self._enter(Stage.WAITING)
        offer = self._make_offer(Kind.SUM, content, hosts)
        self._raised = offer, self._carrier.offer(parent, content)
        self._carrier.say(parent, offer)
        self._fetch_any(now)

    def _order_agree(self, digest: bytes, sink: Sink | None) -> None:
        self._outbox.order(Agree(self.round, digest, sink, self._rules.is_last_agreement(self.round)))

    def _make_offer(self, kind: Kind, content: Content, hosts: int) -> Offer:
        encoding = self._rules.encoding_of(self.round)
        return Offer(kind, self.round, content.digest, content.size, hosts, encoding)

    def _fetch_any(self, now: float) -> None:
        """Fetches an offered result if we lack it; of several, the one with most hosts in it."""
        if not self.is_open or self.stage not in (Stage.GATHERING, Stage.WAITING):
            return
        fit = [
            (offer.degree, peer)
            for peer, offer in self._results.items()
            if self._is_ours(offer) and peer in self._presence.neighbours and self._trust.is_trusted(peer, self.round)
        ]
        fit = [(hosts, peer) for hosts, peer in fit if self._is_believed(self._results[peer], now)]
        if not fit:
            return
        _, peer = max(fit)
        offer = self._results[peer]
        for child in list(self._below):
            self._leave_out(child)
        self._enter(Stage.FETCHING)
        self._source = peer, offer, now + self._pace.transfer_seconds(peer, offer.size)
        receiving = self._accept(peer, offer, now)
        if receiving is None:
            self._fail_fetch(now)
        elif receiving.is_whole:
            self.arrived(peer, receiving, now)

    def _fail_fetch(self, now: float) -> None:
        assert self._source is not None, "nothing is fetched"
        peer, offer, _ = self._source
        self._carrier.forget(peer, offer.digest)
        self._results.pop(peer, None)
        self._enter(Stage.WAITING)
        self._fetch_any(now)

    def _is_source(self, peer: OriginId, digest: bytes) -> bool:
        return self._source is not None and self._source[0] == peer and self._source[1].digest == digest

    def _is_ours(self, offer: Offer) -> bool:
        """Is it a result of our round? At the end of the run that of any attempt is."""
        is_last = self._rules.is_last_agreement
        return offer.round == self.round or (is_last(offer.round) and is_last(self.round))

    def _is_believed(self, offer: Offer, now: float) -> bool:
        return self.testimony.is_believed(Result(offer.round, offer.digest), now)

    def _tell_of_others(self) -> None:
        """Tells of results that were offered and not taken."""
        ours = self._result[0].digest if self._result is not None and self.stage is Stage.AGREED else None
        for peer, offer in self._results.items():
            if self._is_ours(offer) and offer.digest != ours:
                name = self._presence.membership.name(peer)
                self._outbox.tell("another result was offered", "warning", peer=name, round=offer.round)

    def _count_ours(self) -> None:
        """Are our parameters in the result? They are if the parent has them all."""
        if self._parent is None or (self._raised is not None and self._raised[1].is_done):
            return
        self.uncounted += 1
        times, rest = divmod(self.uncounted, UNCOUNTED_ROUNDS)
        if not rest and not times & (times - 1) and 3 * self.uncounted >= self.agreed:
            advice = "it is too slow for the others: set [node] local_steps to fewer, or look at its links"
            facts = {"rounds": self.uncounted, "of": self.agreed + 1, "advice": advice}
            self._outbox.tell("results lack what this host has learned", "warning", **facts)

    def _hurry(self, now: float) -> None:
        """Our sum does not count, so waits only for a result that the others may have."""
        self._until = min(self._until, now + self._pace.wait_seconds())

    def _leave_out(self, peer: OriginId) -> None:
        one = self._below.pop(peer)
        if one.offer is not None:
            self._carrier.forget(peer, one.offer.digest)
        name = self._presence.membership.name(peer)
        self._outbox.tell("left out of an agreement", partner=name, round=self.round)

    def _give(self, peer: OriginId, now: float) -> None:
        assert self._result is not None, "there is no result"
        offer, content = self._result
        self._given.add(peer)
        self._carrier.offer(peer, content)
        self._carrier.say(peer, offer)

    def _repeat(self, peer: OriginId, now: float) -> None:
        if self._raised is not None and peer == self._parent and self.stage is Stage.WAITING:
            self._carrier.say(peer, self._raised[0])
        if self._result is not None:
            self._give(peer, now)

    def _withdraw(self) -> None:
        """Withdraws our sum, and stops what is still being received."""
        if self._raised is not None and self._parent is not None:
            self._carrier.withdraw(self._parent, self._raised[0].digest)
        self._raised = None
        for peer, one in self._below.items():
            if one.offer is not None:
                self._carrier.forget(peer, one.offer.digest)
        self._below.clear()
        if self.stage is Stage.MISSED and self._source is not None:
            self._carrier.forget(self._source[0], self._source[1].digest)

    def _forget_result(self) -> None:
        if self._result is not None:
            for peer in self._given:
                self._carrier.withdraw(peer, self._result[1].digest)
        self._given.clear()

    def _measure(self, peer: OriginId, receiving: Receiving, now: float) -> None:
        self._carrier.forget(peer, receiving.digest)
        rate = receiving.throughput(now)
        if rate is not None:
            self._pace.measured(peer, rate)

    def _check_offer(self, peer: OriginId, offer: Offer) -> None:
        rules = self._rules
        known = (self._sums if offer.kind is Kind.SUM else self._results).get(peer)
        if offer.round >= rules.rounds or not rules.is_agreement(offer.round):
            raise PeerError(f"offers to agree in round {offer.round}, in which nobody does", reason="limit")
        if offer.size > rules.content_bytes_max:
            raise PeerError(f"offers {offer.size:,} bytes, more than a replica takes", reason="limit")
        if offer.encoding != rules.encoding_of(offer.round) or not 0 < offer.degree <= rules.origins_max:
            raise PeerError("offers parameters that this run does not exchange", reason="limit")
        if known is not None and known.round == offer.round and known != offer:
            raise PeerError("offers two things for one round", reason="equivocation")

    def _is_below_us(self, peer: OriginId) -> bool:
        return self._elsewhere.get(peer) != self.round

    def _names(self, peers: Mapping[OriginId, Below]) -> list[str]:
        return self._presence.membership.names(peers)
