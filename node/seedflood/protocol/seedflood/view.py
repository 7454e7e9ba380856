"""How a node that trains by SeedFlood is seen (`protocol.view`).

A link counts as an edge when both of its ends state it, so a host that died loses its edges as soon as its neighbours
say so, though its own last statement still names them.
"""

from collections.abc import Collection, Iterable
from typing import Protocol, get_args

from seedflood.protocol.frontier import Frontier
from seedflood.protocol.origin import STEP_MAX, OriginId
from seedflood.protocol.seedflood.admission import Admission, Objection
from seedflood.protocol.seedflood.catchup import describe_progress
from seedflood.protocol.seedflood.exchange import Exchange
from seedflood.protocol.seedflood.phase import Phase
from seedflood.protocol.seedflood.window import Window
from seedflood.protocol.swarm.membership import Membership
from seedflood.protocol.swarm.messages import Member
from seedflood.protocol.swarm.presence import Presence
from seedflood.protocol.view import Blocker, CatchingUp, Edge, MemberStatus, MemberView, View, WindowView


class Sight(Protocol):
    """What is read of the node itself."""

    @property
    def step(self) -> int: ...

    @property
    def frontier(self) -> Frontier: ...

    @property
    def admission(self) -> Admission: ...

    @property
    def phase(self) -> Phase: ...

    @property
    def is_ready(self) -> bool: ...

    @property
    def is_doubted(self) -> bool: ...

    @property
    def duplicates(self) -> int: ...

    def blockers(self, now: float) -> tuple[Blocker, ...]: ...


def make_view(
    node: Sight,
    presence: Presence,
    exchange: Exchange,
    window: Window | None,
    now: float,
) -> View:
    """window: the oldest one that is open."""
    membership, frontier = presence.membership, node.frontier
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
        now=now,
        phase=node.phase.value,
        step=node.step,
        is_ready=node.is_ready,
        is_doubted=node.is_doubted,
        linked=len(presence.neighbours),
        duplicates=node.duplicates,
        refused=dict.fromkeys(get_args(Objection), 0) | node.admission.refused,
        equivocations=exchange.inquiry.count,
        hops=presence.delays.view(),
        members=members,
        edges=edges,
        diameter=membership.diameter(),
        window=_view_window(window, membership, presence),
        catching_up=_view_catching_up(exchange, frontier),
        blockers=node.blockers(now),
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


def _view_window(window: Window | None, membership: Membership, presence: Presence) -> WindowView | None:
    if window is None:
        return None
    return WindowView(
        first=window.first,
        last=window.last,
        opened_at=window.opened_at,
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
