"""What a node holds, block by block, so that two nodes find where they hold other bundles of the same steps.

A frontier counts steps, and two different bundles of one step look like one to it. So, beside the frontier, a node
keeps a count and a sum of fingerprints for every block of an origin's steps that is not compacted yet. They do not
depend on the order of arrival.

The fingerprint of a bundle is a part of its signature, which is there already; hashing every bundle again would cost a
relay a tenth of its time. The first half of a signature would not do: it is a point that its author chooses before the
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
"""Of a bundle's bytes: the third quarter of its signature."""
FINGERPRINTS_BYTES = 17
BLOCKS_SENT_MAX = 4096
"""The most blocks in one message: 150 KB."""

_ONE = 1 << 136

Block = tuple[OriginId, int, int]
"""(origin, epoch, step // BLOCK_STEPS)."""


class Contents:
    """What was published in each block of open epochs, as one number: how many bundles * 2^136 + the sum of their
    fingerprints."""

    def __init__(self, rules: Rules) -> None:
        self._period = rules.refresh_period
        self._steps = rules.steps
        self._blocks: dict[int, dict[Block, int]] = {}
        self._summed: set[int] = set()

    def note(self, bundles: Iterable[Bundle]) -> None:
        """These bundles are held from now on."""
        period, latest = self._period, -1
        for origin, step, _, _, data in bundles:
            epoch = step // period
            if epoch != latest:
                latest, blocks = epoch, self._blocks.setdefault(epoch, {})
            name = (origin, epoch, step // BLOCK_STEPS)
            blocks[name] = blocks.get(name, 0) + _ONE + int.from_bytes(data[FINGERPRINT], "big")

    def take_out(self, bundles: Iterable[Bundle]) -> None:
        """These bundles are held no more. Those that were not read from the journal yet never will be."""
        for bundle in bundles:
            epoch = bundle.step // self._period
            blocks, name = self._blocks.get(epoch, {}), (bundle.origin, epoch, bundle.step // BLOCK_STEPS)
            rest = blocks.pop(name, 0) - _ONE - int.from_bytes(bundle.data[FINGERPRINT], "big")
            if rest >= _ONE:
                blocks[name] = rest

    def digest(self, origin: OriginId, since: int) -> bytes:
        """32 bytes: of what is held of an origin in open epochs from the step `since` on, which begins one."""
        state, period = sha256(b"seedflood content 1\0"), self._period
        for epoch in sorted(epoch for epoch in self._blocks if epoch * period >= since):
            for number in range(epoch * period // BLOCK_STEPS, (epoch + 1) * period // BLOCK_STEPS + 1):
                if block := self._blocks[epoch].get((origin, epoch, number)):
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
        """All blocks, or the BLOCKS_SENT_MAX that were begun last, the latest first. A run that closes no epoch has any
        number of blocks, so no others are looked at."""
        latest = (block for one in reversed(self._blocks.values()) for block in reversed(one.items()))
        return BlockDigests(
            tuple((*name, *_count_and_fingerprint(digest)) for name, digest in islice(latest, BLOCKS_SENT_MAX))
        )

    def differing(self, theirs: BlockDigests) -> list[Block]:
        """Blocks with the same number of bundles on both sides but other fingerprints."""
        return [block for block, counts in self._unequal(theirs) if counts[0] == counts[1]]

    def uneven(self, theirs: BlockDigests) -> dict[Block, tuple[int, int]]:
        """Blocks with more or fewer bundles on the other side, and how many there are (here, there). Either something
        is in flight, or a step was measured for one of us and skipped for the other."""
        return {block: counts for block, counts in self._unequal(theirs) if counts[0] != counts[1]}

    def summed(self, theirs: BlockDigests, is_whole: Callable[[Block], bool]) -> list[Block]:
        """One block of each epoch of which the other side has none: a sum may have taken the place of its bundles
        there. is_whole: are all steps of a block held here?"""
        if len(theirs.blocks) >= BLOCKS_SENT_MAX:
            return []
        epochs = {epoch for _, epoch, *_ in theirs.blocks}
        found = (next(filter(is_whole, one), None) for epoch, one in self._blocks.items() if epoch not in epochs)
        return [block for block in found if block is not None]

    def _unequal(self, theirs: BlockDigests) -> Iterator[tuple[Block, tuple[int, int]]]:
        """(block, how many bundles are in it here and there)"""
        for origin, epoch, number, count, fingerprints in theirs.blocks:
            ours = _count_and_fingerprint(self._blocks.get(epoch, {}).get((origin, epoch, number), 0))
            if ours != (count, fingerprints) and (ours[0] or epoch not in self._summed):
                yield (origin, epoch, number), (ours[0], count)

    def steps(self, block: Block) -> tuple[OriginId, int, int]:
        """(origin, first step, last step) of a block."""
        origin, epoch, number = block
        first = max(epoch * self._period, number * BLOCK_STEPS)
        return origin, first, min((epoch + 1) * self._period, (number + 1) * BLOCK_STEPS, self._steps) - 1


def _count_and_fingerprint(digest: int) -> tuple[int, bytes]:
    count, fingerprints = divmod(digest, _ONE)
    return count, fingerprints.to_bytes(FINGERPRINTS_BYTES, "big")
