"""The digest watch: neighbours tell each other the digest of their coefficients, each with the frontier it stands for.

Equal frontiers with unequal digests are a fault of one of the two (a flipped bit, a broken disk, an origin that speaks
with two tongues). Nobody can tell whose, so whoever differs from most of its neighbours (`jury`)
raises the alarm and makes its coefficients again from its journal. If that changed something, it is not ready until
its digest equals a neighbour's again; if not, it was right all along.

Nodes pass the same frontiers at different moments, so both sides remember the last ones, and whoever learns the second
half of a pair compares.

If an origin has contradicted itself, and the journal has something else now than the coefficients, these are *outdated*
until they are made again, which has to wait for a while if it happens often. Meanwhile their digest says nothing: none
is taken, told or compared, and nobody ends a run with them.
"""

from collections import OrderedDict
from collections.abc import Iterable

from seedflood.protocol.frontier import Frontier, Held
from seedflood.protocol.origin import OriginId
from seedflood.protocol.seedflood.jury import Jury
from seedflood.protocol.seedflood.messages import ReplicaDigest, Standing
from seedflood.protocol.seedflood.outputs import Outputs, Rebuild, TakeDigest
from seedflood.protocol.swarm.outbox import Outbox

DIGEST_ROUNDS = 8
"""A digest is taken after every so many rounds: the same ones on all nodes, so that their frontiers meet."""

REMEMBERED = 32
"""Pairs per neighbour: nodes that wait for each other are one round apart."""

REBUILD_SECONDS_MIN, REBUILD_SECONDS_MAX = 1.0, 3600.0
"""Between two rebuilds, twice as long every time: if the journal itself differs, another one does not help."""

MEND_SECONDS_MIN, MEND_SECONDS_MAX = 2.0, 64.0
"""The same of rebuilds because an origin contradicts itself; all that is settled in between is in one."""

Pairs = OrderedDict[bytes, bytes]

_NEVER = float("inf")


