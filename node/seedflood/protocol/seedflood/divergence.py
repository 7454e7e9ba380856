"""The divergence detector: neighbours send each other the digest of their coefficients, each with the frontier it
belongs to.

Equal frontiers with unequal digests mean that one of the two is wrong, and nobody can tell which one. So a node that
differs from most of its neighbours (`credibility`) rebuilds its coefficients from its journal. Only digests of one and
the same frontier are counted together.

What makes them differ, and what a relay's word is worth: docs/explanation/consensus.md.
"""

from collections import Counter, OrderedDict
from collections.abc import Callable, Collection, Iterable

from seedflood.protocol.frontier import Frontier, Held
from seedflood.protocol.origin import OriginId
from seedflood.protocol.seedflood.credibility import Credibility
from seedflood.protocol.seedflood.messages import ReplicaDigest, Standing
from seedflood.protocol.seedflood.outputs import Outputs, Rebuild, TakeDigest
from seedflood.protocol.swarm.outputs import Outbox

DIGEST_ROUNDS = 8
"""A digest is taken every so many rounds, in the same rounds on all nodes, so that they have one of the same
frontier."""

REMEMBERED = 32
"""How many pairs are remembered per neighbour. Nodes that wait for each other are one round apart."""

REPEATED_MAX, RELAYED_MAX = 16, 64
"""How many words of one neighbour a relay repeats in a comparison period, and how many words it sends to one. Honest
hosts send fewer, and each receiver allows 50 a second (`transport.budget`): it must not take a liar's words for the
relay's."""

REBUILD_SECONDS_MIN, REBUILD_SECONDS_MAX = 1.0, 3600.0
"""Seconds between two rebuilds, twice as long every time: if the journal itself differs, another rebuild does not
help."""

MEND_SECONDS_MIN, MEND_SECONDS_MAX = 2.0, 64.0
"""The same for rebuilds because an origin has ended. Whatever is taken out in between goes into one rebuild."""

Pairs = OrderedDict[bytes, bytes]

_NEVER = float("inf")


