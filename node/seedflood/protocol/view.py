"""What a node looks like from outside at one moment, as plain values.

The page, the metrics, the probes and the commands read nothing else, and nothing in it can change the node.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from seedflood.protocol.origin import OriginId

MemberStatus = Literal["self", "linked", "reachable", "silent", "left", "unknown"]
"""silent: a window waited too long for it, or nobody whom we can reach has a link with it. unknown: the same of one
that never took part."""

Edge = tuple[OriginId, OriginId]


@dataclass(frozen=True, slots=True)
class Blocker:
    """One reason why a node waits. kind: one of a closed set that its algorithm has. origin: for whom, None if it is
    nobody that is known. name: the same for people. first_lacking_step: of the origin; None if it is no step that
    lacks. since: the clock of the node."""

    kind: str
    origin: OriginId | None
    name: str
    first_lacking_step: int | None
    since: float


@dataclass(frozen=True, slots=True)
class MemberView:
    """mark: the first step of it that is not held here; 0 if nothing is. first_step: None until it takes part."""

    origin: OriginId
    name: str
    status: MemberStatus
    mark: int
    first_step: int | None
    last_step: int | None
    incarnation: int
    hop_seconds: float | None


@dataclass(frozen=True, slots=True)
class WindowView:
    """The open window over steps first..last. bound_seconds: None if it waits for however long it takes."""

    first: int
    last: int
    opened_at: float
    expected: int
    waiting: tuple[OriginId, ...]
    bound_seconds: float | None

    @property
    def heard(self) -> int:
        return self.expected - len(self.waiting)


@dataclass(frozen=True, slots=True)
class CatchingUp:
    """How much of what the donor held when we linked is held here, in steps of all origins together."""

    donor: OriginId
    held: int
    wanted: int


@dataclass(frozen=True, slots=True)
class Hops:
    """What hops to neighbours took, in seconds.

    recent: the last ones of all neighbours together. latest: the last one of each that is linked. counts: of this life,
    how many took up to each of `bounds` and longer than the one before, and how many longer than all of them.
    """

    recent: tuple[float, ...]
    latest: Mapping[OriginId, float]
    bounds: tuple[float, ...]
    counts: tuple[int, ...]
    sum_seconds: float


@dataclass(frozen=True, slots=True)
class View:
    """A node at one moment. now: that moment; all other moments are of the same clock.

    phase: a word of its algorithm. step: how far it is. linked: how many neighbours. refused: foreign input that was
    not used, by reason; all reasons are there. members: ourselves included. blockers: why the node does not move.
    figures: what its algorithm wants shown, by name.

    What not every algorithm has: window: the oldest that is open. catching_up: None unless a donor is being pulled from
    before we speak. duplicates: updates that came again. equivocations: steps of which a host was proven to say two
    things.
    """

    now: float
    phase: str
    step: int
    is_ready: bool
    is_doubted: bool
    linked: int
    refused: Mapping[str, int]
    hops: Hops
    members: tuple[MemberView, ...]
    edges: tuple[Edge, ...]
    diameter: int
    blockers: tuple[Blocker, ...]
    figures: Mapping[str, float] = field(default_factory=dict)
    window: WindowView | None = None
    catching_up: CatchingUp | None = None
    duplicates: int = 0
    equivocations: int = 0
