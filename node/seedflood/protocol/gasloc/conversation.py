"""The messages to and from neighbours, and how far each neighbour is."""

from collections.abc import Callable
from dataclasses import dataclass, field

from seedflood.errors import PeerError
from seedflood.protocol.gasloc.carrier import Carrier
from seedflood.protocol.gasloc.copies import Fetch, Serve
from seedflood.protocol.gasloc.exchange import Exchange
from seedflood.protocol.gasloc.messages import (
    Accept,
    Chunk,
    ContentMessage,
    Decline,
    Kind,
    Offer,
    Progress,
    Reason,
    Want,
    decode,
)
from seedflood.protocol.gasloc.rules import GaslocRules
from seedflood.protocol.gasloc.statement import stated, swarm_round
from seedflood.protocol.origin import OriginId
from seedflood.protocol.swarm.messages import AlgorithmMessage, Opaque
from seedflood.protocol.swarm.presence import Presence


@dataclass(eq=False, repr=False)
class Conversation:
    """Talks with the neighbours. where: returns how far we are. progress: how far each of them is, as it says. news:
    how often one of them advanced, or made an offer for a later round. fetch, serve: the two sides of copies."""

    _rules: GaslocRules
    _presence: Presence
    _carrier: Carrier
    _exchange: Exchange
    fetch: Fetch
    serve: Serve
    _where: Callable[[], Progress]
    progress: dict[OriginId, Progress] = field(default_factory=dict)
    news: int = 0
    _furthest: dict[tuple[type[ContentMessage], OriginId], int] = field(default_factory=dict)
    """The latest round in messages of this kind from each neighbour."""

    def connected(self, peer: OriginId, now: float) -> None:
        self._carrier.send(peer, self._where())
        self._exchange.connected(peer)
        self.fetch.connected(peer)
        self._carrier.connected(peer, now)

    def disconnected(self, peer: OriginId) -> None:
        self.progress.pop(peer, None)
        self._exchange.disconnected(peer)
        self._carrier.disconnected(peer)

    def received(self, peer: OriginId, message: AlgorithmMessage, now: float) -> None:
        """Handles a message. Raises PeerError, and uses nothing of it, if no host of the run sends such a message."""
        if not isinstance(message, Opaque):
            raise PeerError("speaks of another algorithm", reason="order")
        match decode(message.data):
            case Progress() as progress:
                self._receive_progress(peer, progress)
            case Chunk() as chunk:
                self._receive_chunk(peer, chunk, now)
            case Accept() as accept:
                self._carrier.accepted(peer, accept)
            case Want(digest):
                self.serve.wanted(peer, digest, now, can_serve=self._where().can_serve)
            case Offer(kind=Kind.COPY) as offer:
                self.fetch.offered(peer, offer, now)
            case Decline(kind=Kind.COPY):
                self.fetch.declined(peer)
            case Offer() as offer:
                self._receive_offer(peer, offer, now)
            case Decline() as decline:
                self._exchange.declined(peer, decline)

    def send_progress(self) -> None:
        for peer in self._presence.neighbours:
            self._carrier.send(peer, self._where())

    def swarm_round(self) -> int:
        """How far the swarm is; we count once we take part."""
        ours = self._presence.ours
        reported = {peer: one.round for peer, one in self.progress.items()}
        reported[ours.origin] = self._where().round
        but = None if ours.has_spoken else ours.origin
        return swarm_round(self._presence.membership, reported, self._rules.rounds, self._rules.clients, but=but)

    def round_of(self, origin: OriginId) -> int:
        """The last one that it has reported, or ours."""
        if origin == self._presence.ours.origin:
            return self._where().round
        word, reported = self._presence.membership.spoken(origin), self.progress.get(origin)
        return max(0 if word is None else stated(word).round, 0 if reported is None else reported.round)

    def donors(self) -> dict[OriginId, int]:
        """The neighbours that can give a checkpoint, by what they say, each with its round."""
        return {peer: one.round for peer, one in self.progress.items() if one.can_serve}

    def _receive_chunk(self, peer: OriginId, chunk: Chunk, now: float) -> None:
        receiving = self._carrier.take(peer, chunk, now)
        if receiving is not None:
            self._exchange.arrived(peer, receiving, now)
            self.fetch.arrived(peer, receiving)

    def _receive_progress(self, peer: OriginId, progress: Progress) -> None:
        if progress.round > self._rules.rounds:
            raise PeerError(f"is in round {progress.round} of {self._rules.rounds}", reason="limit")
        self._count(Progress, peer, progress.round)
        self.progress[peer] = progress

    def _count(self, kind: type[ContentMessage], peer: OriginId, round_: int) -> None:
        if round_ > self._furthest.get((kind, peer), -1):
            self._furthest[kind, peer] = round_
            self.news += 1

    def _receive_offer(self, peer: OriginId, offer: Offer, now: float) -> None:
        self._count(Offer, peer, offer.round)
        if self._where().is_active:
            self._exchange.offered(peer, offer, now, self._where().round)
        else:
            self._carrier.send(peer, Decline(Kind.ROUND, offer.round, Reason.AWAY, self._where().round))
