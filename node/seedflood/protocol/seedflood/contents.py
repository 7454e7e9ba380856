"""What a node holds, block by block, so that two nodes find out where they hold different bundles of the same steps.

A frontier counts steps, and two different bundles of one step look like one to it. So, beside the frontier, a node
keeps a count and a sum of fingerprints for every block of an origin's steps that is not compacted yet. They do not
depend on the order of arrival.

The fingerprint of a bundle is a part of its signature, which is there already. To hash every bundle again would cost a
relay a tenth of its time. The first half of a signature would not do: it is a point that the author chooses before the
content matters (RFC 8032, section 5.1.6), so a liar may choose the same one twice. The second half depends on the
content.
"""

import struct
from collections.abc import Callable, Iterable, Iterator
from hashlib import sha256
from itertools import islice

from seedflood.protocol.origin import OriginId
from seedflood.protocol.seedflood.bundles import Bundle
from seedflood.protocol.seedflood.messages import BlockDigests
from seedflood.protocol.seedflood.rules import Rules

BLOCK_STEPS = 64
FINGERPRINT = slice(-32, -16)
"""Where a bundle's bytes have its fingerprint: the third quarter of the signature."""
FINGERPRINTS_BYTES = 17
"""The bytes of a sum of fingerprints."""
BLOCKS_SENT_MAX = 4096
"""The most blocks in one message: 150 KB."""

_ONE = 1 << 8 * FINGERPRINTS_BYTES
"""One bundle, in the number of a block."""

Block = tuple[OriginId, int, int]
"""(origin, epoch, step // BLOCK_STEPS)."""


class Contents:
    """What is held in each block of open epochs."""

    def __init__(self, rules: Rules) -> None:
        self._period = rules.refresh_period
        self._steps = rules.steps
        self._blocks: dict[int, dict[Block, int]] = {}
        """By epoch and block, one number: how many bundles it has * 2^136 + the sum of their fingerprints."""
        self._summed: set[int] = set()
        """The epochs whose sums have taken the place of bundles."""

    def note(self, bundles: Iterable[Bundle]) -> None:
        """These bundles are held from now on."""
        period = self._period
        latest = -1
        for origin, step, _, _, data in bundles:
            epoch = step // period
            if epoch != latest:
                latest = epoch
                blocks = self._blocks.setdefault(epoch, {})
            name = (origin, epoch, step // BLOCK_STEPS)
            blocks[name] = blocks.get(name, 0) + _ONE + int.from_bytes(data[FINGERPRINT], "big")

    def take_out(self, bundles: Iterable[Bundle]) -> None:
        """These bundles are no longer held. Those that were not read from the journal yet never will be."""
        for bundle in bundles:
            epoch = bundle.step // self._period
            blocks = self._blocks.get(epoch, {})
            name = (bundle.origin, epoch, bundle.step // BLOCK_STEPS)
            fingerprint = int.from_bytes(bundle.data[FINGERPRINT], "big")
            rest = blocks.pop(name, 0) - _ONE - fingerprint
            if rest >= _ONE:
                blocks[name] = rest

    def digest(self, origin: OriginId, since: int) -> bytes:
        """32 bytes: of what is held of an origin in open epochs from the step `since` on, where an epoch begins."""
        state = sha256(b"seedflood content 1\0")
        period = self._period
        for epoch in sorted(epoch for epoch in self._blocks if epoch * period >= since):
            first = epoch * period // BLOCK_STEPS
            end = (epoch + 1) * period // BLOCK_STEPS + 1
            for number in range(first, end):
                block = self._blocks[epoch].get((origin, epoch, number))
                if block:
                    count, fingerprints = _count_and_fingerprint(block)
                    state.update(struct.pack(">QQQ", epoch, number, count) + fingerprints)
        return state.digest()

    def is_summed(self, since: int) -> bool:
        """Have sums taken the place of bundles from this step on?"""
        return any(epoch * self._period >= since for epoch in self._summed)

    def forget(self, epoch: int) -> None:
        """A sum has taken the place of the epoch's bundles."""
        self._blocks.pop(epoch, None)
        self._summed.add(epoch)

    def digests(self) -> BlockDigests:
        """All blocks, or the BLOCKS_SENT_MAX that were begun last, the latest first. It looks at no others: a run that
        closes no epoch has any number of blocks."""
        latest_first = (block for blocks in reversed(self._blocks.values()) for block in reversed(blocks.items()))
        sent = islice(latest_first, BLOCKS_SENT_MAX)
        return BlockDigests(tuple((*name, *_count_and_fingerprint(block)) for name, block in sent))

    def differing(self, theirs: BlockDigests) -> list[Block]:
        """Blocks with the same number of bundles on both sides but other fingerprints."""
        return [block for block, (here, there) in self._unequal(theirs) if here == there]

    def uneven(self, theirs: BlockDigests) -> dict[Block, tuple[int, int]]:
        """Blocks with more or fewer bundles on the other side, and how many there are (here, there). Either something
        is in flight, or the origin sent one of us a step as measured, and the other one the same step as skipped."""
        return {block: (here, there) for block, (here, there) in self._unequal(theirs) if here != there}

    def summed(self, theirs: BlockDigests, is_whole: Callable[[Block], bool]) -> list[Block]:
        """One block of each epoch of which the other side has none: a sum may have taken the place of its bundles
        there. is_whole: are all steps of a block held here?"""
        if len(theirs.blocks) >= BLOCKS_SENT_MAX:
            return []  # they may have more blocks than they sent
        epochs = {epoch for _, epoch, *_ in theirs.blocks}
        found = []
        for epoch, blocks in self._blocks.items():
            if epoch in epochs:
                continue
            whole = next(filter(is_whole, blocks), None)
            if whole is not None:
                found.append(whole)
        return found

    def _unequal(self, theirs: BlockDigests) -> Iterator[tuple[Block, tuple[int, int]]]:
        """The blocks that differ, each with how many bundles are in it (here, there)."""
        for origin, epoch, number, count, fingerprints in theirs.blocks:
            block = (origin, epoch, number)
            ours = _count_and_fingerprint(self._blocks.get(epoch, {}).get(block, 0))
            if ours == (count, fingerprints):
                continue
            our_count, _ = ours
            is_summed_here = epoch in self._summed and not our_count
            if not is_summed_here:
                yield block, (our_count, count)

    def steps(self, block: Block) -> tuple[OriginId, int, int]:
        """(origin, first step, last step) of a block."""
        origin, epoch, number = block
        first = max(epoch * self._period, number * BLOCK_STEPS)
        end = min((epoch + 1) * self._period, (number + 1) * BLOCK_STEPS, self._steps)
        return origin, first, end - 1


def _count_and_fingerprint(block: int) -> tuple[int, bytes]:
    count, fingerprints = divmod(block, _ONE)
    return count, fingerprints.to_bytes(FINGERPRINTS_BYTES, "big")