class DivergenceDetector:
    """Pairs of (frontier digest, replica digest): our own, and those of linked neighbours. applied: what is in our
    coefficients. has_replica: does this neighbour have one, so that it speaks of itself?

    is_agreed: a neighbour's digest was equal to ours, or a rebuild found ours right, and no doubt has arisen since.
    is_doubted: most digests were unequal, and none was equal since. standing: our last digest with its frontier; sent
    at the end of a pull.
    """

    def __init__(
        self,
        applied: Frontier,
        neighbours: Collection[OriginId],
        outbox: Outbox[Outputs],
        has_replica: Callable[[OriginId], bool] = lambda _: True,
    ) -> None:
        self.is_agreed = self.is_doubted = self.is_rebuilding = False
        self.standing: Standing | None = None
        self._applied = applied
        self._neighbours = neighbours
        self._outbox = outbox
        self._has_replica = has_replica
        self._ours: Pairs = OrderedDict()
        self._theirs: dict[OriginId, Pairs] = {}
        self._asked: dict[bytes, tuple[Held, ...]] = {}
        """By digest, the frontiers with which digests are being taken."""
        self._awaited_at: bytes | None = None
        """The digest of the frontier of which all should have spoken by the end of this comparison period."""
        self.credibility = Credibility()
        self._accusers: set[OriginId] = set()
        """Who made us doubt."""
        self._outdated_at = _NEVER
        """When the journal first changed after the coefficients were made from it."""
        self._is_expected = False
        """Is the rebuild that is under way due to a change of the journal?"""
        self._is_answered = True
        """Was there a rebuild since the doubt arose?"""
        self._mend_at, self._mend_seconds = float("-inf"), 0.0
        self._rebuild_at = float("-inf")
        self._rebuild_seconds = REBUILD_SECONDS_MIN

    @property
    def latest(self) -> ReplicaDigest | None:
        pair = next(reversed(self._ours.items()), None)
        return ReplicaDigest(*pair) if pair is not None else None

    def latest_for(self, peer: OriginId) -> ReplicaDigest | None:
        """What a neighbour is sent first."""
        return self.latest

    def digest_at(self, frontier_digest: bytes) -> bytes:
        """The digest of a replica with this frontier; empty if it is not remembered."""
        return self._ours.get(frontier_digest, b"")

    @property
    def is_outdated(self) -> bool:
        """Has the journal changed since the coefficients were made, as an origin ended (`ends`)? Then no digest of them
        is taken, sent or compared, and no node ends a run with them."""
        return self._outdated_at < _NEVER

    @property
    def is_current(self) -> bool:
        """Do the coefficients hold what the journal does, as far as we know, and is no rebuild under way?"""
        return not (self.is_rebuilding or self.is_outdated)

    def is_settled(self, moment: float) -> bool:
        """Is every change of the journal up to this moment in the coefficients, and every doubt answered by a rebuild?

        Later changes are not waited for: an origin may contradict itself for ever. Nor is a rebuild waited for that is
        due much later: several rebuilds just before it have answered the same doubt.
        """
        is_due = self.is_doubted and not self._is_answered and self._rebuild_at < moment + MEND_SECONDS_MAX
        return not (self.is_rebuilding or is_due) and self._outdated_at > moment

    def take(self) -> None:
        """Orders the digest of what is applied, unless it is known, is being taken, or would mean nothing."""
        key = self._applied.digest()
        if not self.is_outdated and key not in self._asked and key not in self._ours:
            self._asked[key] = self._applied.held()
            self._outbox.order(TakeDigest(key))

    def taken(self, digest: ReplicaDigest) -> list[tuple[OriginId, bool]]:
        """Our own digest was taken: sends it to the neighbours. Returns the neighbours whose digest of the same
        frontier is known, each with whether it is equal."""
        held = None if self.is_rebuilding else self._asked.pop(digest.frontier_digest, None)
        if held is None:
            return []  # ordered before a rebuild
        self.standing = Standing(held, digest.replica_digest)
        _keep(self._ours, digest)
        for peer in self._neighbours:
            self._outbox.send(peer, digest)
        return list(self._verdicts(digest.frontier_digest, self._theirs).items())

    def received(self, peer: OriginId, digest: ReplicaDigest) -> bool | None:
        """Takes a neighbour's digest. Is it equal to ours? None: we have none of that frontier yet."""
        _keep(self._theirs.setdefault(peer, OrderedDict()), digest)
        return self._verdict(peer, digest.frontier_digest)

    def is_equal_at(self, peer: OriginId, frontier_digest: bytes) -> bool:
        """Was the neighbour's digest equal to ours with exactly this frontier applied?"""
        return self._verdict(peer, frontier_digest) is True

    def unequal(self) -> list[OriginId]:
        """The neighbours that differed from us at the last frontier of which both have spoken."""
        return [peer for peer in self._theirs if self._last_verdict(peer) is False]

    def forget(self, peer: OriginId) -> None:
        """Its link is down. A false alarm is not forgotten with it."""
        self._theirs.pop(peer, None)

    def compared(self, peer: OriginId, frontier_digest: bytes, now: float) -> bool:
        """A neighbour's digest was compared with ours. Returns True if it is equal, and none was since we began or last
        doubted."""
        self._judge(frontier_digest, now, is_final=False)
        if self.is_rebuilding or not self.is_equal_at(peer, frontier_digest):
            return False
        witnesses = self._witnesses()
        if peer not in witnesses or not self._may_agree(frontier_digest, witnesses, now):
            return False
        is_news = not self.is_agreed
        self.is_agreed, self.is_doubted = True, False
        return is_news

    def review(self, now: float) -> None:
        """A comparison period is over: judges the last frontier of which somebody had spoken when it began. So others
        are waited for, up to two periods."""
        if self._awaited_at is not None:
            self._judge(self._awaited_at, now, is_final=True)
        verdicts = ((key, self._verdicts(key, self._witnesses())) for key in reversed(self._ours))
        self._awaited_at = next((key for key, found in verdicts if found), None)

    def _judge(self, frontier_digest: bytes, now: float, *, is_final: bool) -> None:
        """Doubts our replica if most neighbours differ from it at this frontier. is_final: who has not spoken of it
        is not waited for."""
        witnesses = self._witnesses()
        verdicts = self._verdicts(frontier_digest, witnesses)
        accusers = self.credibility.accusers(verdicts, now, witnesses=verdicts if is_final else witnesses)
        if accusers:
            self.doubt(accusers, of=len(verdicts))

    def _may_agree(self, frontier_digest: bytes, witnesses: Collection[OriginId], now: float) -> bool:
        """Does one neighbour that is equal at this frontier show that our replica is right? If a doubt has still to be
        answered by a rebuild, it takes half of them: a liar knows our digest."""
        verdicts = self._verdicts(frontier_digest, witnesses)
        if self.credibility.accusers(verdicts, now, witnesses=verdicts):
            return False
        if not self.is_doubted or self._is_answered:
            return True
        return any(map(self._has_replica, witnesses)) and 2 * sum(verdicts.values()) >= len(witnesses)

    def _witnesses(self) -> list[OriginId]:
        """Whose word on our replica counts: neighbours that have one themselves; of a node without any, relays, which
        repeat what others sent, and perhaps what we sent."""
        return [peer for peer in self._neighbours if self._has_replica(peer)] or list(self._neighbours)

    def _verdicts(self, frontier_digest: bytes, witnesses: Iterable[OriginId]) -> dict[OriginId, bool]:
        """Of those who have spoken of this frontier as we have: is their digest equal to ours?"""
        found = {}
        for peer in witnesses:
            is_equal = self._verdict(peer, frontier_digest)
            if is_equal is not None:
                found[peer] = is_equal
        return found

    def _verdict(self, peer: OriginId, frontier_digest: bytes) -> bool | None:
        ours = self._ours.get(frontier_digest)
        theirs = self._theirs[peer].get(frontier_digest) if peer in self._theirs else None
        return None if ours is None or theirs is None else ours == theirs

    def _last_verdict(self, peer: OriginId) -> bool | None:
        verdicts = (self._verdict(peer, key) for key in reversed(self._theirs[peer]))
        return next((verdict for verdict in verdicts if verdict is not None), None)

    def doubt(self, accusers: Collection[OriginId], *, of: int) -> None:
        """Raises the alarm: others have other sums of the same updates, or most neighbours other digests. Nobody is
        named, for we may be the one who is wrong. of: how many others were compared."""
        self._accusers.update(accusers)
        self.is_agreed = False
        if not self.is_doubted:
            self.is_doubted, self._is_answered = True, False
            self._outbox.log("replicas differ", "error", others=f"{len(accusers)} of {of}")

    def outdate(self, now: float) -> None:
        """The journal has changed: the coefficients have to be rebuilt from it."""
        self._outdated_at = min(self._outdated_at, now)
        self._forget_ours()

    def rebuild(self, now: float) -> bool:
        """Orders a rebuild if the replica is in doubt or outdated, unless there was one just now. Returns whether it
        did."""
        if self.is_rebuilding:
            return False
        if self.is_outdated and now >= self._mend_at:
            rest = 2 * self._mend_seconds if now < self._mend_at + MEND_SECONDS_MAX else MEND_SECONDS_MIN
            self._mend_seconds = min(rest, MEND_SECONDS_MAX)
            self._mend_at = now + self._mend_seconds
        elif self.is_doubted and now >= self._rebuild_at:
            self._rebuild_at = now + self._rebuild_seconds
            self._rebuild_seconds = min(2 * self._rebuild_seconds, REBUILD_SECONDS_MAX)
        else:
            return False
        self._is_expected, self._outdated_at = self.is_outdated, _NEVER
        self.is_rebuilding = self._is_answered = True
        self._forget_ours()
        self._outbox.order(Rebuild(self._applied.held()))
        self.take()
        return True

    def rebuilt(self, is_changed: bool, now: float) -> None:
        """The rebuild has ended. is_changed: the coefficients had not been those that the journal gives."""
        self.is_rebuilding = False
        if self._is_expected:
            self.is_agreed, self.is_doubted = True, False  # those doubted were others: these are the journal's
            self._accusers.clear()
            self._outbox.log("replica rebuilt", "info", was_wrong=False)
            return
        if not is_changed:
            self.credibility.mute(self._accusers, now)
            self.is_agreed, self.is_doubted = True, False
        self._accusers.clear()
        self._outbox.log("replica rebuilt", "error" if is_changed else "warning", was_wrong=is_changed)

    def _forget_ours(self) -> None:
        """Forgets what was found out with other coefficients."""
        self.standing = None
        self._ours.clear()
        self._asked.clear()
        self._awaited_at = None


