"""What the seams of SeedFlood's driver have besides: a journal of bundles and sums, jobs for a model, an observer."""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol

from seedflood.host import seams
from seedflood.protocol.frontier import Held, Span
from seedflood.protocol.origin import OriginId
from seedflood.protocol.seedflood.bundles import Bundle, Update
from seedflood.protocol.seedflood.messages import ClosedEpoch
from seedflood.protocol.seedflood.opening import Inventory
from seedflood.protocol.seedflood.outputs import ClosedWindow, Measure, SumEpoch, TakeDigest
from seedflood.protocol.swarm.messages import Member


class Journal(seams.Journal, Protocol):
    """The durable log, which holds bundles and sums as well."""

    def append(self, bundles: Sequence[Bundle], members: Sequence[Member], *, durable: bool) -> int:
        """Adds bundles to the open group, as `keep` does records. Returns how many of them were new."""

    def records(self) -> dict[bytes, bytes]:
        """What the node keeps for itself, by key."""

    def find(self, origin: OriginId, step: int) -> Bundle | None:
        """The bundle that begins with this step, unless a sum has replaced it."""

    def cut(self, spans: Sequence[Span]) -> list[Bundle]:
        """Deletes all bundles of these steps, durably, unless a sum has replaced them. Returns them. Commits the open
        group first."""

    def overlapping(self, bundle: Bundle) -> Iterator[Bundle]:
        """The bundles of the same origin, but those in sums, that cover one of the steps that this one covers."""

    def adopt(self, closed: ClosedEpoch) -> list[Bundle]:
        """Replaces bundles by a neighbour's sum, durably. Returns those bundles of the epoch that it does not cover."""

    def compact(self, closed: ClosedEpoch) -> int:
        """Replaces bundles by our sum, whichever takes less space: the node counts on it. Returns how many it
        replaced."""

    def closed_epochs(self) -> Iterator[ClosedEpoch]:
        """All epochs that are kept as sums."""

    def inventory(self) -> Inventory:
        """What the journal holds, found while it was opened. Called once, at start."""

    def replay(self) -> Iterator[Bundle]:
        """All bundles that are not in a sum. Those of one origin usually come in the order of their steps."""

    def read_missing(self, frontier: Iterable[Held], limit: int) -> Iterator[ClosedEpoch | list[Bundle]]:
        """Everything that a frontier lacks: sums, and bundles that are in no sum, in batches of up to `limit`.

        It is read as the caller asks for it. An empty batch means that a long search has found nothing yet, so that
        the caller can serve others.
        """


class Adopt(NamedTuple):
    """Set the coefficients of the epoch to those of `closed` plus the updates of `others`."""

    closed: ClosedEpoch
    others: Sequence[Bundle]


class Seal(NamedTuple):
    """The journal has our sum of this epoch in place of its bundles: what it comes to is final."""

    epoch: int


class Replay(NamedTuple):
    """Apply these updates page by page. The iterator must run on the driver's thread."""

    pages: Iterator[Sequence[Update]]


class Refill(NamedTuple):
    """Set the coefficients to those of the closed epochs plus these updates, as a `Rebuild` wants it; answered by a
    `Remade`. Both iterators must run on the driver's thread."""

    closed: Iterator[ClosedEpoch]
    pages: Iterator[Sequence[Update]]


Job = ClosedWindow | Measure | TakeDigest | SumEpoch | Adopt | Seal | Replay | Refill
"""For the model on its own thread. It does one job after the other, and answers by `Driver.answered`."""


class Observer(seams.Observer, Protocol):
    """Gets what happens, also of what was kept and applied."""

    def adopted(self, closed: ClosedEpoch, source: OriginId | None) -> None:
        """A neighbour's sum has replaced the bundles of an epoch. source: that neighbour."""

    def learned(self, bundles: Sequence[Bundle], source: OriginId | None) -> None:
        """New bundles were written to the journal, or wait for space. source: the neighbour that sent them, None if
        they are our own."""

    def applied(self, window: ClosedWindow) -> None: ...
