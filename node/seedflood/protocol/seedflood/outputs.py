"""What the core wants done, in the order that is the contract: persist, then send, then apply.

The order matters if the process crashes. A bundle is durable before anyone receives it, so after a restart an origin
never publishes something else for the same step. It is journalled before it is applied, so the journal alone rebuilds
the weights.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from seedflood.protocol.frontier import Held, Span
from seedflood.protocol.origin import OriginId
from seedflood.protocol.seedflood.bundles import Bundle, Update, UpdateValue, payload_bytes
from seedflood.protocol.seedflood.messages import ClosedEpoch, ReplicaDigest
from seedflood.protocol.swarm import outputs as swarm

CloseReason = Literal["all received", "bound", "no waiting"]


@dataclass(frozen=True, slots=True)
class ClosedWindow:
    """A window has closed: its updates are to be applied, each for the first and only time.

    steps: (first, last) of the window. late: how many of `updates` come from windows that had closed before. received:
    of how many origins it has updates. missing: the origins that were expected, and of which it has none. reason: "no
    waiting" if the others are far ahead, or if nothing closes and updates are applied outside of any window (`steps`
    are empty then). waited_seconds: since the window opened.
    """

    steps: tuple[int, int]
    updates: tuple[Update, ...]
    late: int
    received: int
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
    """Take the digest of the coefficients, with exactly the updates of this frontier applied."""

    frontier_digest: bytes


@dataclass(frozen=True, slots=True)
class SumEpoch:
    """Take the sum of an epoch that is to be closed. frontier: the steps that its bundles cover."""

    epoch: int
    frontier: tuple[Held, ...]


@dataclass(frozen=True, slots=True)
class Rebuild:
    """The coefficients cannot be trusted: rebuild them from what the journal holds of this frontier."""

    frontier: tuple[Held, ...]


Order = ClosedWindow | Measure | TakeDigest | SumEpoch | Rebuild
"""What the compute thread is to do; it does one thing after the other."""


@dataclass(frozen=True, slots=True)
class Measured:
    """Answers a `Measure`. probes: the values of the steps of the round that begins at `step`."""

    step: int
    probes: Sequence[UpdateValue]


@dataclass(frozen=True, slots=True)
class Stopped:
    """Answers a `Measure`: by what was applied the run is over, so nobody measures this step."""

    step: int


@dataclass(frozen=True, slots=True)
class Remade:
    """Answers a `Rebuild`. is_changed: the coefficients had been wrong."""

    is_changed: bool


@dataclass(frozen=True, slots=True)
class Pulled:
    """Answers a pull: it has ended, whole or broken off."""

    peer: OriginId


@dataclass(frozen=True, slots=True)
class CutOff:
    """Answers a cut: the journal has nothing left in the holes of an origin. surplus: what it had."""

    origin: OriginId
    surplus: Sequence[Bundle]


@dataclass(frozen=True, slots=True)
class Compacted:
    """Answers one of `Outputs.compact`: the journal has done with these bundles what saves space. There is no answer if
    the disk was full."""

    closed: ClosedEpoch


Answer = Measured | Stopped | ReplicaDigest | ClosedEpoch | Remade | Pulled | CutOff | Compacted
"""What came of what a node wanted done (`Node.answer`): the digest of a `TakeDigest`, the sum of a `SumEpoch`."""


@dataclass(slots=True)
class Outputs(swarm.Outputs):
    """Honoured by `SeedfloodDriver._carry_out`: adopt, bundles and members, cut, send, pull, compact, orders, events,
    check."""

    adopt: list[ClosedEpoch] = field(default_factory=list)
    """Persist: each sum takes the place of the bundles of its epoch. Bundles that it does not cover stay, and count
    beside it."""
    compact: list[ClosedEpoch] = field(default_factory=list)
    """Everyone has closed these epochs with these sums, so they may replace the bundles in the journal. Each is
    answered by a `Compacted`; until then the bundles are what counts."""
    cut: list[tuple[OriginId, tuple[Span, ...]]] = field(default_factory=list)
    """Persist: what the journal has of this origin for one of these steps, and no sum covers, is deleted. Answered by
    a `CutOff`."""
    check: list[tuple[OriginId, Bundle]] = field(default_factory=list)
    """Compare these bundles, sent by a neighbour, with the journal. If it has one that contradicts it, call
    `EquivocationSearch.contradicted`."""

    @property
    def ends_group(self) -> bool:
        """What others sent gathers in one group until a window closes."""
        return self.is_durable or any(isinstance(order, ClosedWindow) for order in self.orders)

    @property
    def payload_bytes(self) -> int:
        return payload_bytes(self.bundles)

    @property
    def may_wait(self) -> bool:
        """A sum counts as held from now on, so it must be on the disk."""
        return not self.adopt
