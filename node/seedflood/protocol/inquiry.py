"""Inquiry: which origin speaks with two tongues, when two neighbours hold the same steps and come to other sums?

A node knows what it holds by steps, so two contents under one (origin, step) look like one, and each half of a swarm
may hold another. Beside the frontier stands, for every block of steps of an origin that is not compacted yet, how many
bundles it has and the sum of their fingerprints, in any order the same. When replica digests differ at equal frontiers
neighbours tell each other these, pull the blocks that differ, and hold what comes against their journals. Two signed
bundles under one (origin, step) are the proof: it is told to everyone once, and the culprit is named.

Of two contents the one with the smaller hash stands, everywhere and whichever came first; so all honest journals
become equal again, and coefficients are made again from them. What is in a compacted epoch stands as all agreed on it.
A culprit's other bundles count as anybody's: all nodes treat it alike until the operator removes it.

The fingerprint of a bundle is a part of its signature, which is there already: hashing every bundle again would cost a
relay a tenth of what it does. Not of its first half: that is a point its author chooses before it looks at the
content (RFC 8032, section 5.1.6), and a liar may choose the same one twice. The second half depends on the content.
"""

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha256
from itertools import islice

from seedflood.protocol.admission import Admission
from seedflood.protocol.flood import Flood
from seedflood.protocol.frontier import Frontier, without
from seedflood.protocol.membership import Membership
from seedflood.protocol.messages import BlockDigests, Bundle, Equivocation, OriginId
from seedflood.protocol.outbox import Outbox
from seedflood.protocol.repair import Repair
from seedflood.protocol.rules import Rules

BLOCK_STEPS = 64
FINGERPRINT = slice(32, 48)
FINGERPRINTS_BYTES = 17
BLOCKS_TOLD_MAX = 4096
"""In one message: 150 KB."""

BLOCKS_ASKED_MAX = 16
"""At once: some 100 KB."""

INQUIRY_SECONDS_MIN, INQUIRY_SECONDS_MAX = 4.0, 600.0
"""Between two inquiries of a neighbour, twice as long if nothing was found: it may lie about its digests."""

PROOFS_MAX = 1024
"""So many contradictions are remembered and told on; whoever makes more is known by then."""

_ONE = 1 << 136

Block = tuple[OriginId, int, int]
"""(origin, epoch, step // BLOCK_STEPS)."""


