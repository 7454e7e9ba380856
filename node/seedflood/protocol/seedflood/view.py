"""What a node looks like from outside at one moment: values for whoever shows it, none of which can change it.

A link counts as an edge when both of its ends state it, so a host that died loses its edges as soon as its neighbours
say so, though its own last statement still names them.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Literal

from seedflood.protocol.frontier import Frontier
from seedflood.protocol.origin import STEP_MAX, OriginId
from seedflood.protocol.seedflood.catchup import describe_progress
from seedflood.protocol.seedflood.exchange import Exchange
from seedflood.protocol.seedflood.window import Window
from seedflood.protocol.swarm.membership import Membership
from seedflood.protocol.swarm.messages import Member
from seedflood.protocol.swarm.presence import Presence

MemberStatus = Literal["self", "linked", "reachable", "silent", "left", "unknown"]
"""silent: a window waited too long for it, or nobody whom we can reach has a link with it. unknown: the same of one
that never took part."""

BlockerKind = Literal[
    "disk full",
    "no link",
    "donor",
    "former neighbour",
    "own past",
    "announcement",
    "window",
    "joining",
    "never joined",
    "last words",
    "away",
    "agreement",
    "own replica",
]
"""Why a node waits.

disk full         nothing of ours is published before there is room
no link           to take part it needs a link with a neighbour
donor             what it held when we linked is not all here
former neighbour  our journal was lost, and it may know what we said
own past          steps that we are known to have said are not here, or somebody else may still know of more
announcement      it has not confirmed that it expects us
window            the open window lacks its updates
joining           it is there and has not caught up, and the run begins with all clients
never joined      the same of hosts that nobody has heard of
last words        the run lacks its updates
away              it is our neighbour at the end of the run, and not linked
agreement         it has not said that it holds the same, with the same digest
own replica       our coefficients are made again, or are in doubt
"""

Edge = tuple[OriginId, OriginId]


@dataclass(frozen=True, slots=True)
class Blocker:
    """One reason why a node waits. origin: for whom, None if it is nobody that is known. name: the same for people.
    first_lacking_step: of the origin; None if it is no step that lacks. since: the clock of the node."""

    kind: BlockerKind
    origin: OriginId | None
    name: str
    first_lacking_step: int | None
    since: float


@dataclass(frozen=True, slots=True)
class MemberView:
    """mark: the first step of it that is not held here. first_step: None until it takes part."""

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
    opened_seconds: float
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
class View:
    """members: ourselves included. catching_up: None unless a donor is being pulled from before we speak. blockers: why
    the node does not move."""

    members: tuple[MemberView, ...]
    edges: tuple[Edge, ...]
    diameter: int
    window: WindowView | None
    catching_up: CatchingUp | None
    blockers: tuple[Blocker, ...]


def make_view(
    presence: Presence,
    exchange: Exchange,
    frontier: Frontier,
    window: Window | None,
    blockers: tuple[Blocker, ...],
    now: float,
) -> View:
    membership = presence.membership
    edges = stated_edges(membership.all())
    reached = reach(presence.ours.origin, edges)
    statuses = {member.origin: _status(member, presence, exchange.linked, reached) for member in membership.all()}
    members = tuple(
        MemberView(
            origin=member.origin,
            name=member.name,
            status=statuses[member.origin],
            mark=frontier.mark(member.origin),
            first_step=member.first_step if member.first_step < STEP_MAX else None,
            last_step=member.last_step,
            incarnation=member.incarnation,
            hop_seconds=member.hop_milliseconds / 1000 if member.hop_milliseconds else None,
        )
        for member in membership.all()
    )
    return View(
        members=members,
        edges=edges,
        diameter=membership.diameter(),
        window=_view_window(window, membership, presence, now),
        catching_up=_view_catching_up(exchange, frontier),
        blockers=blockers,
    )


def stated_edges(members: Iterable[Member]) -> tuple[Edge, ...]:
    """The links that both ends state, each once, the smaller origin first."""
    stated = {member.origin: set(member.neighbours) for member in members}
    return tuple(sorted((a, b) for a, others in stated.items() for b in others if a < b and a in stated.get(b, ())))


def reach(start: OriginId, edges: Iterable[Edge]) -> set[OriginId]:
    """Who is connected with `start`, over any number of edges."""
    neighbours: dict[OriginId, list[OriginId]] = {}
    for a, b in edges:
        neighbours.setdefault(a, []).append(b)
        neighbours.setdefault(b, []).append(a)
    reached, boundary = {start}, [start]
    while boundary:
        for other in neighbours.get(boundary.pop(), ()):
            if other not in reached:
                reached.add(other)
                boundary.append(other)
    return reached


def _status(
    member: Member, presence: Presence, linked: Collection[OriginId], reached: Collection[OriginId]
) -> MemberStatus:
    origin = member.origin
    if origin == presence.ours.origin:
        return "self"
    if origin in presence.liveness.suspects:
        return "silent"
    if origin in linked:
        return "linked"  # one that has finished and serves late comers, too
    if member.has_left:
        return "left"
    if origin in reached:
        return "reachable"
    return "unknown" if member.first_step == STEP_MAX else "silent"


def _view_window(window: Window | None, membership: Membership, presence: Presence, now: float) -> WindowView | None:
    if window is None:
        return None
    return WindowView(
        first=window.first,
        last=window.last,
        opened_seconds=now - window.opened_at,
        expected=len(membership.expected(window.last)),
        waiting=tuple(sorted(window.waiting)),
        bound_seconds=presence.bound_seconds() if window.rule == "bounded" else None,
    )


def _view_catching_up(exchange: Exchange, frontier: Frontier) -> CatchingUp | None:
    donor = exchange.repair.donor
    if not exchange.is_joining or donor is None:
        return None
    progress = describe_progress(frontier, exchange.repair.goal(donor))
    return CatchingUp(donor, progress["held"], progress["wanted"])
