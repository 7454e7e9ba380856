"""How a node of any swarm is seen (`protocol.view`): who is there, who is linked, how far away they are.

A link counts as an edge when both of its ends state it, so a host that died loses its edges as soon as its neighbours
say so, though its own last statement still names them.
"""

from collections.abc import Collection, Iterable

from seedflood.protocol.origin import STEP_MAX, OriginId
from seedflood.protocol.swarm.graph import distances
from seedflood.protocol.swarm.messages import Member
from seedflood.protocol.swarm.presence import Presence
from seedflood.protocol.view import Edge, MemberStatus, MemberView, View


def make_view(presence: Presence, now: float) -> View:
    """A node of any swarm as it is seen now."""
    membership, algorithm, admission = presence.membership, presence.algorithm, presence.admission
    edges = stated_edges(membership.all())
    reached = distances(edges, presence.ours.origin)
    members = tuple(
        MemberView(
            origin=member.origin,
            name=member.name,
            status=_status(member, presence, reached),
            mark=0,
            first_step=member.first_step if member.first_step < STEP_MAX else None,
            last_step=member.last_step,
            incarnation=member.incarnation,
            hop_seconds=member.hop_milliseconds / 1000 if member.hop_milliseconds else None,
        )
        for member in membership.all()
    )
    return View(
        now=now,
        phase=str(algorithm.phase),
        step=algorithm.step,
        is_ready=algorithm.is_ready,
        is_doubted=algorithm.is_doubted,
        linked=len(presence.neighbours),
        refused=dict(admission.refused),
        hops=presence.delays.view(),
        members=members,
        edges=edges,
        diameter=membership.diameter(),
        cut_vertices=membership.cut_vertices(),
        blockers=algorithm.blockers(now),
        roster=admission.access.view(),
    )


def stated_edges(members: Iterable[Member]) -> tuple[Edge, ...]:
    """The links that both ends state, each once, the smaller origin first."""
    stated = {member.origin: set(member.neighbours) for member in members}
    return tuple(sorted((a, b) for a, others in stated.items() for b in others if a < b and a in stated.get(b, ())))


def _status(member: Member, presence: Presence, reached: Collection[OriginId]) -> MemberStatus:
    origin = member.origin
    if origin == presence.ours.origin:
        return "self"
    if presence.membership.has_stand_in(origin):
        is_to_come = presence.admission.access.may_link(member.public_key) and not presence.membership.took_part(origin)
        return "unknown" if is_to_come else "removed"  # a relay, or a reader
    if origin in presence.liveness.suspects:
        return "silent"
    if origin in presence.neighbours:
        return "linked"  # one that has finished and serves late comers, too
    if member.has_left:
        return "left"
    if origin in reached:
        return "reachable"
    return "unknown" if member.first_step == STEP_MAX else "silent"
