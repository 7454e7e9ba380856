"""What a journal holds, found in one pass over its rows, without keeping any row in memory.

Opening a journal checks every record (`learned`). The same pass finds which steps the bundles cover. For that the first
and the last step of a strand are enough, because its bundles follow each other without a hole.
"""

import contextlib
import hashlib
import zlib

from seedflood.protocol.frontier import Frontier, Held
from seedflood.protocol.seedflood.opening import Inventory
from seedflood.storage.seedflood.records import decode_strand, strand_span


class Survey:
    """Call `note_sum` for all sums, then `note` for all strands. bundles: how many there are."""

    def __init__(self, salt: int, refresh_period: int) -> None:
        self._salt = salt
        self.refresh_period = refresh_period
        self.clear()

    def clear(self) -> None:
        self.bundles = 0
        self._inventory = Inventory()
        self._sums: dict[int, Frontier] = {}

    @property
    def inventory(self) -> Inventory:
        return self._inventory

    def note_sum(self, epoch: int, held: tuple[Held, ...], coefficients: bytes) -> None:
        """held: which steps the sum covers. coefficients: packed."""
        self._inventory.sums[epoch] = held
        with contextlib.suppress(zlib.error):  # the core finds such a sum and reports it
            self._inventory.digests[epoch] = hashlib.sha256(zlib.decompress(coefficients)).digest()
        self._sums[epoch] = Frontier(held)

    def note(self, record: bytes, step: int, bundles: int) -> None:
        """Takes a strand whose checksum was checked. No strand reaches from one epoch into the next."""
        self.bundles += bundles
        epoch = step // self.refresh_period
        summed = self._sums.get(epoch)
        if summed is None:
            self._inventory.note(epoch, strand_span(record))
            return
        for bundle in decode_strand(record, self._salt):  # some may be in the sum, and not deleted yet
            if not summed.holds(*bundle.span):
                self._inventory.note(epoch, bundle.span)
