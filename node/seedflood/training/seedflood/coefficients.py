"""The coefficients of all epochs: the latest in memory, older ones packed in a file, with the digest of each at hand.

A run of weeks has thousands of epochs, and memory must not grow with them; only the newest ones still change. Older
ones are read back when an update comes late or an epoch is folded. The file has no name and ends with the process:
everything in it follows from the journal.

Shapes: E the numbers of an epoch (subspace.py).
"""

from collections.abc import Iterator
from pathlib import Path

from torch import Tensor

from seedflood.training.seedflood.control import Past
from seedflood.training.seedflood.shelf import Shelf, Shelved
from seedflood.training.seedflood.subspace import Subspace

KEPT_EPOCHS = 8
"""How many epochs stay in memory. Late updates come for the epochs right before the open one; each takes 645 kB in
OPT-125M with rank 32."""


class EpochCoefficients:
    """A mapping from epochs to (E,) int64; zeros for an epoch without updates. Do not write to what it returns.

    If there is no space for the file, everything stays in memory. Raises JournalError if the file does not give back
    what was written.
    """

    def __init__(self, subspace: Subspace, folder: Path | None) -> None:
        """folder: of the file; None for the system's folder of temporary files."""
        self._subspace = subspace
        self._shelf = Shelf(folder)
        self._zeros_E = subspace.zeros()
        self._zero_digest = subspace.digest(self._zeros_E)
        self._kept: dict[int, Tensor] = {}
        """The epochs in memory; the one that was changed or read last comes last."""
        self._places: dict[int, Shelved] = {}
        """The epochs that are in the file as they are now."""
        self._digests: dict[int, bytes] = {}
        self._backs: dict[int, int] = {}
        """At the ends of which epochs the run went back, to the ends of which (-1: to the base model)."""

    def __iter__(self) -> Iterator[int]:
        """All epochs that were added to, in order."""
        return iter(sorted(self._kept.keys() | self._places.keys()))

    def __getitem__(self, epoch: int) -> Tensor:
        if epoch in self._kept:
            return self._kept[epoch]
        if epoch not in self._places:
            return self._zeros_E
        coefficients_E = self._subspace.unpack(self._shelf.read(self._places[epoch]))
        self._keep(epoch, coefficients_E)
        return coefficients_E

    def add(self, epoch: int, added_E: Tensor) -> None:
        sum_E = self[epoch] + added_E
        self._places.pop(epoch, None)
        self._digests.pop(epoch, None)
        self._keep(epoch, sum_E)
        self._backs.pop(epoch, None)
        past = self._left_by(epoch)
        if past.is_back and past.best < epoch:
            self._backs[epoch] = past.best

    def past_before(self, epoch: int) -> Past:
        """What the epochs before this one leave to it; those behind the end of a run leave nothing."""
        if self._subspace.numbers == self._subspace.size:
            return Past()
        before = sorted((other for other in (*self._kept, *self._places) if other < epoch), reverse=True)
        return next((past for past in map(self._left_by, before) if past != Past()), Past())

    def out(self) -> set[int]:
        """The epochs that do not count, since the run went back behind them."""
        return {epoch for epoch in self for end, to in self._backs.items() if to < epoch <= end}

    def _left_by(self, epoch: int) -> Past:
        return Past.read(self[epoch][self._subspace.size :].tolist())

    def digests(self) -> Iterator[tuple[int, bytes]]:
        """The epochs that are not zero, in order, each with its digest. Only what has changed is hashed again."""
        for epoch in self:
            digest = self._digest(epoch)
            if digest != self._zero_digest:
                yield epoch, digest

    def _digest(self, epoch: int) -> bytes:
        if epoch not in self._digests:
            self._digests[epoch] = self._subspace.digest(self._kept[epoch])
        return self._digests[epoch]

    def _keep(self, epoch: int, coefficients_E: Tensor) -> None:
        self._kept.pop(epoch, None)
        self._kept[epoch] = coefficients_E
        for oldest in list(self._kept)[:-KEPT_EPOCHS]:
            if oldest not in self._places:
                self._digest(oldest)  # while it is in memory
                place = self._shelf.put(self._subspace.pack(self._kept[oldest]))
                if place is None:
                    return
                self._places[oldest] = place
            del self._kept[oldest]
