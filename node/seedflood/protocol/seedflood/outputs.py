"""What the core wants done, in the order that is the contract: persist, then send, then apply.

The order matters because of crashes. A bundle is durable before anyone hears of it, so that after a restart an
origin never says something else under the same (origin, step). It is journalled before it is applied, so that the
journal alone rebuilds the weights.
"""

from dataclasses import dataclass, field
from typing import Literal

from seedflood.protocol.frontier import Held
from seedflood.protocol.origin import OriginId
from seedflood.protocol.seedflood.messages import Bundle, ClosedEpoch, Equivocation, Update
from seedflood.protocol.swarm import outputs as swarm

CloseReason = Literal["all heard", "bound", "no waiting"]


@dataclass(frozen=True, slots=True)
class ClosedWindow:
    """A window that closed: its updates are to be applied, each for the first and only time.

    steps: (first, last) of the window. late: those of `updates` whose own window had closed before. missing: origins
    that were expected and not heard. waited_seconds: since the window opened.
    """

    steps: tuple[int, int]
    updates: tuple[Update, ...]
    late: int
    heard: int
    missing: tuple[OriginId, ...]
    reason: CloseReason
    waited_seconds: float


@dataclass(frozen=True, slots=True)
class Measure:
    """The origin is to measure steps first..first + count - 1 on its own data and report the probes."""

    step: int
    count: int


@dataclass(frozen=True, slots=True)
class TakeDigest:
    """The digest of the coefficients is wanted, with exactly the updates of this frontier applied."""

    frontier_digest: bytes


@dataclass(frozen=True, slots=True)
class SumEpoch:
    """The epoch is to be closed: what do its updates add up to? frontier: what its bundles cover."""

    epoch: int
    frontier: tuple[Held, ...]


@dataclass(frozen=True, slots=True)
class Rebuild:
    """The coefficients are not to be trusted: make them again from what the journal holds of this frontier."""

    frontier: tuple[Held, ...]


Order = ClosedWindow | Measure | TakeDigest | SumEpoch | Rebuild
"""What the compute thread is to do; it does one thing after the other."""


@dataclass(slots=True)
class Outputs(swarm.Outputs):
    """Honoured by `Driver._honour`: adopt, bundles and members, send, pull, orders, compact, events, settle, check."""

    adopt: list[ClosedEpoch] = field(default_factory=list)
    """Persist: each takes the place of what is held of its epoch; what it lacks of that is added to it."""
    bundles: list[Bundle] = field(default_factory=list)
    """Persist, in this order."""
    pull: list[tuple[OriginId, tuple[Held, ...]]] = field(default_factory=list)
    """Ask the peer for everything that this frontier lacks."""
    orders: list[Order] = field(default_factory=list)
    """For the compute thread, in this order."""
    compact: list[ClosedEpoch] = field(default_factory=list)
    """Everyone has closed these epochs: the sums may take the place of the bundles."""
    settle: list[Equivocation] = field(default_factory=list)
    """Persist, where the journal has less: the bundles of each proof that stand. Answered by `Node.settled`."""
    check: list[tuple[OriginId, Bundle]] = field(default_factory=list)
    """Hold these, which a neighbour told, against the journal: `Inquiry.contradicted` where it has others, or has none
    because they count as skipped."""

    def order(self, order: Order) -> None:
        """One more for the compute thread."""
        self.orders.append(order)
