"""What a journal holds, found in one pass over its rows while they are checked, without keeping any row in memory.

For the steps that a segment covers its columns are enough, because its bundles follow each other without a hole.
"""

import contextlib
import hashlib
import zlib

from seedflood.protocol.frontier import Frontier
from seedflood.protocol.seedflood.opening import Inventory
from seedflood.storage.records import is_whole, unsealed
from seedflood.storage.seedflood.records import (
    SEGMENT_COLUMNS,
    decode_frontier,
    decode_segments,
    is_segment,
    segment_span,
)
from seedflood.storage.store import Store
from seedflood.storage.tables import JournalTable


class Survey(JournalTable):
    """Filled by `is_whole`. bundles: how many there are."""

    schema = (
        "CREATE TABLE segments (number INTEGER PRIMARY KEY, origin INTEGER NOT NULL, step INTEGER NOT NULL, "
        "skipped INTEGER NOT NULL, last INTEGER NOT NULL, bundles INTEGER NOT NULL, record BLOB NOT NULL)",
        "CREATE UNIQUE INDEX segments_by_origin ON segments (origin, step)",
        "CREATE TABLE epochs (epoch INTEGER PRIMARY KEY, frontier BLOB NOT NULL, coefficients BLOB NOT NULL, "
        "certificate BLOB NOT NULL)",
    )

    def __init__(self, store: Store, refresh_period: int) -> None:
        super().__init__(store)
        self._refresh_period = refresh_period
        self.bundles = 0
        self.inventory = Inventory()

    def is_whole(self) -> bool:
        """Surveys the rows, up to the first one that is damaged."""
        self.bundles, self.inventory = 0, Inventory()
        return self._are_sums_whole() and self._are_segments_whole()

    def _are_sums_whole(self) -> bool:
        for epoch, frontier, coefficients, certificate in self._store.connection.execute("SELECT * FROM epochs"):
            if not all(is_whole(record, epoch) for record in (frontier, coefficients, certificate)):
                return False
            self.inventory.sums[epoch] = decode_frontier(epoch, frontier)
            with contextlib.suppress(zlib.error):  # the core finds such a sum and reports it
                unpacked = zlib.decompress(unsealed(coefficients, epoch))
                self.inventory.digests[epoch] = hashlib.sha256(unpacked).digest()
        return True

    def _are_segments_whole(self) -> bool:
        sums = {epoch: Frontier(held) for epoch, held in self.inventory.sums.items()}
        for segment in self._store.connection.execute(f"SELECT {SEGMENT_COLUMNS} FROM segments"):
            if not is_segment(segment):
                return False
            self.bundles += segment[4]
            epoch = segment[1] // self._refresh_period  # no segment reaches from one epoch into the next
            if (summed := sums.get(epoch)) is None:
                self.inventory.note(epoch, segment_span(segment))
                continue
            for bundle in decode_segments([segment]):  # some may be in the sum, and not deleted yet
                if not summed.holds(*bundle.span):
                    self.inventory.note(epoch, bundle.span)
        return True
