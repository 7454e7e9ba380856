"""What SeedFlood adds to the view of a node (`protocol.view`): windows, steps held, duplicates, contradictions."""

from dataclasses import replace
from typing import get_args

from seedflood.protocol.frontier import Frontier
from seedflood.protocol.seedflood.admission import Objection
from seedflood.protocol.seedflood.audit import Audits
from seedflood.protocol.seedflood.catchup import describe_progress
from seedflood.protocol.seedflood.exchange import Exchange
from seedflood.protocol.seedflood.window import Window
from seedflood.protocol.swarm.membership import NAMED_MAX, Membership
from seedflood.protocol.swarm.presence import Presence
from seedflood.protocol.view import CatchingUp, View, WindowView


def add_to_view(
    view: View, presence: Presence, exchange: Exchange, frontier: Frontier, window: Window | None, *, duplicates: int
) -> View:
    """The view with all that SeedFlood knows. window: the oldest one that is open."""
    return replace(
        view,
        refused=dict.fromkeys(get_args(Objection), 0) | dict(view.refused),
        members=tuple(replace(member, mark=frontier.mark(member.origin)) for member in view.members),
        window=_view_window(window, presence.membership, presence),
        catching_up=_view_catching_up(exchange, frontier),
        duplicates=duplicates,
        equivocations=exchange.inquiry.count,
    )


def add_audits(view: View, audits: Audits, membership: Membership) -> View:
    """The view with what was audited, on a host that audits."""
    if not audits.is_on:
        return view
    figures = {**view.figures, "audits": float(audits.count), "audit_findings": float(len(audits.named))}
    said = [f"{membership.name(origin)}: {verdict.describe()}" for origin, verdict in sorted(audits.named.items())]
    return replace(view, figures=figures, words={**view.words, "audit": "; ".join(said[:NAMED_MAX]) or "nothing found"})


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
    donor = exchange.donors.donor
    if not exchange.is_joining or donor is None:
        return None
    progress = describe_progress(frontier, exchange.donors.goal(donor))
    return CatchingUp(donor, progress["held"], progress["wanted"])