class DigestWatch:
    """Pairs of (frontier digest, replica digest), our own and those of linked neighbours.

    is_agreed: a neighbour's digest was equal to ours, or a rebuild found ours right, and no doubt arose since.
    is_doubted: most were unequal, and none equal since. standing: the last digest of ours, and of what; told at the end
    of a pull.
    """

    def __init__(self) -> None:
        self.is_agreed = False
        self.is_doubted = False
        self.is_rebuilding = False
        self.standing: Standing | None = None
        self._ours: Pairs = OrderedDict()
        self._theirs: dict[OriginId, Pairs] = {}
        self._asked: dict[bytes, tuple[Held, ...]] = {}
        """Frontiers whose digests are being taken."""
        self._equal_at: dict[OriginId, bytes] = {}
        """Per neighbour, the last frontier at which both were equal."""
        self.jury = Jury()
        self._accusers: set[OriginId] = set()
        """Who made us doubt."""
        self._outdated_at = _NEVER
        """When the journal first became another one than the coefficients were made from."""
        self._is_expected = False
        """Are they being made again because of that?"""
        self._is_answered = True
        """Were the coefficients made again since the doubt arose?"""
        self._mend_at, self._mend_seconds = float("-inf"), 0.0
        self._rebuild_at = float("-inf")
        self._rebuild_seconds = REBUILD_SECONDS_MIN

    @property
    def latest(self) -> ReplicaDigest | None:
        pair = next(reversed(self._ours.items()), None)
        return ReplicaDigest(*pair) if pair is not None else None

    @property
    def is_outdated(self) -> bool:
        """Has the journal changed since the coefficients were made?"""
        return self._outdated_at < _NEVER

    @property
    def is_current(self) -> bool:
        """Are the coefficients those of the journal, as far as we know, and not being made again?"""
        return not (self.is_rebuilding or self.is_outdated)

    def is_settled(self, moment: float) -> bool:
        """Is every change of the journal up to this moment in the coefficients, and every doubt answered by a rebuild?

        What has come since is not waited for: who contradicts itself may go on for ever. Nor is a doubt whose rebuild
        has to wait for longer than any change: several rebuilds just before it have answered the same.
        """
        is_due = self.is_doubted and not self._is_answered and self._rebuild_at < moment + MEND_SECONDS_MAX
        return not (self.is_rebuilding or is_due) and self._outdated_at > moment

    def take(self, applied: Frontier, outbox: Outbox[Outputs]) -> None:
        """Orders the digest of what is applied, unless it is known or on its way, or would say nothing."""
        key = applied.digest()
        if not self.is_outdated and key not in self._asked and key not in self._ours:
            self._asked[key] = applied.held()
            outbox.outputs.order(TakeDigest(key))

    def taken(
        self, said: ReplicaDigest, outbox: Outbox[Outputs], neighbours: Iterable[OriginId]
    ) -> list[tuple[OriginId, bool]]:
        """Our own digest: tells the neighbours; says with which of theirs it could be compared, and whether equal."""
        held = None if self.is_rebuilding else self._asked.pop(said.frontier_digest, None)
        if held is None:
            return []  # ordered before a rebuild
        self.standing = Standing(held, said.replica_digest)
        _keep(self._ours, said)
        for peer in neighbours:
            outbox.send(peer, said)
        known = [
            (peer, theirs[said.frontier_digest])
            for peer, theirs in self._theirs.items()
            if said.frontier_digest in theirs
        ]
        return [(peer, self._note(peer, said, theirs)) for peer, theirs in known]

    def heard(self, peer: OriginId, said: ReplicaDigest) -> bool | None:
        """A neighbour's digest: is it equal to ours? None: we have none of that frontier yet."""
        _keep(self._theirs.setdefault(peer, OrderedDict()), said)
        ours = self._ours.get(said.frontier_digest)
        return None if ours is None else self._note(peer, said, ours)

    def is_equal_at(self, peer: OriginId, frontier_digest: bytes) -> bool:
        """Was the neighbour's digest equal to ours with exactly this frontier applied?"""
        return self._equal_at.get(peer) == frontier_digest

    def forget(self, peer: OriginId) -> None:
        self._theirs.pop(peer, None)
        self._equal_at.pop(peer, None)
        self.jury.forget(peer)

    def compared(self, peer: OriginId, who: str, outbox: Outbox[Outputs], now: float, *, is_equal: bool) -> bool:
        """A neighbour's digest was compared with ours. Is it news that one is equal?"""
        self.jury.hear(peer, is_equal)
        accusers = self.jury.accusers(now)
        if accusers:
            self.doubt(accusers, who, outbox)
        if accusers or self.is_rebuilding or not is_equal:
            return False
        is_news = not self.is_agreed
        self.is_agreed, self.is_doubted = True, False
        return is_news

    def doubt(self, accusers: Iterable[OriginId], who: str, outbox: Outbox[Outputs]) -> None:
        """The alarm: others hold other sums of the same updates, or most neighbours have other digests."""
        self._accusers.update(accusers)
        self.is_agreed = False
        if not self.is_doubted:
            self.is_doubted, self._is_answered = True, False
            outbox.tell("replicas differ", "error", other=who)

    def outdate(self, now: float) -> None:
        """The journal has changed: the coefficients are to be made again from it."""
        self._outdated_at = min(self._outdated_at, now)
        self._forget_ours()

    def rebuild(self, applied: Frontier, outbox: Outbox[Outputs], now: float) -> bool:
        """Orders the rebuild of a replica in doubt, unless there was one just now. Was it ordered?"""
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
        outbox.outputs.order(Rebuild(applied.held()))
        self.take(applied, outbox)
        return True

    def rebuilt(self, is_changed: bool, outbox: Outbox[Outputs], now: float) -> None:
        """is_changed: the coefficients had not been those that the journal gives."""
        self.is_rebuilding = False
        if self._is_expected:
            self.is_agreed, self.is_doubted = True, False  # those doubted were others: these are the journal's
            self._accusers.clear()
            outbox.tell("replica rebuilt", "info", was_wrong=False)
            return
        if not is_changed:
            self.jury.mute(self._accusers, now)
            self.is_agreed, self.is_doubted = True, False
        self._accusers.clear()
        outbox.tell("replica rebuilt", "error" if is_changed else "warning", was_wrong=is_changed)

    def _forget_ours(self) -> None:
        """What was taken of other coefficients, and what came of it."""
        self.standing = None
        self._ours.clear()
        self._asked.clear()
        self._equal_at.clear()
        self.jury.clear()

    def _note(self, peer: OriginId, said: ReplicaDigest, other: bytes) -> bool:
        is_equal = said.replica_digest == other
        if is_equal:
            self._equal_at[peer] = said.frontier_digest
        return is_equal


def _keep(pairs: Pairs, said: ReplicaDigest) -> None:
    pairs[said.frontier_digest] = said.replica_digest
    pairs.move_to_end(said.frontier_digest)
    if len(pairs) > REMEMBERED:
        pairs.popitem(last=False)
