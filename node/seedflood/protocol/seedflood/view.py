"""What SeedFlood adds to the view of a node (`protocol.view`): windows, steps held, duplicates, contradictions."""

from collections.abc import Iterable
from dataclasses import replace
from typing import get_args

from seedflood.protocol.frontier import Frontier
from seedflood.protocol.origin import STEP_MAX, OriginId
from seedflood.protocol.seedflood.admission import Objection
from seedflood.protocol.seedflood.catchup import describe_progress
from seedflood.protocol.seedflood.certificates import Certificates
from seedflood.protocol.seedflood.ends import Ends
from seedflood.protocol.seedflood.exchange import Exchange
from seedflood.protocol.seedflood.statement import stated
from seedflood.protocol.seedflood.window import OpenWindows
from seedflood.protocol.swarm.membership import NAMED_MAX, Membership
from seedflood.protocol.swarm.presence import Presence
from seedflood.protocol.view import CatchingUp, MemberView, RemovalView, View


def add_to_view(
    view: View, presence: Presence, exchange: Exchange, frontier: Frontier, windows: OpenWindows, *, duplicates: int
) -> View:
    """The view with all that SeedFlood knows."""
    relays = {member.origin for member in presence.membership.all() if stated(member).is_relay}
    members = []
    for member in view.members:
        mark = _mark(member.origin, frontier, presence)
        members.append(replace(member, mark=mark, is_relay=member.origin in relays))
    never_refused = dict.fromkeys(get_args(Objection), 0)
    return replace(
        view,
        refused=never_refused | dict(view.refused),
        members=tuple(members),
        window=windows.view(),
        catching_up=_view_catching_up(exchange, frontier),
        duplicates=duplicates,
        equivocations=len(exchange.ends.proofs),
    )


def _mark(origin: OriginId, frontier: Frontier, presence: Presence) -> int:
    """The step up to which everything is held of an origin that counts. Holes behind its end are held, too, and do not
    count."""
    return min(frontier.mark(origin), presence.membership.ended.get(origin, STEP_MAX))


def add_removals(view: View, ends: Ends, membership: Membership) -> View:
    """In a closed run: the view with what hosts hold of those that were removed. The mark of one that was cut off is
    where the steps that count end, although the steps behind it are held as holes."""
    if view.roster is None:
        return view
    removals = tuple(_view_removal(origin, view, ends, membership) for origin in ends.removed())
    marks = {member.origin: member.mark for member in view.members}
    for removal in removals:
        if removal.is_cut:
            _, last = removal.held[-1] if removal.held else (0, -1)
            marks[removal.origin] = last + 1
    return replace(
        view,
        members=tuple(replace(member, mark=marks[member.origin]) for member in view.members),
        roster=replace(view.roster, removals=removals, contradicted=len(ends.refused)),
    )


def _view_removal(origin: OriginId, view: View, ends: Ends, membership: Membership) -> RemovalView:
    """What hosts hold of a removed one."""
    ours = ends.digest(origin)
    others = [member for member in view.members if member.status not in ("self", "removed")]
    reached = [member for member in others if member.status in ("linked", "reachable")]
    remains_of = {member.origin: stated(member).remains for member in membership.all()}
    same = [member for member in reached if (origin, ours) in remains_of[member.origin]]
    away = [member.name for member in others if member not in reached]
    away += ends.unknown({member.origin for member in view.members})
    return RemovalView(
        origin=origin,
        name=membership.name(origin),
        is_cut=ends.is_cut(origin),
        is_settled=ends.is_settled(origin),
        held=tuple((first, last) for _, first, last in ends.held(origin)),
        since=ends.since,
        content=ends.content(origin),
        same=_names(same),
        others=_names(member for member in reached if member not in same),
        unreached=tuple(sorted(away)),
    )


def _names(members: Iterable[MemberView]) -> tuple[str, ...]:
    return tuple(sorted(member.name for member in members))


def add_votes(view: View, certificates: Certificates, misvoting: Iterable[str]) -> View:
    """Where a quorum is enough: the view with the number of its votes, and with the hosts that sign other sums."""
    if not certificates.is_by_quorum:
        return view
    names = sorted(misvoting)
    figures = {
        **view.figures,
        "quorum": float(certificates.votes_wanted()),
        "hosts_with_other_sums": float(len(names)),
    }
    words = {**view.words, "other sums": ", ".join(names[:NAMED_MAX]) or "none"}
    return replace(view, figures=figures, words=words)


def _view_catching_up(exchange: Exchange, frontier: Frontier) -> CatchingUp | None:
    donor = exchange.donors.donor
    if not exchange.is_joining or donor is None:
        return None
    progress = describe_progress(frontier, exchange.donors.goal(donor))
    return CatchingUp(donor, progress["held"], progress["wanted"])
