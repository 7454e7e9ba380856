"""Inquiry: two neighbours hold the same steps and come to other sums. Which origin contradicts itself (equivocates)?

A node counts what it holds by steps. Two different bundles of one step look like one, and each half of a swarm may hold
another of them. So, beside the frontier, a node keeps a count and a sum of fingerprints for every block of an origin's
steps that is not compacted yet; they do not depend on the order of arrival. When replica digests differ at equal
frontiers, neighbours tell each other these, pull the blocks that differ, and compare what comes with their journals.
Two signed bundles of one (origin, step) are a proof. It is told to everyone once, and the culprit is named. Who links
with us later is told one proof for each culprit.

What stands then does not depend on what came first. So all honest journals become equal again, and coefficients are
rebuilt from them:

* of two bundles of one step, the one that skips more steps before it stands, so that nothing that is held is taken
  back; if they skip as many, the one whose content has the smaller hash;
* if one bundle measures a step that another one declares as skipped, both stand. What was measured counts, wherever it
  turns up.

So each step has one bundle at most, the greatest of all that anybody has seen, and no step depends on another. In a
compacted epoch the sum stands that has a certificate (`certificates`). A node that still has other bundles of the epoch
is given the sum, and takes it. All other bundles of a culprit count like anybody's: every node
treats it alike until the operator removes it.

The fingerprint of a bundle is a part of its signature, which is there already; hashing every bundle again would cost a
relay a tenth of its time. The first half of a signature would not do: it is a point that its author chooses before the
content matters (RFC 8032, section 5.1.6), so a liar may choose the same one twice. The second half depends on the
content.
"""

import struct
from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha256
from itertools import islice

from seedflood.protocol.frontier import Frontier, without
from seedflood.protocol.origin import OriginId
from seedflood.protocol.seedflood.admission import Admission, Terms
from seedflood.protocol.seedflood.donors import Donors
from seedflood.protocol.seedflood.messages import BlockDigests, Bundle, Equivocation
from seedflood.protocol.seedflood.outputs import Outputs
from seedflood.protocol.seedflood.rules import Rules
from seedflood.protocol.swarm.membership import Membership
from seedflood.protocol.swarm.neighbours import Neighbours
from seedflood.protocol.swarm.outbox import Outbox

BLOCK_STEPS = 64
FINGERPRINT = slice(32, 48)
FINGERPRINTS_BYTES = 17
BLOCKS_TOLD_MAX = 4096
"""The most blocks in one message: 150 KB."""

BLOCKS_ASKED_MAX = 16
"""The most blocks that are pulled at once: some 100 KB."""

INQUIRY_SECONDS_MIN, INQUIRY_SECONDS_MAX = 4.0, 600.0
"""Between two inquiries with a neighbour; twice as long each time that nothing was found, for it may lie about its
digests."""

PROOFS_MAX, PROOFS_OF_ONE_MAX = 1024, 8
"""The most (origin, step) pairs whose contradictions are kept and passed on, and how often each is passed on with a
greater bundle. A host that makes more of them is known by then."""

CULPRITS_MAX = 64
"""Of so many culprits one proof each is kept, for neighbours that come later."""

_ONE = 1 << 136

Block = tuple[OriginId, int, int]
"""(origin, epoch, step // BLOCK_STEPS)."""

Rank = tuple[int, bytes, bytes]
"""Ranks the bundles of one step: how many steps it skips, then the smaller hash, then the smaller signature."""


