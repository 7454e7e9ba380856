"""The transfers of a node, to neighbours and from them.

A transfer belongs to a peer and a content, not to a link: after a break it resumes on the next link with that peer.
The receiver asks; the sender remembers only what it has offered.
"""

from seedflood.protocol.gasloc.messages import Accept, Chunk, Credit, Saying, encode
from seedflood.protocol.gasloc.outbox import Outbox
from seedflood.protocol.gasloc.transfer import Content, Receiving, Sending, Sinks, Window, key_of
from seedflood.protocol.origin import OriginId
from seedflood.protocol.swarm.messages import Opaque
from seedflood.protocol.swarm.neighbours import Neighbours

_Key = tuple[OriginId, bytes]


class Carrier:
    """bytes_sent, bytes_received: of contents, since the process began. news: how many messages advanced a transfer."""

    def __init__(self, neighbours: Neighbours, sinks: Sinks, outbox: Outbox) -> None:
        self.bytes_sent = 0
        self.bytes_received = 0
        self.news = 0
        self._sending: dict[_Key, Sending] = {}
        self._receiving: dict[_Key, Receiving] = {}
        self._windows: dict[OriginId, Window] = {}
        """The window of the last transfer to each neighbour, which knows how fast the link is."""
        self._neighbours = neighbours
        self._sinks = sinks
        self._outbox = outbox

    def say(self, peer: OriginId, saying: Saying) -> None:
        """Sends to a peer if it is linked."""
        if peer in self._neighbours:
            self._outbox.send(peer, Opaque(encode(saying)))

    # To neighbours

    def offer(self, peer: OriginId, content: Content) -> Sending:
        """The peer may accept this from now on."""
        key = (peer, key_of(content.digest))
        if key not in self._sending:
            self._sending[key] = Sending(content, self._windows.get(peer))
        return self._sending[key]

    def withdraw(self, peer: OriginId, digest: bytes) -> None:
        sending = self._sending.pop((peer, key_of(digest)), None)
        if sending is not None and peer in self._neighbours:
            self._windows[peer] = sending.window

    def accepted(self, peer: OriginId, accept: Accept, now: float) -> None:
        sending = self._sending.get((peer, key_of(accept.digest)))
        if sending is not None:  # else it is offered no more
            self.news += sending.is_unasked
            sending.accept(accept.start, now)
            self._send(peer, sending, now)

    def credited(self, peer: OriginId, credit: Credit, now: float) -> None:
        sending = self._sending.get((peer, credit.key))
        if sending is not None:
            self.news += sending.credit(credit.held, now)
            self._send(peer, sending, now)

    def _send(self, peer: OriginId, sending: Sending, now: float) -> None:
        for chunk in sending.chunks(now):
            self.bytes_sent += len(chunk.data)
            self.say(peer, chunk)

    # From neighbours

    def accept(self, peer: OriginId, digest: bytes, size: int, now: float) -> Receiving:
        """Asks for a content, or asks again from where it stopped."""
        key = (peer, key_of(digest))
        if key not in self._receiving:
            self._receiving[key] = Receiving(digest, size, self._sinks.open(peer, digest, size), now)
        receiving = self._receiving[key]
        if not receiving.is_whole:
            self._ask(peer, receiving, now)
        return receiving

    def forget(self, peer: OriginId, digest: bytes) -> None:
        """Forgets a transfer: it is complete and was passed on, or is no longer wanted."""
        self._receiving.pop((peer, key_of(digest)), None)

    def take(self, peer: OriginId, chunk: Chunk, now: float) -> Receiving | None:
        """Takes a chunk. Returns the transfer if this completes it. A chunk that was not asked for costs next to
        nothing."""
        receiving = self._receiving.get((peer, chunk.key))
        if receiving is None:
            return None
        if receiving.take(chunk, now):
            self.news += 1
            self.bytes_received += len(chunk.data)
            self.say(peer, Credit(chunk.key, receiving.held))
            return receiving if receiving.is_whole else None
        if receiving.must_ask_again(chunk):
            self._ask(peer, receiving, now)
        return None

    # What is due

    def connected(self, peer: OriginId, now: float) -> None:
        """The link is up again: resumes its transfers."""
        for (source, _), receiving in self._receiving.items():
            if source == peer and not receiving.is_whole:
                self._ask(peer, receiving, now)

    def disconnected(self, peer: OriginId) -> None:
        """Nothing is in flight any more. The next link may be a different one, so its window is forgotten."""
        self._windows.pop(peer, None)
        for (receiver, _), sending in self._sending.items():
            if receiver == peer:
                sending.pause()

    def advance(self, now: float) -> None:
        for (peer, _), sending in self._sending.items():
            if now >= sending.send_at:
                self._send(peer, sending, now)
        for (peer, _), receiving in self._receiving.items():
            if now >= receiving.ask_at and not receiving.is_whole:
                self._ask(peer, receiving, now)

    def wake_at(self) -> float:
        asking = (one.ask_at for one in self._receiving.values() if not one.is_whole)
        sending = (one.send_at for one in self._sending.values())
        return min((*asking, *sending), default=float("inf"))

    def _ask(self, peer: OriginId, receiving: Receiving, now: float) -> None:
        receiving.ask(now)
        self.say(peer, Accept(receiving.digest, receiving.held))
