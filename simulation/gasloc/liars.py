"""Hosts that lie (Byzantine): the real node and driver, with their own key and everything that a participant can do.

A liar takes part like the others, but its messages about rounds, pairs and parameters are changed, withheld or made up;
each run draws the kinds of lies. Only honest hosts are judged. If a liar sends exactly what it has offered, it is
taken, unless the numbers are huge: nobody can see that they were not learned.
"""

import random
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from fractions import Fraction

from seedflood.errors import PeerError
from seedflood.protocol.gasloc.matching import SLOW_CLASS_MAX
from seedflood.protocol.gasloc.messages import (
    NEWEST,
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
    encode,
)
from seedflood.protocol.gasloc.statement import REFUSED_MAX, Result, stated
from seedflood.protocol.gasloc.transfer import Content
from seedflood.protocol.origin import OriginId
from seedflood.protocol.swarm.messages import Member, Members, Message, Opaque
from simulation.gasloc.host import DRIFT, GaslocHost
from simulation.gasloc.replica import WIDE, Bytes, Values, spell
from simulation.gasloc.world import GaslocWorld
from simulation.work import Pace

LIE_SECONDS = (0.05, 2.0)
"""Time between two lies of one liar."""
CHANGED_SHARE = 0.3
"""The share of messages that are changed, of those that could be."""
NIBBLE_SECONDS = 20.0
"""How long a liar that nibbles waits before it moves on by a byte."""
OTHER = bytes.maketrans(b"123456789", b"987654321")
"""Another digit for each digit."""
CRAWL_SECONDS = 50.0
"""How long a crawling host takes for a round: not so long that it would be taken for a silent one."""
STILL_SECONDS = 1e9
"""That of one which never comes to the end of a round."""
FAR = 2**40
"""How many times its reach a replica is away that nobody may end with."""
HUGE = 10**40
"""A number that no honest host has, and whose square overflows a float32."""


