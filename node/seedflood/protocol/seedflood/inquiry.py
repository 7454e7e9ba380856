"""Inquiry: which origin speaks with two tongues, when two neighbours hold the same steps and come to other sums?

A node knows what it holds by steps, so two contents under one (origin, step) look like one, and each half of a swarm
may hold another. Beside the frontier stands, for every block of steps of an origin that is not compacted yet, how many
bundles it has and the sum of their fingerprints, in any order the same. When replica digests differ at equal frontiers
neighbours tell each other these, pull the blocks that differ, and hold what comes against their journals. Two signed
bundles under one (origin, step) are the proof: it is told to everyone once, and the culprit is named.

What stands then does not depend on what came first, so all honest journals become equal again, and coefficients are
made again from them:

* of two bundles of one step the one that skips more steps before it, for so nothing that is held is taken back; of two
  that skip as many the one whose content has the smaller hash;
* a bundle whose step another one declares as skipped: both. What was measured counts, wherever it turns up.

So each step has one bundle at most, the greatest of all that anybody has seen, and no step looks at another. What is in
a compacted epoch stands as all agreed on it: whoever still has other bundles of it is given the sum, and takes it if
most have signed it (`evidence`). A culprit's other bundles count as anybody's: all nodes treat it alike until the
operator removes it.

The fingerprint of a bundle is a part of its signature, which is there already: hashing every bundle again would cost a
relay a tenth of what it does. Not of its first half: that is a point its author chooses before it looks at the
content (RFC 8032, section 5.1.6), and a liar may choose the same one twice. The second half depends on the content.
"""

from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha256
from itertools import islice

from seedflood.protocol.frontier import Frontier, without
from seedflood.protocol.origin import OriginId
from seedflood.protocol.seedflood.admission import Admission
from seedflood.protocol.seedflood.messages import BlockDigests, Bundle, Equivocation
from seedflood.protocol.seedflood.outputs import Outputs
from seedflood.protocol.seedflood.repair import Repair
from seedflood.protocol.seedflood.rules import Rules
from seedflood.protocol.swarm.membership import Membership
from seedflood.protocol.swarm.neighbours import Neighbours
from seedflood.protocol.swarm.outbox import Outbox

BLOCK_STEPS = 64
FINGERPRINT = slice(32, 48)
FINGERPRINTS_BYTES = 17
BLOCKS_TOLD_MAX = 4096
"""In one message: 150 KB."""

BLOCKS_ASKED_MAX = 16
"""At once: some 100 KB."""

INQUIRY_SECONDS_MIN, INQUIRY_SECONDS_MAX = 4.0, 600.0
"""Between two inquiries of a neighbour, twice as long if nothing was found: it may lie about its digests."""

PROOFS_MAX, PROOFS_OF_ONE_MAX = 1024, 8
"""So many contradictions are remembered and told on, and each so often with something greater; whoever makes more is
known by then."""

_ONE = 1 << 136

Block = tuple[OriginId, int, int]
"""(origin, epoch, step // BLOCK_STEPS)."""

Rank = tuple[int, bytes, bytes]
"""Of a bundle among those of its step: how many steps it skips, then the smaller hash, then the smaller signature."""


