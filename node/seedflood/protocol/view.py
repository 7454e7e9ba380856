"""What a node looks like from outside at one moment, as plain values.

The page, the metrics, the probes and the commands read nothing else, and nothing in it can change the node.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from seedflood.protocol.origin import OriginId

MemberStatus = Literal["self", "linked", "reachable", "silent", "left", "removed", "unknown"]
"""silent: a window waited too long for it, or no host that we can reach is linked with it. removed: it is on the
roster, and may not take part (any more). unknown: no host that we can reach is linked with it, and it never took
part."""

Edge = tuple[OriginId, OriginId]


@dataclass(frozen=True, slots=True)
class Blocker:
    """One reason why a node waits. kind: from a closed set of its algorithm. origin: whom it waits for; None if that is
    no known host. name: the same, for people. first_lacking_step: the first step of that origin that is missing here;
    None if no step is missing. since: seconds, by the node's clock."""

    kind: str
    origin: OriginId | None
    name: str
    first_lacking_step: int | None
    since: float


@dataclass(frozen=True, slots=True)
class MemberView:
    """What is known of an origin. mark: its first step that is not held here; where no updates are held, how far it has
    said to be. first_step: None until it takes part. last_step: None until it has left. hop_seconds: the slow end of
    the hop delays that it states; None if it states none. is_relay: it only relays, and never takes part.

    reputation: how far it agrees with the others, in units of chance. contradicts: so little that its updates do not
    count now. Both are None while that is not known, and where an algorithm does not compare what hosts say."""

    origin: OriginId
    name: str
    status: MemberStatus
    mark: int
    first_step: int | None
    last_step: int | None
    incarnation: int
    hop_seconds: float | None
    is_relay: bool = False
    reputation: float | None = None
    contradicts: bool | None = None


@dataclass(frozen=True, slots=True)
class WindowView:
    """The open window over steps first..last. bound_seconds: how long it waits at most; None without a bound."""

    first: int
    last: int
    opened_at: float
    expected: int
    waiting: tuple[OriginId, ...]
    bound_seconds: float | None

    @property
    def received(self) -> int:
        return self.expected - len(self.waiting)


@dataclass(frozen=True, slots=True)
class CatchingUp:
    """How far a node has caught up. wanted: steps of all origins that the donor held when we linked, or what else the
    unit says. held: how many of them are held here."""

    donor: OriginId
    held: int
    wanted: int
    unit: str = "steps"


@dataclass(frozen=True, slots=True)
class Hops:
    """Measured delays of hops to neighbours, in seconds.

    recent: the last samples of all neighbours together. latest: the last sample of each linked neighbour. counts: a
    histogram since the process started, with one entry per upper bound in `bounds` and one for all longer delays.
    sum_seconds: of all that were counted.
    """

    recent: tuple[float, ...]
    latest: Mapping[OriginId, float]
    bounds: tuple[float, ...]
    counts: tuple[int, ...]
    sum_seconds: float


@dataclass(frozen=True, slots=True)
class RemovalView:
    """What is known of a host that was removed. is_cut: has the operator signed which of its updates count? is_settled:
    is exactly that here? held: the steps, first and last, that are held here. since, content: the digest of what is
    held of later steps. same, others, unreached: the names of all others that belong to the run: who states the same
    as we; who states something else, or nothing; who cannot be reached."""

    origin: OriginId
    name: str
    is_cut: bool
    is_settled: bool
    held: tuple[tuple[int, int], ...]
    since: int
    content: bytes
    same: tuple[str, ...]
    others: tuple[str, ...]
    unreached: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RosterView:
    """The roster of a closed run. hosts: how many of its entries are valid now. gone: how many are not. removals: what
    is known of hosts that were removed, if the algorithm keeps updates. contradicted: how many ranges of steps are held
    by compacted epochs against a cut."""

    serial: int
    hosts: int
    gone: int
    removals: tuple[RemovalView, ...] = ()
    contradicted: int = 0


@dataclass(frozen=True, slots=True)
class View:
    """A node at one moment. now: that moment; all other moments are of the same clock, in seconds.

    phase: a word of its algorithm. step: how far it is. linked: how many neighbours. refused: how much input of others
    was not used, by reason, with an entry for each reason. members: all known origins, ourselves included.
    cut_vertices: hosts through which alone some others are linked. blockers: why the node does not move. figures: what
    its algorithm wants shown, by name. words: the same, of what is no number. roster: None if the run is open.

    Not every algorithm has these: pairs: ourselves and each host with whom we are to exchange something now.
    steps: of the run, if it ends before the last one.
    window: the oldest one that is open. catching_up: None unless a donor is being pulled from before we speak.
    duplicates: updates that came again. equivocations: steps for which a host was proven to contradict itself.
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
    cut_vertices: tuple[OriginId, ...]
    blockers: tuple[Blocker, ...]
    figures: Mapping[str, float] = field(default_factory=dict)
    words: Mapping[str, str] = field(default_factory=dict)
    roster: RosterView | None = None
    pairs: tuple[Edge, ...] = ()
    window: WindowView | None = None
    catching_up: CatchingUp | None = None
    duplicates: int = 0
    equivocations: int = 0
    steps: int | None = None