class Liar:
    """One host that lies. counts: how often each kind of lie was sent, by all liars of the world."""

    def __init__(self, world: GaslocWorld, host: GaslocHost, counts: Counter[str], kinds: Sequence[str]) -> None:
        self.host = host
        self.rng: random.Random = world.rng
        self.rounds = world.rules.rounds
        self.world = world
        self._counts = counts
        self._is_over = False
        self.copies: dict[OriginId, bytes] = {}
        """Digests of the copies that are offered to it."""
        self._moves_at = 0.0
        self.last_round = self.rng.randint(0, self.rounds)
        """Until then it trains like the others, if it stays behind at all."""
        self._changes = {kind: CHANGES[kind] for kind in kinds if kind in CHANGES}
        self._is_two_faced = TWO_FACED in kinds
        self._inventions = {kind: INVENTIONS[kind] for kind in kinds if kind in INVENTIONS}
        self._send = host.send
        host.send = self._speak  # type: ignore[method-assign]
        self._next_content = host.next_content
        host.next_content = self._give  # type: ignore[method-assign]

    def begin(self) -> None:
        self.world.clock.after(self.rng.uniform(*LIE_SECONDS), self._lie)

    def end(self) -> None:
        """Stops the host for good."""
        self._is_over = True
        self.host.is_retired = True
        self.host.crash()

    def _lie(self) -> None:
        if self._is_over:
            return
        peers = list(self.host.node.neighbours) if self.host.is_up else []
        for peer in peers:
            self.host.carry(peer)  # behind what it has withheld
        if peers and self._inventions:
            kind = self.rng.choice(sorted(self._inventions))
            self._counts[f"lie_{kind}"] += 1
            for data in self._inventions[kind](self):
                self._send(self.rng.choice(peers), [Opaque(data)])
        self.world.clock.after(self.rng.uniform(*LIE_SECONDS), self._lie)

    def _speak(self, peer: OriginId, messages: Sequence[Message]) -> None:
        sent = [self._change(one) if isinstance(one, Opaque) else one for one in messages]
        if self._is_two_faced and peer % 2:
            sent = [self._turn(one) if isinstance(one, Members) else one for one in sent]
        self._send(peer, [one for one in sent if one is not None])

    def _turn(self, message: Members) -> Members:
        """Its own statement, of the same age, with another replica than others hear of."""
        return Members(
            tuple(self._contradict(one) if one.origin == self.host.origin else one for one in message.members)
        )

    def _contradict(self, member: Member) -> Member:
        membership = self.host.node.membership
        words = membership.words()
        found = [one for word in words if (one := stated(word).result) is not None]
        if not found or stated(member).result is None:
            return member
        self._counts["lie_two_faced"] += 1
        other = replace(stated(member), result=self.rng.choice(found), refused=())
        unsigned = replace(member, algorithm=other.packed(), signature=b"")
        return replace(unsigned, signature=self.host.sign(unsigned.signed_bytes(self.world.rules.run_id)))

    def _change(self, message: Opaque) -> Opaque | None:
        sent: ContentMessage | None
        try:
            sent = decode(message.data)
        except PeerError:
            return message
        for kind, change in self._changes.items():
            if sent is not None and (self.rng.random() < CHANGED_SHARE or kind in THOROUGH):
                changed = change(self, sent)
                self._counts[f"lie_{kind}"] += changed != sent
                sent = changed
        return None if sent is None else Opaque(encode(sent))

    def _give(self, peer: OriginId) -> bytes | None:
        """What it sends on the connection for contents. What is withheld stops those behind it for a while."""
        frame = self._next_content(peer)
        changed = self._change(Opaque(frame)) if frame is not None else None
        return changed.data if changed is not None else None

    def send_to(self, peer: OriginId, *messages: ContentMessage) -> None:
        self._send(peer, [Opaque(encode(sent)) for sent in messages])

    def hear_offer(self, peer: OriginId, offer: Offer, now: float) -> None:
        """A copy is offered to it."""
        self.copies[peer] = offer.digest

    def contents_of(self, round_: int) -> list[Content]:
        """What its neighbours offer in this round."""
        neighbours = [one for one in self.world.hosts if one.is_up and one.origin in self.host.node.neighbours]
        exchanges = [one.node.gasloc.exchange for one in neighbours]
        return [one.content for one in exchanges if one.round == round_ and one.content is not None]

    def may_move(self) -> bool:
        """May it move on, if it crawls?"""
        may, now = self.host.clock.now >= self._moves_at, self.host.clock.now
        self._moves_at = now + NIBBLE_SECONDS if may else self._moves_at
        return may

    @property
    def is_at_the_end(self) -> bool:
        gasloc = self.host.node.gasloc
        return gasloc.round >= self.rounds

    def hold(self, author: OriginId, values: Values) -> None:
        """States these numbers at the end, as if that host had made them, and gives them to whoever asks."""
        content = Bytes(spell(values, self.host.padding))
        self.host.wrote(content.digest)
        self.state(Result(author, content.digest), content)

    def hold_at_the_end(self, make: Callable[[], Values]) -> None:
        """The same with its own name, from its first word on."""
        gasloc = self.host.node.gasloc
        agreement = gasloc.agreement

        def published(content: Content) -> None:
            agreement.is_publishing = False
            self.hold(self.host.origin, make())

        agreement.published = published  # type: ignore[method-assign]
        if self.is_at_the_end:
            self.hold(self.host.origin, make())

    def state(self, result: Result, content: Content) -> None:
        gasloc = self.host.node.gasloc
        self.host.wrote(content.digest)
        if gasloc.agreement.choice.ours != result:
            gasloc.agreement.choice.ours = result
            gasloc.serve.publish(content, self.rounds)
        self.host.driver.do(gasloc.compare)

    def noise(self, count: int = 32) -> bytes:
        return self.rng.randbytes(count)


def _withhold(liar: Liar, sent: ContentMessage) -> ContentMessage | None:
    """Withholds parameters, or does not say that it has what it was sent."""
    return None if isinstance(sent, Chunk | Accept) else sent


def _forge(liar: Liar, sent: ContentMessage) -> ContentMessage:
    """Sends other numbers than were offered, of parameters and of copies."""
    return Chunk(sent.key, sent.offset, bytes(sent.data).translate(OTHER)) if isinstance(sent, Chunk) else sent


def _resize(liar: Liar, sent: ContentMessage) -> ContentMessage:
    return replace(sent, size=liar.rng.randint(1, sent.size)) if isinstance(sent, Offer) else sent


def _equivocate(liar: Liar, sent: ContentMessage) -> ContentMessage:
    """Offers something else than before, for the same round."""
    return replace(sent, digest=liar.noise()) if isinstance(sent, Offer) else sent


def _boast(liar: Liar, sent: ContentMessage) -> ContentMessage:
    return Progress(liar.rng.randint(0, liar.rounds), True, True) if isinstance(sent, Progress) else sent


def _dribble(liar: Liar, sent: ContentMessage) -> ContentMessage | None:
    """Claims to be further than all others, and gives parameters and copies byte by byte."""
    match sent:
        case Progress():
            return Progress(liar.rounds, True, True)
        case Chunk(key, offset, data):
            may_move, gasloc = liar.may_move(), liar.host.node.gasloc
            for (_, other), sending in gasloc.carrier._sending.items():
                if other == key and sending.position == offset + len(data):
                    sending.position = offset + may_move
            return Chunk(key, offset, data[:1]) if may_move else None
    return sent