class Contents:
    """What was said in each block of open epochs, as one number: how many bundles * 2^136 + the sum of their
    fingerprints."""

    def __init__(self, rules: Rules) -> None:
        self._period = rules.refresh_period
        self._steps = rules.steps
        self._blocks: dict[int, dict[Block, int]] = {}
        self._summed: set[int] = set()

    def note(self, bundles: Iterable[Bundle]) -> None:
        """These bundles are held from now on."""
        period, latest = self._period, -1
        for origin, step, _, _, signature in bundles:
            epoch = step // period
            if epoch != latest:
                latest, blocks = epoch, self._blocks.setdefault(epoch, {})
            name = (origin, epoch, step // BLOCK_STEPS)
            blocks[name] = blocks.get(name, 0) + _ONE + int.from_bytes(signature[FINGERPRINT], "big")

    def replace(self, old: Bundle | None, new: Bundle) -> None:
        """One bundle takes the place of another. old: None if there was none of this step."""
        epoch = new.step // self._period
        blocks = self._blocks.get(epoch)
        name = (new.origin, epoch, new.step // BLOCK_STEPS)
        if blocks is not None and (old is None or name in blocks):  # else it is read from the journal yet
            blocks[name] = blocks.get(name, 0) + _fingerprint(new) - (_fingerprint(old) if old is not None else -_ONE)

    def take_out(self, bundles: Iterable[Bundle]) -> None:
        """These bundles are held no more. Those that were not read from the journal yet never will be."""
        for bundle in bundles:
            epoch = bundle.step // self._period
            blocks, name = self._blocks.get(epoch, {}), (bundle.origin, epoch, bundle.step // BLOCK_STEPS)
            rest = blocks.pop(name, 0) - _ONE - _fingerprint(bundle)
            if rest >= _ONE:
                blocks[name] = rest

    def digest(self, origin: OriginId, since: int) -> bytes:
        """32 bytes: of what is held of an origin in open epochs from the step `since` on, which begins one."""
        state, period = sha256(b"seedflood content 1\0"), self._period
        for epoch in sorted(epoch for epoch in self._blocks if epoch * period >= since):
            for number in range(epoch * period // BLOCK_STEPS, (epoch + 1) * period // BLOCK_STEPS + 1):
                if told := self._blocks[epoch].get((origin, epoch, number)):
                    count, fingerprints = _told(told)
                    state.update(struct.pack(">QQQ", epoch, number, count) + fingerprints)
        return state.digest()

    def is_summed(self, since: int) -> bool:
        """Have sums taken the place of bundles from this step on?"""
        return any(epoch * self._period >= since for epoch in self._summed)

    def forget(self, epoch: int) -> None:
        """A sum has taken the place of the epoch's bundles."""
        self._blocks.pop(epoch, None)
        self._summed.add(epoch)

    def told(self) -> BlockDigests:
        """All blocks, or the BLOCKS_TOLD_MAX that were begun last, the latest first. A run that closes no epoch has any
        number of blocks, so no others are looked at."""
        latest = (block for one in reversed(self._blocks.values()) for block in reversed(one.items()))
        return BlockDigests(tuple((*name, *_told(digest)) for name, digest in islice(latest, BLOCKS_TOLD_MAX)))

    def differing(self, told: BlockDigests) -> list[Block]:
        """Blocks with the same number of bundles on both sides but other fingerprints."""
        return [block for block, counts in self._unequal(told) if counts[0] == counts[1]]

    def uneven(self, told: BlockDigests) -> dict[Block, tuple[int, int]]:
        """Blocks with more or fewer bundles on the other side, and how many there are (here, there). Either something
        is in flight, or a step was measured for one of us and skipped for the other."""
        return {block: counts for block, counts in self._unequal(told) if counts[0] != counts[1]}

    def summed(self, told: BlockDigests) -> list[Block]:
        """One block of each epoch of which the other side tells none: a sum may have taken the place of its bundles
        there."""
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
    """Finds and proves contradictions. counts: how many were proven, by origin."""

    def __init__(
        self,
        rules: Rules,
        contents: Contents,
        frontier: Frontier,
        membership: Membership,
        admission: Admission,
        neighbours: Neighbours,
        donors: Donors,
        outbox: Outbox[Outputs],
    ) -> None:
        self.counts: dict[OriginId, int] = {}
        self._rules = rules
        self._contents = contents
        self._frontier = frontier
        self._membership = membership
        self._admission = admission
        self._neighbours = neighbours
        self._donors = donors
        self._outbox = outbox
        self._proven: dict[tuple[OriginId, int, int], list[Rank]] = {}
        """By (origin, the steps of the two bundles): the ranks of what stood or was measured, the greatest last."""
        self._kept: dict[OriginId, Equivocation] = {}
        """By culprit: the first proof."""
        self._reminded: set[OriginId] = set()
        """The neighbours that were told these proofs since their link is up, or before."""
        self._uneven: dict[OriginId, dict[Block, tuple[int, int]]] = {}
        """By neighbour: the blocks that it told last with more or fewer bundles than here."""
        self._asked: dict[OriginId, list[Block]] = {}
        """By neighbour: the blocks that are pulled from it to be compared."""
        self._pauses: dict[OriginId, tuple[float, float, float]] = {}
        """By neighbour: when it may be told next, when asked next, and the pause after that."""

    @property
    def count(self) -> int:
        return sum(self.counts.values())

    def differ(self, peer: OriginId, now: float) -> None:
        """A neighbour with the same frontier has other coefficients: tells it our blocks, so that it finds those that
        differ."""
        tell_at, ask_at, pause = self._pauses.get(peer, (now, now, INQUIRY_SECONDS_MIN))
        if now >= tell_at:
            self._pauses[peer] = (now + pause, ask_at, pause)
            self._outbox.send(peer, self._contents.told())

    def remind_all(self) -> None:
        """Tells neighbours what was proven before their link was up, once for each link. They must know the culprits as
        members by now."""
        for peer in self._neighbours:
            if peer not in self._reminded:
                self._reminded.add(peer)
                self._outbox.outputs.send += [(peer, proof) for proof in self._kept.values()]

    def pulled(self, peer: OriginId) -> None:
        """The answer to our pull has ended, or broken off."""
        self._asked.pop(peer, None)

    def disconnect(self, peer: OriginId) -> None:
        self._asked.pop(peer, None)
        self._uneven.pop(peer, None)
        self._reminded.discard(peer)

    def receive(self, peer: OriginId, told: BlockDigests, now: float) -> None:
        """Pulls the blocks that differ, as if we lacked them."""
        tell_at, ask_at, pause = self._pauses.get(peer, (now, now, INQUIRY_SECONDS_MIN))
        if now < ask_at or self._donors.is_pulling(peer):
            return
        contents = self._contents
        summed = [block for block in contents.summed(told) if self._frontier.holds(*contents.steps(block))]
        lasting = self._lasting(peer, contents.uneven(told))
        blocks = [*contents.differing(told), *lasting, *summed][:BLOCKS_ASKED_MAX]
        if not blocks:
            return
        self._pauses[peer] = (tell_at, now + pause, min(2 * pause, INQUIRY_SECONDS_MAX))
        self._donors.ask(peer)
        self._asked[peer] = blocks
        spans = [contents.steps(block) for block in blocks]
        outputs = self._outbox.outputs
        outputs.pull.append((peer, without(self._frontier.held(), spans)))
        self._outbox.send(peer, self._contents.told())

    def is_asked_for(self, peer: OriginId, epoch: int) -> bool:
        """Do we pull blocks of this epoch from the neighbour that are held here already?"""
        return any(one == epoch for _, one, _ in self._asked.get(peer, ()))

    def _lasting(self, peer: OriginId, uneven: dict[Block, tuple[int, int]]) -> list[Block]:
        """The uneven blocks for which nothing can be in flight: we hold all of their steps, or the neighbour has sent
        the same counts twice."""
        before, self._uneven[peer] = self._uneven.get(peer, {}), uneven
        holds, steps = self._frontier.holds, self._contents.steps
        return [block for block, counts in uneven.items() if holds(*steps(block)) or before.get(block) == counts]

    def receive_again(self, peer: OriginId, bundles: Sequence[Bundle]) -> None:
        """Bundles came that are held already: those of blocks that we asked for are compared with the journal."""
        blocks = self._asked.get(peer)
        if blocks:
            period = self._rules.refresh_period
            wanted = [b for b in bundles if (b.origin, b.step // period, b.step // BLOCK_STEPS) in blocks]
            self._outbox.outputs.check += [(peer, bundle) for bundle in wanted]

    def contradicted(self, peer: OriginId, held: Bundle | None, other: Bundle) -> None:
        """The neighbour sent `other`, and the journal has another bundle of this step, or one that skips it. held: that
        bundle; None if the step counts as skipped and it is not known by which bundle."""
        terms = Terms(is_answer=True)  # it adds no step that is not held, whoever has said it
        if not self._admission.admits(other, other.span, terms):
            return
        self._pauses.pop(peer, None)  # it was worth it
        if held is None:
            self._settle(Equivocation(other, other))
        elif held.step == other.step and self._content(held) == self._content(other):  # one content, signed twice
            self._settle(Equivocation(*self._in_order(held, other)))
        else:
            self._prove(held, other, None)

    def receive_proof(self, peer: OriginId, proof: Equivocation, terms: Terms) -> None:
        """Takes a proof from a peer. Raises PeerError for a wrong signature. A known proof costs little."""
        kept, dropped = self._in_order(proof.kept, proof.dropped)
        is_one = kept.step == dropped.step and self._content(kept) == self._content(dropped)
        if is_one or not self._is_news(kept, dropped):
            return
        admits = self._admission.admits
        if admits(kept, kept.span, terms) and admits(dropped, dropped.span, terms):
            self._prove(kept, dropped, peer)

    def stands_over(self, one: Bundle, other: Bundle) -> bool:
        """Does the first of these two bundles of one step stand?"""
        return self._rank(one) > self._rank(other)

    def _prove(self, one: Bundle, other: Bundle, source: OriginId | None) -> None:
        """Names the culprit, and tells all other neighbours if that is news."""
        proof = Equivocation(*self._in_order(one, other))
        kept, dropped = proof.kept, proof.dropped
        self._settle(proof)
        if not self._is_news(kept, dropped):
            return
        known = self._proven.setdefault((kept.origin, kept.step, dropped.step), [])
        known.append(self._rank(kept))
        if len(known) == 1:
            if len(self._kept) < CULPRITS_MAX:
                self._kept.setdefault(kept.origin, proof)
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
        """Is this proof to be passed on? If an origin contradicts itself without end, neighbours find out by
        themselves, at their own pace."""
        known = self._proven.get((kept.origin, kept.step, dropped.step))
        if known is None:
            return len(self._proven) < PROOFS_MAX
        return len(known) < PROOFS_OF_ONE_MAX and known[-1] < self._rank(kept)

    def _in_order(self, one: Bundle, other: Bundle) -> tuple[Bundle, Bundle]:
        """(the bundle that stands, the other one of its step), or (the bundle that measured a step, the one that skips
        it)."""
        if one.step != other.step:
            return (one, other) if one.step < other.step else (other, one)
        return (one, other) if self.stands_over(one, other) else (other, one)

    def _rank(self, bundle: Bundle) -> Rank:
        """The greatest of all bundles of one step stands."""
        return bundle.skipped, _inverse(_hash(self._content(bundle))), _inverse(bundle.signature)

    def _content(self, bundle: Bundle) -> bytes:
        member = self._membership.get(bundle.origin)
        return bundle.signed_bytes(self._rules.run_id, member.public_key if member is not None else b"")


def do_contradict(one: Bundle, other: Bundle) -> bool:
    """Does an origin contradict itself by these two bundles?"""
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
