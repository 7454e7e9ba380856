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
    return replace(
        view,
        refused=dict.fromkeys(get_args(Objection), 0) | dict(view.refused),
        members=tuple(
            replace(member, mark=_mark(member.origin, frontier, presence), is_relay=member.origin in relays)
            for member in view.members
        ),
        window=windows.view(),
        catching_up=_view_catching_up(exchange, frontier),
        duplicates=duplicates,
        equivocations=len(exchange.ends.proofs),
    )


def _mark(origin: OriginId, frontier: Frontier, presence: Presence) -> int:
    """The step up to which everything is held of an origin that counts."""
    return min(frontier.mark(origin), presence.membership.ended.get(origin, STEP_MAX))


def add_removals(view: View, ends: Ends, membership: Membership) -> View:
    """The view with what hosts hold of those that were removed, in a closed run. Of one that was cut off, the last step
    that counts is shown, though the steps behind it are held as holes."""
    if view.roster is None:
        return view
    removals = tuple(_view_removal(origin, view, ends, membership) for origin in ends.removed())
    last = {one.origin: one.held[-1][1] + 1 if one.held else 0 for one in removals if one.is_cut}
    return replace(
        view,
        members=tuple(replace(member, mark=last.get(member.origin, member.mark)) for member in view.members),
        roster=replace(view.roster, removals=removals, contradicted=len(ends.refused)),
    )


def _view_removal(origin: OriginId, view: View, ends: Ends, membership: Membership) -> RemovalView:
    ours = ends.digest(origin)
    those = [one for one in view.members if one.status not in ("self", "removed")]
    reached = [one for one in those if one.status in ("linked", "reachable")]
    remains_of = {one.origin: stated(one).remains for one in membership.all()}
    same = [one for one in reached if (origin, ours) in remains_of[one.origin]]
    away = [one.name for one in those if one not in reached] + ends.unknown({one.origin for one in view.members})
    return RemovalView(
        origin=origin,
        name=membership.name(origin),
        is_cut=ends.is_cut(origin),
        is_settled=ends.is_settled(origin),
        held=tuple((first, last) for _, first, last in ends.held(origin)),
        since=ends.since,
        content=ends.content(origin),
        same=_names(same),
        others=_names(one for one in reached if one not in same),
        unreached=tuple(sorted(away)),
    )


def _names(members: Iterable[MemberView]) -> tuple[str, ...]:
    return tuple(sorted(member.name for member in members))


def add_votes(view: View, certificates: Certificates, misvoting: Iterable[str]) -> View:
    """The view with how many votes a quorum is, and the hosts that sign other sums, where a quorum is enough."""
    if not certificates.is_by_quorum:
        return view
    names, wanted = sorted(misvoting), certificates.votes_wanted()
    figures = {**view.figures, "quorum": float(wanted), "hosts_with_other_sums": float(len(names))}
    return replace(view, figures=figures, words={**view.words, "other sums": ", ".join(names[:NAMED_MAX]) or "none"})


def _view_catching_up(exchange: Exchange, frontier: Frontier) -> CatchingUp | None:
    donor = exchange.donors.donor
    if not exchange.is_joining or donor is None:
        return None
    progress = describe_progress(frontier, exchange.donors.goal(donor))
    return CatchingUp(donor, progress["held"], progress["wanted"])