class Stolen:
    """Has the digest of another content, and other bytes. The last one is never sent with others."""

    def __init__(self, digest: bytes, size: int) -> None:
        self.digest, self.size = digest, size

    def read(self, offset: int, count: int) -> bytes:
        return b"9" * max(1, min(count, self.size - 1 - offset))


def _reuse(liar: Liar, sent: ContentMessage) -> ContentMessage:
    """Offers a neighbour's parameters of the round, or the replica with which all end, and sends other bytes."""
    if not isinstance(sent, Offer):
        return sent
    if sent.kind is Kind.ROUND:
        contents = liar.contents_of(sent.round)
        sent = replace(sent, digest=contents[0].digest, size=contents[0].size) if contents else sent
    node, stolen = liar.host.node, Stolen(sent.digest, sent.size)
    for peer in node.neighbours:
        if not isinstance(node.gasloc.carrier.offer(peer, stolen).content, Stolen):
            node.gasloc.carrier.withdraw(peer, stolen.digest)
            node.gasloc.carrier.offer(peer, stolen)
    return sent


def _claim(liar: Liar) -> list[bytes]:
    """Messages about pairs and rounds in which it has no part."""
    round_, digest = liar.rng.randint(0, liar.rounds), liar.noise()
    messages: list[ContentMessage] = [
        Decline(Kind.ROUND, round_, liar.rng.choice(list(Reason)), round_),
        Accept(digest, liar.rng.randint(0, 1 << 20)),
    ]
    return [encode(sent) for sent in messages]


def _offer(liar: Liar) -> list[bytes]:
    """Offers of parameters and copies that it never sends."""
    rules, round_ = liar.host.rules, liar.rng.randint(0, liar.rounds)
    size = liar.rng.choice((1, 100, rules.content_bytes_max, rules.copy_bytes_max, 1 << 47))
    kinds = (Kind.ROUND, Kind.COPY)
    return [encode(Offer(liar.rng.choice(kinds), round_, liar.noise(), size, liar.rng.randint(0, 9), rules.encoding))]


def _mislead(liar: Liar) -> list[bytes]:
    """States that it ends with another host's replica, which it has made up, and sends that to whoever asks."""
    gasloc, content = liar.host.node.gasloc, Bytes(spell((Fraction(liar.rng.randint(-999, 999)),) * len(DRIFT)))
    author = liar.rng.choice(sorted(host.origin for host in liar.world.hosts))
    gasloc.agreement.choice.ours = Result(author, content.digest)
    gasloc.serve.publish(content, liar.rounds)
    liar.host.wrote(content.digest)
    liar.host.driver.do(gasloc.compare)
    return []


def _promise(liar: Liar) -> list[bytes]:
    """States replicas that nobody has."""
    gasloc = liar.host.node.gasloc
    gasloc.agreement.choice.ours = Result(liar.host.origin, liar.noise())
    gasloc.serve.withdraw()
    liar.host.driver.do(gasloc.compare)
    return []


def _stray(liar: Liar) -> list[bytes]:
    """States a replica of its own that nobody else is near to, and gives it to whoever asks."""
    far = Fraction(liar.host.replica.reach * FAR)
    liar.hold_at_the_end(lambda: (far,) * len(DRIFT))
    return []


