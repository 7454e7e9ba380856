"""The tables of bundles and sums as the opening of a journal sees them: checked, surveyed and, if damaged, salvaged."""

import contextlib

from seedflood.errors import JournalError
from seedflood.protocol.frontier import Frontier
from seedflood.protocol.seedflood.messages import ClosedEpoch
from seedflood.storage.records import ChecksumError, Identity, is_whole, seal_of, unsealed
from seedflood.storage.seedflood.records import decode_epoch, decode_strand, is_strand
from seedflood.storage.seedflood.survey import Survey
from seedflood.storage.seedflood.tables import Bundles, Sums, steps_of
from seedflood.storage.sqlite_pages import Row
from seedflood.storage.store import Store
from seedflood.storage.tables import Table


class Learned(Table):
    """bundles, sums: read and write the tables. `is_whole` also fills the survey."""

    schema = (
        "CREATE TABLE strands (number INTEGER PRIMARY KEY, origin INTEGER NOT NULL, step INTEGER NOT NULL, "
        "last INTEGER NOT NULL, bundles INTEGER NOT NULL, record BLOB NOT NULL)",
        "CREATE UNIQUE INDEX strands_by_origin ON strands (origin, step)",
        "CREATE TABLE epochs (epoch INTEGER PRIMARY KEY, frontier BLOB NOT NULL, coefficients BLOB NOT NULL)",
    )

    def __init__(self, store: Store, identity: Identity, survey: Survey) -> None:
        """survey: filled if `is_whole` was called before on this file, else empty."""
        self._connection = store.connection
        self._salt, self._sums_salt = identity.salt("strand"), identity.salt("epoch")
        self._survey = survey
        self._refresh_period = survey.refresh_period
        self.bundles = Bundles(store, self._salt, self._refresh_period, survey.bundles)
        self.sums = Sums(store, self._sums_salt)

    def counts(self) -> dict[str, int]:
        ((bundles,),) = self._connection.execute("SELECT IFNULL(SUM(bundles), 0) FROM strands")
        ((epochs,),) = self._connection.execute("SELECT COUNT(*) FROM epochs")
        return {"bundles": bundles, "epochs": epochs}

    def is_whole(self) -> bool:
        """Also surveys the rows, up to the first one that is damaged."""
        self._survey.clear()
        for epoch, frontier, coefficients in self._connection.execute("SELECT * FROM epochs"):
            if not (is_whole(frontier, self._sums_salt) and is_whole(coefficients, seal_of(frontier))):
                return False
            found, held = decode_epoch(frontier, self._sums_salt)
            if found != epoch:
                return False
            self._survey.note_sum(epoch, held, unsealed(coefficients, seal_of(frontier)))
        strands = self._connection.execute("SELECT record, origin, step, last, bundles FROM strands")
        for record, *columns in strands:
            if not is_strand(self._salt, record, *columns):
                return False
            self._survey.note(record, columns[1], columns[3])
        return True

    def rescue(self, row: Row) -> None:
        match row:
            case (_, (None, int(origin), int(step), int(last), int(bundles), bytes(record))):
                if is_strand(self._salt, record, origin, step, last, bundles):
                    self._rescue_strand(record)
            case (int(epoch), (None, bytes(frontier), bytes(coefficients))):
                with contextlib.suppress(ChecksumError):
                    self._rescue_sum(epoch, frontier, coefficients)

    def settle(self) -> None:
        """Deletes bundles that are in a sum: on free pages, bundles that were deleted long ago are often still
        found."""
        for epoch, held in self.sums.frontiers().items():
            self.bundles.thin(held, *steps_of(epoch, self._refresh_period))

    def _rescue_strand(self, record: bytes) -> None:
        """Adds the bundles of a strand. Some may be there already: strands are rewritten, and both versions are
        found."""
        bundles = decode_strand(record, self._salt)
        try:
            self.bundles.add(bundles)
        except JournalError:  # two different bundles of one origin and step: one is as good as the other
            for bundle in bundles:
                with contextlib.suppress(JournalError):
                    self.bundles.add([bundle])

    def _rescue_sum(self, epoch: int, frontier: bytes, coefficients: bytes) -> None:
        """Of several sums of an epoch, keeps the one that covers most."""
        found, held = decode_epoch(frontier, self._sums_salt)
        whole = ClosedEpoch(epoch, held, unsealed(coefficients, seal_of(frontier)))
        if found == epoch and not Frontier(self.sums.frontier(epoch)).covers(held):
            self.sums.put(whole)