class Contents:
    """What was said in the blocks of open epochs: (how many bundles) * 2^136 + the sum of their fingerprints."""

    def __init__(self, rules: Rules) -> None:
        self._period = rules.refresh_period
        self._steps = rules.steps
        self._blocks: dict[int, dict[Block, int]] = {}

    def note(self, bundles: Iterable[Bundle]) -> None:
        period, latest = self._period, -1
        for origin, step, _, _, signature in bundles:
            epoch = step // period
            if epoch != latest:
                latest, blocks = epoch, self._blocks.setdefault(epoch, {})
            name = (origin, epoch, step // BLOCK_STEPS)
            blocks[name] = blocks.get(name, 0) + _ONE + int.from_bytes(signature[FINGERPRINT], "big")

    def replace(self, old: Bundle, new: Bundle) -> None:
        epoch = old.step // self._period
        blocks = self._blocks.get(epoch)
        name = (old.origin, epoch, old.step // BLOCK_STEPS)
        if blocks is not None and name in blocks:  # else the journal is being read still, and has the new one
            blocks[name] += _fingerprint(new) - _fingerprint(old)

    def forget(self, epoch: int) -> None:
        """A sum has taken the place of its bundles."""
        self._blocks.pop(epoch, None)

    def told(self) -> BlockDigests:
        """The blocks that were begun last, if they are too many: of the epochs that were begun last, and the latest
        first. No more of them are looked at, for a run that closes no epoch has any number of them."""
        latest = (block for one in reversed(self._blocks.values()) for block in reversed(one.items()))
        return BlockDigests(tuple((*name, *_told(digest)) for name, digest in islice(latest, BLOCKS_TOLD_MAX)))

    def differing(self, told: BlockDigests) -> list[Block]:
        """Blocks with as many bundles here as there, and others. Where the count differs something is on its way."""
        return [block for block, is_as_many in self._unequal(told) if is_as_many]

    def uneven(self, told: BlockDigests, frontier: Frontier) -> list[Block]:
        """Blocks with more or fewer bundles there, though nothing of them is on its way to us: what was measured for
        one of us may be declared as skipped for the other."""
        uneven = (block for block, is_as_many in self._unequal(told) if not is_as_many)
        return [block for block in uneven if frontier.holds(*self.steps(block))]

    def _unequal(self, told: BlockDigests) -> Iterator[tuple[Block, bool]]:
        """(block, are there as many bundles in it)"""
        for origin, epoch, number, *theirs in told.blocks:
            ours = self._blocks.get(epoch, {}).get((origin, epoch, number))
            if ours is not None and _told(ours) != tuple(theirs):
                yield (origin, epoch, number), _told(ours)[0] == theirs[0]

    def steps(self, block: Block) -> tuple[OriginId, int, int]:
        """(origin, first step, last step) of a block."""
        origin, epoch, number = block
        first = max(epoch * self._period, number * BLOCK_STEPS)
        return origin, first, min((epoch + 1) * self._period, (number + 1) * BLOCK_STEPS, self._steps) - 1


class Inquiry:
    """counts: how many contradictions of each origin were proven."""

    def __init__(
        self,
        rules: Rules,
        contents: Contents,
        frontier: Frontier,
        membership: Membership,
        admission: Admission,
        flood: Flood,
        repair: Repair,
        outbox: Outbox,
    ) -> None:
        self.counts: dict[OriginId, int] = {}
        self._rules = rules
        self._contents = contents
        self._frontier = frontier
        self._membership = membership
        self._admission = admission
        self._flood = flood
        self._repair = repair
        self._outbox = outbox
        self._proven: OrderedDict[tuple[OriginId, int], bytes] = OrderedDict()
        """The hash of the content that stands."""
        self._asked: dict[OriginId, list[Block]] = {}
        """What is pulled from whom for a comparison."""
        self._pauses: dict[OriginId, tuple[float, float, float]] = {}
        """Per neighbour: when it may be told and when asked next, and the pause after that."""

    @property
    def count(self) -> int:
        return sum(self.counts.values())

    def differ(self, peer: OriginId, now: float) -> None:
        """With the same frontier the neighbour has other coefficients: which blocks are it?"""
        tell_at, ask_at, pause = self._pauses.get(peer, (now, now, INQUIRY_SECONDS_MIN))
        if now >= tell_at:
            self._pauses[peer] = (now + pause, ask_at, pause)
            self._outbox.send(peer, self._contents.told())

    def pulled(self, peer: OriginId) -> None:
        """The answer has ended, or the link."""
        self._asked.pop(peer, None)

    def receive(self, peer: OriginId, told: BlockDigests, now: float) -> None:
        """Pulls what differs, as if it were lacking here."""
        tell_at, ask_at, pause = self._pauses.get(peer, (now, now, INQUIRY_SECONDS_MIN))
        if now < ask_at or self._repair.is_pulling(peer):
            return
        contents = self._contents
        blocks = [*contents.differing(told), *contents.uneven(told, self._frontier)][:BLOCKS_ASKED_MAX]
        if not blocks:
            return
        self._pauses[peer] = (tell_at, now + pause, min(2 * pause, INQUIRY_SECONDS_MAX))
        self._repair.ask(peer)
        self._asked[peer] = blocks
        spans = [contents.steps(block) for block in blocks]
        self._outbox.outputs.pull.append((peer, without(self._frontier.held(), spans)))
        self._outbox.send(peer, self._contents.told())

    def receive_again(self, peer: OriginId, bundles: Sequence[Bundle]) -> None:
        """Bundles that are held already: those that were asked for are held against the journal."""
        blocks = self._asked.get(peer)
        if blocks:
            period = self._rules.refresh_period
            wanted = [b for b in bundles if (b.origin, b.step // period, b.step // BLOCK_STEPS) in blocks]
            self._outbox.outputs.check += [(peer, bundle) for bundle in wanted]

    def contradicted(self, peer: OriginId, held: Bundle, other: Bundle) -> None:
        """The journal has another bundle than the neighbour under one (origin, step)."""
        if not self._is_signed(other):
            return
        self._pauses.pop(peer, None)  # it was worth it
        if self._content(held) == self._content(other):  # two signatures for one content: one of them stands
            kept, dropped = sorted((held, other), key=lambda bundle: bundle.signature)
            self._outbox.outputs.settle.append(Equivocation(kept, dropped))
        else:
            self._prove(held, other, None)

    def receive_proof(self, peer: OriginId, proof: Equivocation) -> None:
        """Raises PeerError for a wrong signature; costs little if it is known."""
        kept, dropped = proof.kept, proof.dropped
        known = self._proven.get((kept.origin, kept.step))
        contents = {self._content(kept), self._content(dropped)}
        is_news = known is None or _hash(self._content(kept)) < known or _hash(self._content(dropped)) < known
        if not is_news or len(contents) < 2 or len(self._proven) >= PROOFS_MAX:
            return
        if self._admission.admits(kept, kept.span) and self._admission.admits(dropped, dropped.span):
            self._prove(kept, dropped, peer)

    def _prove(self, one: Bundle, other: Bundle, source: OriginId | None) -> None:
        """Names the culprit, and tells everyone else if that is news."""
        kept, dropped = sorted((one, other), key=lambda bundle: _hash(self._content(bundle)))
        proof = Equivocation(kept, dropped)
        self._outbox.outputs.settle.append(proof)
        name, digest = (kept.origin, kept.step), _hash(self._content(kept))
        known = self._proven.get(name)
        if (known is not None and known <= digest) or len(self._proven) >= PROOFS_MAX:
            return
        self._proven[name] = digest
        if known is None:
            self.counts[kept.origin] = self.counts.get(kept.origin, 0) + 1
            facts = {"kept": kept.signature.hex()[:16], "dropped": dropped.signature.hex()[:16]}
            who = self._membership.name(kept.origin)
            self._outbox.tell("a host contradicts itself", "error", member=who, step=kept.step, **facts)
        for neighbour in self._flood.neighbours:
            if neighbour != source:
                self._outbox.send(neighbour, proof)

    def _content(self, bundle: Bundle) -> bytes:
        member = self._membership.get(bundle.origin)
        return bundle.signed_bytes(self._rules.run_id, member.public_key if member is not None else b"")

    def _is_signed(self, bundle: Bundle) -> bool:
        return self._admission.admits(bundle, bundle.span)


def _told(digest: int) -> tuple[int, bytes]:
    count, fingerprints = divmod(digest, _ONE)
    return count, fingerprints.to_bytes(FINGERPRINTS_BYTES, "big")


def _fingerprint(bundle: Bundle) -> int:
    return int.from_bytes(bundle.signature[FINGERPRINT], "big")


def _hash(content: bytes) -> bytes:
    return sha256(content).digest()