class Contents:
    """What was said in the blocks of open epochs: (how many bundles) * 2^136 + the sum of their fingerprints."""

    def __init__(self, rules: Rules) -> None:
        self._period = rules.refresh_period
        self._steps = rules.steps
        self._blocks: dict[int, dict[Block, int]] = {}
        self._summed: set[int] = set()

    def note(self, bundles: Iterable[Bundle]) -> None:
        period, latest = self._period, -1
        for origin, step, _, _, signature in bundles:
            epoch = step // period
            if epoch != latest:
                latest, blocks = epoch, self._blocks.setdefault(epoch, {})
            name = (origin, epoch, step // BLOCK_STEPS)
            blocks[name] = blocks.get(name, 0) + _ONE + int.from_bytes(signature[FINGERPRINT], "big")

    def replace(self, old: Bundle | None, new: Bundle) -> None:
        """old: None if there was none under this step."""
        epoch = new.step // self._period
        blocks = self._blocks.get(epoch)
        name = (new.origin, epoch, new.step // BLOCK_STEPS)
        if blocks is not None and (old is None or name in blocks):  # else it is read from the journal yet
            blocks[name] = blocks.get(name, 0) + _fingerprint(new) - (_fingerprint(old) if old is not None else -_ONE)

    def forget(self, epoch: int) -> None:
        """A sum has taken the place of its bundles."""
        self._blocks.pop(epoch, None)
        self._summed.add(epoch)

    def told(self) -> BlockDigests:
        """The blocks that were begun last, if they are too many: of the epochs that were begun last, and the latest
        first. No more of them are looked at, for a run that closes no epoch has any number of them."""
        latest = (block for one in reversed(self._blocks.values()) for block in reversed(one.items()))
        return BlockDigests(tuple((*name, *_told(digest)) for name, digest in islice(latest, BLOCKS_TOLD_MAX)))

    def differing(self, told: BlockDigests) -> list[Block]:
        """Blocks with as many bundles here as there, and others. Where the count differs something is on its way."""
        return [block for block, counts in self._unequal(told) if counts[0] == counts[1]]

    def uneven(self, told: BlockDigests) -> dict[Block, tuple[int, int]]:
        """Blocks with more or fewer bundles there: what was measured for one of us may be declared as skipped for the
        other. How many there are here, and there."""
        return {block: counts for block, counts in self._unequal(told) if counts[0] != counts[1]}

    def summed(self, told: BlockDigests) -> list[Block]:
        """One block of each epoch of which the other tells none: there a sum may have the place of its bundles."""
        epochs = {epoch for _, epoch, *_ in told.blocks}
        is_all = len(told.blocks) < BLOCKS_TOLD_MAX
        return [next(iter(one)) for epoch, one in self._blocks.items() if is_all and one and epoch not in epochs]

    def _unequal(self, told: BlockDigests) -> Iterator[tuple[Block, tuple[int, int]]]:
        """(block, how many bundles are in it here and there)"""
        for origin, epoch, number, count, fingerprints in told.blocks:
            ours = _told(self._blocks.get(epoch, {}).get((origin, epoch, number), 0))
            if ours != (count, fingerprints) and (ours[0] or epoch not in self._summed):
                yield (origin, epoch, number), (ours[0], count)

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
        neighbours: Neighbours,
        repair: Repair,
        outbox: Outbox[Outputs],
    ) -> None:
        self.counts: dict[OriginId, int] = {}
        self._rules = rules
        self._contents = contents
        self._frontier = frontier
        self._membership = membership
        self._admission = admission
        self._neighbours = neighbours
        self._repair = repair
        self._outbox = outbox
        self._proven: dict[tuple[OriginId, int, int], list[Rank]] = {}
        """By origin and the steps of two bundles: what stood or was measured, the greatest last."""
        self._uneven: dict[OriginId, dict[Block, tuple[int, int]]] = {}
        """Of each neighbour: blocks that it told last, with more or fewer bundles than here."""
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

    def disconnect(self, peer: OriginId) -> None:
        self._asked.pop(peer, None)
        self._uneven.pop(peer, None)

    def receive(self, peer: OriginId, told: BlockDigests, now: float) -> None:
        """Pulls what differs, as if it were lacking here."""
        tell_at, ask_at, pause = self._pauses.get(peer, (now, now, INQUIRY_SECONDS_MIN))
        if now < ask_at or self._repair.is_pulling(peer):
            return
        contents = self._contents
        summed = [block for block in contents.summed(told) if self._frontier.holds(*contents.steps(block))]
        blocks = [*contents.differing(told), *self._lasting(peer, contents.uneven(told)), *summed][:BLOCKS_ASKED_MAX]
        if not blocks:
            return
        self._pauses[peer] = (tell_at, now + pause, min(2 * pause, INQUIRY_SECONDS_MAX))
        self._repair.ask(peer)
        self._asked[peer] = blocks
        spans = [contents.steps(block) for block in blocks]
        outputs = self._outbox.outputs
        outputs.pull.append((peer, without(self._frontier.held(), spans)))
        self._outbox.send(peer, self._contents.told())

    def is_asked_for(self, peer: OriginId, epoch: int) -> bool:
        """Is something pulled from the neighbour that is held of this epoch, but perhaps not as it is there?"""
        return any(one == epoch for _, one, _ in self._asked.get(peer, ()))

    def _lasting(self, peer: OriginId, uneven: dict[Block, tuple[int, int]]) -> list[Block]:
        """Those of which nothing is on its way: all of their steps are held, or the neighbour told the same before."""
        before, self._uneven[peer] = self._uneven.get(peer, {}), uneven
        holds, steps = self._frontier.holds, self._contents.steps
        return [block for block, counts in uneven.items() if holds(*steps(block)) or before.get(block) == counts]

    def receive_again(self, peer: OriginId, bundles: Sequence[Bundle]) -> None:
        """Bundles that are held already: those that were asked for are held against the journal."""
        blocks = self._asked.get(peer)
        if blocks:
            period = self._rules.refresh_period
            wanted = [b for b in bundles if (b.origin, b.step // period, b.step // BLOCK_STEPS) in blocks]
            self._outbox.outputs.check += [(peer, bundle) for bundle in wanted]

    def contradicted(self, peer: OriginId, held: Bundle | None, other: Bundle) -> None:
        """The journal has another bundle than the neighbour under one (origin, step), or one that skips it, or none:
        who skipped it is not known here."""
        if not self._is_signed(other):
            return
        self._pauses.pop(peer, None)  # it was worth it
        if held is None:
            self._settle(Equivocation(other, other))
        elif held.step == other.step and self._content(held) == self._content(other):  # one content, signed twice
            self._settle(Equivocation(*self._in_order(held, other)))
        else:
            self._prove(held, other, None)

    def receive_proof(self, peer: OriginId, proof: Equivocation) -> None:
        """Raises PeerError for a wrong signature; costs little if it is known."""
        kept, dropped = self._in_order(proof.kept, proof.dropped)
        is_one = kept.step == dropped.step and self._content(kept) == self._content(dropped)
        if is_one or not self._is_news(kept, dropped):
            return
        if self._admission.admits(kept, kept.span) and self._admission.admits(dropped, dropped.span):
            self._prove(kept, dropped, peer)

    def stands_over(self, one: Bundle, other: Bundle) -> bool:
        """Of two bundles of one step: does this one stand?"""
        return self._rank(one) > self._rank(other)

    def _prove(self, one: Bundle, other: Bundle, source: OriginId | None) -> None:
        """Names the culprit, and tells everyone else if that is news."""
        proof = Equivocation(*self._in_order(one, other))
        kept, dropped = proof.kept, proof.dropped
        self._settle(proof)
        if not self._is_news(kept, dropped):
            return
        known = self._proven.setdefault((kept.origin, kept.step, dropped.step), [])
        known.append(self._rank(kept))
        if len(known) == 1:
            self.counts[kept.origin] = self.counts.get(kept.origin, 0) + 1
            facts = {"kept": kept.signature.hex()[:16], "dropped": dropped.signature.hex()[:16]}
            if kept.step != dropped.step:
                facts = {"measured": kept.signature.hex()[:16], "skipped": dropped.signature.hex()[:16]}
            who = self._membership.name(kept.origin)
            self._outbox.tell("a host contradicts itself", "error", member=who, step=kept.step, **facts)
        for neighbour in self._neighbours:
            if neighbour != source:
                self._outbox.send(neighbour, proof)

    def _settle(self, proof: Equivocation) -> None:
        outputs = self._outbox.outputs
        outputs.settle.append(proof)

    def _is_news(self, kept: Bundle, dropped: Bundle) -> bool:
        """Is it to be told on? Of what goes on without end neighbours find out by themselves, at their own pace."""
        known = self._proven.get((kept.origin, kept.step, dropped.step))
        if known is None:
            return len(self._proven) < PROOFS_MAX
        return len(known) < PROOFS_OF_ONE_MAX and known[-1] < self._rank(kept)

    def _in_order(self, one: Bundle, other: Bundle) -> tuple[Bundle, Bundle]:
        """First the one that stands, or that was measured; then the other one of its step, or the one that skips it."""
        if one.step != other.step:
            return (one, other) if one.step < other.step else (other, one)
        return (one, other) if self.stands_over(one, other) else (other, one)

    def _rank(self, bundle: Bundle) -> Rank:
        """The greatest of all bundles of one step stands."""
        return bundle.skipped, _inverse(_hash(self._content(bundle))), _inverse(bundle.signature)

    def _content(self, bundle: Bundle) -> bytes:
        member = self._membership.get(bundle.origin)
        return bundle.signed_bytes(self._rules.run_id, member.public_key if member is not None else b"")

    def _is_signed(self, bundle: Bundle) -> bool:
        return self._admission.admits(bundle, bundle.span)


def do_contradict(one: Bundle, other: Bundle) -> bool:
    """Does their origin say two different things by them?"""
    first, second = sorted((one, other), key=lambda bundle: bundle.step)
    is_either = first.step == second.step or second.first_covered <= first.last
    return one.origin == other.origin and one != other and is_either


def _told(digest: int) -> tuple[int, bytes]:
    count, fingerprints = divmod(digest, _ONE)
    return count, fingerprints.to_bytes(FINGERPRINTS_BYTES, "big")


def _fingerprint(bundle: Bundle) -> int:
    return int.from_bytes(bundle.signature[FINGERPRINT], "big")


def _inverse(number: bytes) -> bytes:
    return bytes(255 - byte for byte in number)


def _hash(content: bytes) -> bytes:
    return sha256(content).digest()