class HearsayDetector(DivergenceDetector):
    """The divergence detector of a node without a replica: it repeats what its neighbours send of theirs, but to nobody
    what it has sent itself."""

    def __init__(
        self,
        applied: Frontier,
        neighbours: Collection[OriginId],
        outbox: Outbox[Outputs],
        has_replica: Callable[[OriginId], bool] = lambda _: True,
    ) -> None:
        super().__init__(applied, neighbours, outbox, has_replica)
        self._source: OriginId | None = None
        """Who sent the latest word."""
        self._relayed: dict[OriginId, set[ReplicaDigest]] = {}
        """What each neighbour was sent in this comparison period. Nothing is forgotten before its end: else relays in a
        ring would send each other more words than they remember for ever."""
        self._received: Counter[OriginId] = Counter()
        """How many words of each neighbour were repeated in this period."""

    def take(self) -> None:
        """There is nothing to take a digest of."""

    def outdate(self, now: float) -> None:
        """There are no coefficients that the journal could be ahead of."""

    def rebuild(self, now: float) -> bool:
        """A comparison period is over."""
        self._relayed.clear()
        self._received.clear()
        return False

    def latest_for(self, peer: OriginId) -> ReplicaDigest | None:
        return self.latest if peer != self._source else None

    def received(self, peer: OriginId, digest: ReplicaDigest) -> bool | None:
        _keep(self._ours, digest)
        self._source = peer
        relayed = [(other, self._relayed.setdefault(other, set())) for other in self._neighbours if other != peer]
        unsent = [(other, words) for other, words in relayed if digest not in words and len(words) < RELAYED_MAX]
        if unsent and self._received[peer] < REPEATED_MAX:
            self._received[peer] += 1
            for other, words in unsent:
                words.add(digest)
                self._outbox.send(other, digest)
        return None

    def forget(self, peer: OriginId) -> None:
        super().forget(peer)
        self._relayed.pop(peer, None)


def _keep(pairs: Pairs, digest: ReplicaDigest) -> None:
    pairs[digest.frontier_digest] = digest.replica_digest
    pairs.move_to_end(digest.frontier_digest)
    if len(pairs) > REMEMBERED:
        pairs.popitem(last=False)