def _straddle(liar: Liar) -> list[bytes]:
    """The same, with one that half of the honest hosts are near to."""

    def halfway() -> Values:
        honest = [host.replica.values for host in liar.world.honest if host.is_up] or [liar.host.replica.values]
        lows = sorted(low for low, _ in honest)
        return lows[len(lows) // 2] - WIDE * liar.host.replica.reach, honest[0][1]

    liar.hold_at_the_end(halfway)
    return []


def _conspire(liar: Liar) -> list[bytes]:
    """Vouches for what another liar states, and passes it on."""
    liars = liar.world.chronicle.liars - {liar.host.origin}
    others = [host for host in liar.world.hosts if host.origin in liars and host.is_up]
    nodes = [host.node.gasloc for host in others]
    pairs = [(gasloc.agreement.choice.ours, gasloc.serve._final) for gasloc in nodes]
    found = [(one, content) for one, content in pairs if one and content]
    if liar.is_at_the_end and found:
        result, (content, _) = liar.rng.choice(found)
        if content.digest == result.digest:
            liar.state(result, content)
    return []


def _snub(liar: Liar) -> list[bytes]:
    """Refuses the replicas of honest hosts, and holds to its own."""
    gasloc = liar.host.node.gasloc
    choice = gasloc.agreement.choice
    if liar.is_at_the_end:
        choice.refused = [host.origin for host in liar.world.honest][:REFUSED_MAX]
        liar.hold(liar.host.origin, liar.host.replica.values)
    return []


def _waver(liar: Liar) -> list[bytes]:
    """States now this, now that of the replicas that others state."""
    node = liar.host.node
    found = [one for word in node.membership.words() if (one := stated(word).result) is not None]
    if liar.is_at_the_end and found:
        gasloc = node.gasloc
        gasloc.agreement.choice.ours = liar.rng.choice(found)
        liar.host.driver.do(node.gasloc.compare)
    return []


def _nibble(liar: Liar) -> list[bytes]:
    """Wants copies, and takes them byte by byte, but asks for the rest of them again and again."""
    node, held = liar.host.node, int(liar.host.clock.now / NIBBLE_SECONDS)
    node.gasloc.fetch.offered = liar.hear_offer  # type: ignore[method-assign]
    for peer, digest in liar.copies.items():
        liar.send_to(peer, Accept(digest, held))
    stated_results = [stated(word).result for word in node.membership.words()]
    return [encode(Want(liar.rng.choice([NEWEST, *(one.digest for one in stated_results if one is not None)])))]


def _beg(liar: Liar) -> list[bytes]:
    return [encode(Want(NEWEST))]


def _babble(liar: Liar) -> list[bytes]:
    return [liar.noise(liar.rng.randint(1, 300))]


def _crawl(liar: Liar) -> list[bytes]:
    """Goes on, but hardly, and catches up with nobody."""
    gasloc = liar.host.node.gasloc
    if gasloc.round >= liar.last_round:
        _slow_down(liar, CRAWL_SECONDS / liar.host.rules.local_steps)
        gasloc.talk.swarm_round = lambda: 0  # type: ignore[method-assign]
    return []


def _restate(liar: Liar) -> list[bytes]:
    """Stays in a round, and says now and then of another of its links that it is slow."""
    node, host = liar.host.node, liar.host
    if node.gasloc.round >= liar.last_round:
        _slow_down(liar, STILL_SECONDS)
        node.gasloc.pace.slow = {liar.rng.choice(list(node.neighbours)): liar.rng.randint(1, SLOW_CLASS_MAX)}
        host.driver.do(node.gasloc.compare)
    return []


def _slow_down(liar: Liar, seconds: float) -> None:
    """From its next local step on each takes that long, or longer if another lie wants that."""
    seconds = max(seconds, liar.host.pace.seconds_min)
    liar.host.pace = Pace(seconds, seconds)


def _overstate(liar: Liar) -> list[bytes]:
    """In this round it has very many partners, by its word."""
    gasloc = liar.host.node.gasloc
    gasloc.exchange._slots = 0xFFFF
    return []


def _overflow(liar: Liar) -> list[bytes]:
    """Its parameters become huge, and it goes on with them: whatever it offers is what it sends."""
    replica = liar.host.replica
    replica.values = tuple(Fraction(liar.rng.choice((-HUGE, HUGE))) for _ in replica.values)
    return []


CHANGES: dict[str, Callable[[Liar, ContentMessage], ContentMessage | None]] = {
    "withhold": _withhold,
    "forge": _forge,
    "resize": _resize,
    "equivocate": _equivocate,
    "boast": _boast,
    "dribble": _dribble,
    "reuse": _reuse,
}
INVENTIONS: dict[str, Callable[[Liar], list[bytes]]] = {
    "claim": _claim,
    "offer": _offer,
    "mislead": _mislead,
    "promise": _promise,
    "stray": _stray,
    "straddle": _straddle,
    "conspire": _conspire,
    "snub": _snub,
    "waver": _waver,
    "nibble": _nibble,
    "beg": _beg,
    "babble": _babble,
    "crawl": _crawl,
    "restate": _restate,
    "overstate": _overstate,
    "overflow": _overflow,
}
THOROUGH = {"dribble", "reuse"}
"""Changes that are made whenever they can be."""
TWO_FACED = "two_faced"
"""Signs two statements of one age, and sends each neighbour one of them."""
KINDS = sorted({*CHANGES, *INVENTIONS, TWO_FACED})


def let_lie(
    world: GaslocWorld, indices: Iterable[int], counts: Counter[str], kinds: Sequence[str] | None = None
) -> list[Liar]:
    """Lets these hosts lie from now on. kinds: their kinds of lies, by default drawn from the seed."""
    kinds = kinds or world.rng.sample(KINDS, world.rng.randint(2, len(KINDS)))
    liars = [Liar(world, world.hosts[index], counts, kinds) for index in sorted(indices)]
    world.chronicle.liars |= {liar.host.origin for liar in liars}
    for liar in liars:
        liar.begin()
    return liars
