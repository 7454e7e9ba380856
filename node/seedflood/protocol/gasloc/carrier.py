"""The transfers of a node, to neighbours and from them.

A transfer belongs to a peer and a content, not to a link: after a break it resumes on the next link with that peer.
The receiver asks; the sender remembers only what it has offered.
"""

from seedflood.protocol.gasloc.messages import Accept, Chunk, ContentMessage, encode
from seedflood.protocol.gasloc.rules import CHUNK_BYTES_MAX
from seedflood.protocol.gasloc.transfer import Content, Receiving, Sending, Sinks, key_of
from seedflood.protocol.origin import OriginId
from seedflood.protocol.swarm.messages import Opaque
from seedflood.protocol.swarm.neighbours import Neighbours
from seedflood.protocol.swarm.outputs import Outbox, Outputs

_Key = tuple[OriginId, bytes]


class Carrier:
    """bytes_sent, bytes_received: of contents, since the process began. news: how many messages advanced a transfer.
    chunk_bytes: of a piece of a content."""

    def __init__(
        self, neighbours: Neighbours, sinks: Sinks, outbox: Outbox[Outputs], chunk_bytes: int = CHUNK_BYTES_MAX
    ) -> None:
        self.bytes_sent = 0
        self.bytes_received = 0
        self.news = 0
        self._sending: dict[_Key, Sending] = {}
        """Who was sent a piece last is at the end."""
        self._receiving: dict[_Key, Receiving] = {}
        self._asks: dict[_Key, Accept] = {}
        """What is to be asked of neighbours."""
        self._neighbours = neighbours
        self._sinks = sinks
        self._outbox = outbox
        self._chunk_bytes = chunk_bytes

    def send(self, peer: OriginId, message: ContentMessage) -> None:
        """Sends to a peer if it is linked."""
        if peer in self._neighbours:
            self._outbox.send(peer, Opaque(encode(message)))

    def next_frame(self, peer: OriginId) -> bytes | None:
        """What is to be sent next to a neighbour on its connection for contents; None if nothing is. The connection
        asks whenever it has room, and after `Outputs.contents` has named the neighbour."""
        ask = next((key for key in self._asks if key[0] == peer), None)
        if ask is not None:
            return encode(self._asks.pop(ask))
        for key in [key for key in self._sending if key[0] == peer]:
            chunk = self._sending[key].next_chunk(self._chunk_bytes)
            if chunk is not None:
                self._sending[key] = self._sending.pop(key)
                self.bytes_sent += len(chunk.data)
                return encode(chunk)
        return None

    # To neighbours

    def offer(self, peer: OriginId, content: Content) -> Sending:
        """The peer may accept this from now on."""
        return self._sending.setdefault((peer, key_of(content.digest)), Sending(content))

    def withdraw(self, peer: OriginId, digest: bytes) -> None:
        self._sending.pop((peer, key_of(digest)), None)

    def accepted(self, peer: OriginId, accept: Accept) -> None:
        sending = self._sending.get((peer, key_of(accept.digest)))
        if sending is not None:  # else it is offered no more
            was_unasked, was_done = sending.is_unasked, sending.is_done
            sending.accept(accept.start)
            self.news += was_unasked or sending.is_done > was_done
            self._outbox.carry(peer)

    # From neighbours

    def accept(self, peer: OriginId, digest: bytes, size: int, now: float) -> Receiving:
        """Asks for a content, or asks again from where it stopped. What is whole already is only returned."""
        key = (peer, key_of(digest))
        if key not in self._receiving:
            self._receiving[key] = Receiving(digest, size, self._sinks.open(peer, digest, size), now)
        receiving = self._receiving[key]
        self._ask(peer, receiving, now)
        if receiving.is_whole:
            del self._receiving[key]
        return receiving

    def forget(self, peer: OriginId, digest: bytes) -> Receiving | None:
        """Takes no more of a content, and says nothing."""
        return self._receiving.pop((peer, key_of(digest)), None)

    def stop(self, peer: OriginId, digest: bytes) -> None:
        """Says that a content is no longer wanted, and forgets it."""
        receiving = self.forget(peer, digest)
        if receiving is not None:
            self.confirm(peer, digest, receiving.size)

    def confirm(self, peer: OriginId, digest: bytes, size: int) -> None:
        """Says that nothing more of a content is wanted."""
        self._put(peer, Accept(digest, size))

    def take(self, peer: OriginId, chunk: Chunk, now: float) -> Receiving | None:
        """Takes a chunk. Returns the transfer if this completes it, and forgets it. What was not asked for costs next
        to nothing."""
        receiving = self._receiving.get((peer, chunk.key))
        if receiving is None or not receiving.take(chunk, now):
            return None
        self.news += 1
        self.bytes_received += len(chunk.data)
        if not receiving.is_whole:
            return None
        self.stop(peer, receiving.digest)
        return receiving

    # What is due

    def connected(self, peer: OriginId, now: float) -> None:
        """The link is up again: resumes its transfers."""
        for (source, _), receiving in self._receiving.items():
            if source == peer:
                self._ask(peer, receiving, now)

    def disconnected(self, peer: OriginId) -> None:
        for key in [key for key in self._asks if key[0] == peer]:
            del self._asks[key]
        for (receiver, _), sending in self._sending.items():
            if receiver == peer:
                sending.pause()

    def advance(self, now: float) -> None:
        for (peer, _), receiving in self._receiving.items():
            if now >= receiving.ask_at:
                self._ask(peer, receiving, now)

    def wake_at(self) -> float:
        return min((one.ask_at for one in self._receiving.values()), default=float("inf"))

    def _ask(self, peer: OriginId, receiving: Receiving, now: float) -> None:
        receiving.ask(now)
        self._put(peer, Accept(receiving.digest, receiving.held))

    def _put(self, peer: OriginId, accept: Accept) -> None:
        if peer in self._neighbours:
            self._asks[peer, key_of(accept.digest)] = accept
            self._outbox.carry(peer)
