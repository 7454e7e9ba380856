"""What SeedFlood needs behind the seams of a driver: bundles and sums in the journal, a replica, who hears of both."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

from seedflood.host import seams
from seedflood.protocol.frontier import Held
from seedflood.protocol.origin import OriginId
from seedflood.protocol.seedflood.messages import Bundle, ClosedEpoch, Update
from seedflood.protocol.seedflood.opening import Inventory
from seedflood.protocol.seedflood.outputs import ClosedWindow, Measure, SumEpoch, TakeDigest
from seedflood.protocol.swarm.messages import Member


class Journal(seams.Journal, Protocol):
    """The durable log. Every method raises JournalError, those that write DiskFullError if there is no space."""

    def append(self, bundles: Sequence[Bundle], members: Sequence[Member], *, durable: bool) -> int:
        """Adds to the open group; `durable`: the group is on the disk before this returns.

        Returns how many bundles were new. If it raises, the whole group since the last `commit` is undone.
        """

    def find(self, origin: OriginId, step: int) -> Bundle | None:
        """The bundle that begins with this step, unless a sum has taken its place."""

    def replace(self, bundle: Bundle) -> None:
        """Keeps this one in the place of the one of the same origin and step, or of none, durably. Ends the open group
        first."""

    def following(self, origin: OriginId, step: int) -> Bundle | None:
        """The first bundle of the origin that begins with this step or a later one, unless a sum has its place."""

    def adopt(self, closed: ClosedEpoch) -> list[Bundle]:
        """Keeps a foreign epoch in the place of the bundles it covers, durably; returns the epoch's other bundles."""

    def compact(self, closed: ClosedEpoch) -> int:
        """Keeps a sum of ours in the place of its bundles, if that takes less room; returns how many it replaced."""

    def closed_epochs(self) -> Iterator[ClosedEpoch]:
        """All epochs that are kept as sums."""

    def inventory(self) -> Inventory:
        """What is there, without reading it all again. Asked for once, at start."""

    def replay(self) -> Iterator[Bundle]:
        """All bundles that no closed epoch covers; those of one origin in the order of their steps, as a rule."""

    def read_missing(self, frontier: Iterable[Held], limit: int) -> Iterator[ClosedEpoch | list[Bundle]]:
        """What a frontier lacks: sums, and bundles that no sum stands for, in batches of up to `limit`.

        Read as it is asked for. An empty batch means that nothing was found for a while: others may be served now.
        """


class Links(seams.Links, Protocol):
    """The neighbours, who can be asked for what is lacking, too."""

    def pull(self, peer: OriginId, frontier: tuple[Held, ...]) -> object:
        """Asks for what the frontier lacks; ends with `Driver.pulled`."""


class Compute(Protocol):
    """The model, on its own thread: takes orders in sequence. The answers come back to the driver."""

    def apply(self, window: ClosedWindow) -> None: ...

    def measure(self, order: Measure) -> None:
        """Answered by `Driver.published`."""

    def digest(self, order: TakeDigest) -> None:
        """Answered by `Driver.digested`."""

    def sum_epoch(self, order: SumEpoch) -> None:
        """Answered by `Driver.summed`."""

    def keep_snapshot(self) -> None:
        """The journal has one more sum: weights with these sums in them may save time at a restart."""

    def adopt(self, closed: ClosedEpoch, others: Sequence[Bundle]) -> None:
        """The coefficients of the epoch become those of `closed` plus the updates of `others`."""

    def replay(self, pages: Iterator[Sequence[Update]]) -> None:
        """These are applied on top, page by page. The pages are read where the driver runs, never elsewhere."""

    def rebuild(self, closed: Iterator[ClosedEpoch], pages: Iterator[Sequence[Update]]) -> None:
        """The coefficients become those of the closed epochs plus these updates, read like those of `replay`. Answered
        by `Driver.rebuilt`."""


class Observer(seams.Observer, Protocol):
    """Whoever wants to know, also of what was kept and applied."""

    def adopted(self, closed: ClosedEpoch, source: OriginId | None) -> None:
        """A foreign sum of an epoch was kept in the place of bundles. source: the neighbour it came from."""

    def learned(self, bundles: Sequence[Bundle], source: OriginId | None) -> None:
        """New bundles were journalled (or wait for a full disk). source: the neighbour they came from; None: ours."""

    def applied(self, window: ClosedWindow) -> None: ...
