"""The status of a node as one JSON object: the answer of `/api/status`, which the page and the commands show.

All keys are always there; unknown values are null. Origins are fingerprints, times Unix seconds.

    node      name, origin, version, incarnation, started_at, now, up_seconds, run {name, id, model, task, mode,
              clients, steps, batch_size, algorithm {name: value}, window, local_steps, refresh_period}; algorithm: its
              main settings; window, local_steps, refresh_period: null if the algorithm is not SeedFlood
    state     loading | joining | catching up | ready | stands still | draining | finished | doubted | disk full
            | out of time
    is_ready, why_not_ready
    progress  step, steps, epoch, loss, loss_step, step_seconds, steps_per_second, seconds_left, spent_seconds,
              spent_bytes, rise
              epoch: null if the algorithm has none; steps_per_second: 0 if nothing moves; spent: until the present
              loss, in this life of the process; bytes: sent on all links together; rise: null, or {step, loss,
              best_step, best_loss} of the last evaluation, if its loss lies clearly above the best one
    figures   {name: value} that the algorithm shows of itself; null: no number
    words     {name: text}: the same, of what is no number
    catching_up  null, or {donor, held, wanted, unit}: what is pulled from a neighbour before this node takes part
    blockers  why it does not move: [{kind, name, origin, step, seconds, reason}]; kind: of a closed set
              that the algorithm has; origin, step: whose update lacks, and which is the first, or null; seconds:
              for how long; reason: a clause for people
    window    step, opened_seconds, received, expected, bound_seconds, last_close {step, reason, waited_seconds,
              received, late, missing [names]}; all null if the algorithm has no windows
    members   [{name, origin, status, step, lag_steps, hop_seconds, first_step, last_step, incarnation,
              is_relay, reputation, contradicts}]
              status: self | linked | reachable | silent | left | removed | unknown; step: its first step that is not
              held here, or how far it is if the algorithm holds no updates of others (0: not stated); reputation: how
              far it agrees with the others, in units of chance; contradicts: so little that its updates do not count
              now; both null if that is not known, or hosts are not compared
    edges     [[origin, origin]]: links that both ends state
    pairs     [[origin, origin]]: this node and those with whom it exchanges parameters in the present round
    diameter
    cut_vertices  [origin]: each of these hosts is the only way between some others, and could keep news from them
    roster    null if the run is open; else {serial, hosts, gone, refused, removals, contradicted}; hosts: on the list
              and valid now; gone: removed or out of date; refused: hellos, statements and updates of others;
              contradicted: ranges of steps that compacted epochs hold against a cut
              removals [{name, origin, state, held [[first, last]], since, content, same, others, unreached}]; state:
              frozen | cut | settled; held: steps; content: digest of what is held from step `since` on; the names of
              other hosts: who holds the same, who does not or does not say, and who cannot be reached
    links     [{peer, origin, address, state, bytes_sent, bytes_received, pull_bytes_received, updates_dropped,
              hop_seconds, connected_at, seen_as, may_dial_us, may_be_dialled}]; state: connected | dialling | away
              (only the other side dials); seen_as: the address under which a peer that we dial sees us; could it dial
              us there, and could we dial it back?
    updates   originated, received, duplicate, applied, late, rejected {reason: n}: since the process began; all but
              rejected are null if the algorithm has no updates
    delays    hop_seconds_p50, hop_seconds_p99
    traffic   seedflood_bytes, gossip_bytes, parameters, parameter_bytes
    history   loss [[step, loss]] of training, loss_of_all: the same of all hosts, halvings [[step, how often the
              learning rate has been halved; 0 where hosts only warn]], figures {name: [[step, value]]} of evaluations,
              the most important first,
              steps_per_second [[unix seconds, value]]
    journal   bytes, records; bundles, closed_epochs: null if the algorithm has none
    events    the last events: [{time, level, event, ...}]
"""

import math
import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from seedflood import VERSION
from seedflood.config import RunSettings
from seedflood.operations.hub import TelemetryHub
from seedflood.operations.reasons import describe_blocker, explain
from seedflood.operations.rise import Rise
from seedflood.operations.subject import LOADING, LastClose, LinkState, Subject
from seedflood.operations.tally import percentile
from seedflood.protocol.origin import OriginId, fingerprint
from seedflood.protocol.view import CatchingUp, Edge, MemberView, RemovalView, View

EVENTS_SHOWN = 50
BLOCKERS_SHOWN = 100

ROSTER_REASONS = ("stranger", "removed", "role", "cut")
"""Why something of a host is not used in a closed run."""

RUN_SETTINGS = ("name", "model", "mode", "clients", "steps", "batch_size")
SEEDFLOOD_SETTINGS = ("window", "local_steps", "refresh_period")
"""Settings of SeedFlood that scripts expect directly in `run`."""


WAITING_SECONDS = 3.0
"""Who has waited for so long has no speed, and nobody knows how much time is left."""

STANDSTILL_SECONDS = 120.0
"""Who has waited for so long is not ready: somebody should look after the run."""

JOURNAL_KEYS = ("bundles", "bytes", "closed_epochs", "records")
MEMBER_KEYS = ("name", "status", "hop_seconds", "first_step", "last_step", "incarnation", "is_relay", "contradicts")
REMOVAL_KEYS = ("name", "held", "since", "same", "others", "unreached")
LINK_KEYS = (
    *("peer", "address", "bytes_sent", "bytes_received", "pull_bytes_received", "updates_dropped"),
    *("connected_at", "seen_as", "may_dial_us", "may_be_dialled"),
)


_PAUSED = {
    "draining": "the node is leaving",
    "disk full": "no space is left on its disk, and it publishes nothing before there is",
}
_UNLOADED = {"train": "the model is being loaded", "relay": "it waits for a neighbour that states what the run is"}


def describe_state(hub: TelemetryHub) -> str:
    """The `state` of the status, one of the words listed above."""
    subject, view = hub.subject, hub.subject.view()
    if view.phase == LOADING:
        return LOADING
    if subject.is_draining or view.phase == "left":
        return "draining"
    if subject.is_disk_full:
        return "disk full"
    if subject.clock_fault is not None:
        return "out of time"
    if view.is_doubted:
        return "doubted"
    if subject.is_finished:
        return "finished"
    if view.is_ready:
        return "stands still" if _stands_still(hub, view, STANDSTILL_SECONDS) else "ready"
    return "catching up" if view.linked else "joining"


def _stands_still(hub: TelemetryHub, view: View, seconds: float) -> bool:
    """Does the node take part, and has it waited for so long without a step? A step that takes long is none."""
    is_waiting = any(view.now - one.since > seconds for one in view.blockers)
    return view.is_ready and is_waiting and hub.is_quiet(seconds)


def why_not_ready(hub: TelemetryHub) -> str | None:
    """The reason in one sentence; None if the node is ready."""
    view, state = hub.subject.view(), describe_state(hub)
    if state == LOADING:
        return _UNLOADED[hub.settings.node.role]
    if state in _PAUSED:
        return _PAUSED[state]
    if state == "out of time":
        return hub.subject.clock_fault
    if state == "stands still":
        oldest = min(view.blockers, key=lambda one: one.since)
        return f"no step was done for {hub.quiet_seconds():.0f} s: {explain(oldest)}"
    if view.is_ready:
        return None
    if state == "doubted":
        return "its replica differs from a neighbour's and is rebuilt"
    if not view.linked:
        return f"no neighbour is linked; it dials {len(hub.settings.peers)}"
    catching_up = view.catching_up
    if catching_up is not None:
        return f"it holds {_spell_progress(catching_up)} so far, from {_name(catching_up.donor, view)}"
    if view.phase == "joining":
        return "it has not caught up with its neighbours yet"
    return hub.unready_reason


def describe_readiness(hub: TelemetryHub) -> list[str]:
    """Lines that say why the node is not ready and what it waits for. Empty if it is ready."""
    reason = why_not_ready(hub)
    if reason is None:
        return []
    view = hub.subject.view()
    lines = [f"has waited for {view.now - one.since:.0f} s: {explain(one)}" for one in view.blockers[:BLOCKERS_SHOWN]]
    return [reason, *lines]


def describe_line(hub: TelemetryHub | None) -> str:
    """State and step in a few words, for a supervisor."""
    if hub is None or hub.subject.view().phase == LOADING:
        return "loading the model"
    view = hub.subject.view()
    steps = view.steps or hub.settings.run.steps
    return f"{describe_state(hub)}, step {min(view.step, steps)} of {steps}"


def describe(hub: TelemetryHub) -> dict[str, Any]:
    """The whole status."""
    subject, view, links = hub.subject, hub.subject.view(), hub.subject.link_states()
    reason, pulled = why_not_ready(hub), view.catching_up
    return {
        "node": _node(hub),
        "state": describe_state(hub),
        "is_ready": reason is None,
        "why_not_ready": reason,
        "progress": _progress(hub, view, links),
        "figures": {name: value if math.isfinite(value) else None for name, value in view.figures.items()},
        "words": dict(view.words),
        "catching_up": asdict(pulled) | {"donor": _name(pulled.donor, view)} if pulled is not None else None,
        "blockers": [
            describe_blocker(one, view.now, is_closed=view.roster is not None) for one in view.blockers[:BLOCKERS_SHOWN]
        ],
        "window": _window(hub, view),
        "members": _members(view.members),
        "edges": _pairs(view.edges),
        "pairs": _pairs(view.pairs),
        "diameter": view.diameter if view.members else None,
        "cut_vertices": list(map(fingerprint, view.cut_vertices)),
        "roster": _roster(view),
        "links": [_link(link, view) for link in links],
        "updates": _updates(hub, view, links),
        "delays": _delays(view),
        "traffic": _traffic(hub, links),
        "history": _history(hub),
        "journal": _journal(subject),
        "events": list(hub.events)[-EVENTS_SHOWN:],
    }


def _node(hub: TelemetryHub) -> dict[str, Any]:
    return {
        "name": hub.settings.node.name,
        "origin": fingerprint(hub.origin),
        "version": VERSION,
        "run": _run(hub.settings.run),
        "incarnation": hub.subject.incarnation,
        "started_at": hub.started_at,
        "now": time.time(),
        "up_seconds": _round(time.monotonic() - hub.began),
    }


def _run(run: RunSettings) -> dict[str, Any]:
    facts: dict[str, Any] = {"id": run.run_id().hex(), "task": run.objective.task}
    facts |= {key: getattr(run, key) for key in RUN_SETTINGS}
    shown = run.algorithm.shown()
    return facts | {"algorithm": shown} | {key: shown.get(key) for key in SEEDFLOOD_SETTINGS}


def _progress(hub: TelemetryHub, view: View, links: list[LinkState]) -> dict[str, Any]:
    run = hub.settings.run
    steps = view.steps or run.steps
    step = min(view.step, steps) if view.phase != LOADING else None
    speed = 0.0 if _stands_still(hub, view, WAITING_SECONDS) else hub.steps_per_second()
    return {
        "step": step,
        "steps": steps,
        "epoch": run.algorithm.epoch_of(step) if step is not None else None,
        "loss": _round(hub.loss),
        "loss_step": hub.loss_step,
        "step_seconds": _round(hub.step_seconds),
        "steps_per_second": _round(speed),
        "seconds_left": _round((steps - step) / speed) if speed and step is not None else None,
        "spent_seconds": _round(hub.spent_seconds()),
        "spent_bytes": sum(link.bytes_sent for link in links),
        "rise": _rise(hub.rise),
    }


def _rise(rise: Rise | None) -> dict[str, Any] | None:
    if rise is None:
        return None
    best_step, best_loss = (rise.best.step, _round(rise.best.loss)) if rise.best is not None else (None, None)
    return {"step": rise.step, "loss": _round(rise.loss), "best_step": best_step, "best_loss": best_loss}


def _window(hub: TelemetryHub, view: View) -> dict[str, Any]:
    window, close = view.window, hub.last_close
    opened: dict[str, Any] = dict.fromkeys(("step", "opened_seconds", "received", "expected", "bound_seconds"))
    if window is not None:
        opened = {
            "step": window.last,
            "opened_seconds": _round(view.now - window.opened_at),
            "received": window.received,
            "expected": window.expected,
            "bound_seconds": window.bound_seconds,
        }
    return opened | {"last_close": _last_close(view, close) if close is not None else None}


def _spell_progress(pulled: CatchingUp) -> str:
    """The progress in words, with bytes in a readable unit."""
    if pulled.unit != "bytes":
        return f"{pulled.held} of {pulled.wanted} {pulled.unit}"
    size, unit = next(
        one for one in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "B")) if pulled.wanted >= one[0] or one[0] == 1
    )
    return f"{pulled.held / size:.1f} of {pulled.wanted / size:.1f} {unit}"


def _name(origin: OriginId, view: View) -> str:
    return next((member.name for member in view.members if member.origin == origin), fingerprint(origin))


def _last_close(view: View, close: LastClose) -> dict[str, Any]:
    names = {member.origin: member.name for member in view.members}
    missing = sorted(names.get(origin, fingerprint(origin)) for origin in close.missing)
    return asdict(close) | {"waited_seconds": _round(close.waited_seconds), "missing": missing}


def _pairs(pairs: Sequence[Edge]) -> list[list[str]]:
    return [[fingerprint(a), fingerprint(b)] for a, b in pairs]


def _members(members: Sequence[MemberView]) -> list[dict[str, Any]]:
    foremost = max((member.mark for member in members), default=0)
    return [_member(member, foremost) for member in members]


def _member(member: MemberView, foremost: int) -> dict[str, Any]:
    return {key: getattr(member, key) for key in MEMBER_KEYS} | {
        "origin": fingerprint(member.origin),
        "step": member.mark,
        "lag_steps": 0 if member.is_relay else foremost - member.mark,
        "reputation": _round(member.reputation),
    }


def _roster(view: View) -> dict[str, Any] | None:
    roster = view.roster
    if roster is None:
        return None
    refused = sum(view.refused.get(reason, 0) for reason in ROSTER_REASONS)
    counts = {"serial": roster.serial, "hosts": roster.hosts, "gone": roster.gone, "refused": refused}
    return counts | {"removals": list(map(_removal, roster.removals)), "contradicted": roster.contradicted}


def _removal(removal: RemovalView) -> dict[str, Any]:
    return {key: getattr(removal, key) for key in REMOVAL_KEYS} | {
        "origin": fingerprint(removal.origin),
        "state": "settled" if removal.is_settled else "cut" if removal.is_cut else "frozen",
        "content": removal.content.hex(),
    }


def _link(link: LinkState, view: View) -> dict[str, Any]:
    return {key: getattr(link, key) for key in LINK_KEYS} | {
        "origin": fingerprint(link.origin) if link.origin is not None else None,
        "state": "connected" if link.is_connected else "away" if link.address is None else "dialling",
        "hop_seconds": _round(view.hops.latest.get(link.origin)) if link.origin is not None else None,
    }


def _updates(hub: TelemetryHub, view: View, links: list[LinkState]) -> dict[str, Any]:
    tally = hub.tally
    counts = {
        "originated": tally.originated,
        "received": sum(link.updates_received for link in links),
        "duplicate": view.duplicates,
        "applied": tally.applied,
        "late": tally.late,
    }
    rejected = {reason: count for reason, count in view.refused.items() if count}
    return {key: count if tally.has_updates else None for key, count in counts.items()} | {"rejected": rejected}


def _delays(view: View) -> dict[str, Any]:
    return {f"hop_seconds_p{share}": _round(percentile(view.hops.recent, share / 100)) for share in (50, 99)}


def _traffic(hub: TelemetryHub, links: list[LinkState]) -> dict[str, Any]:
    parameters, parameter_bytes = hub.subject.parameters or (None, None)
    return {
        "seedflood_bytes": sum(link.bytes_sent + link.bytes_received for link in links),
        "gossip_bytes": hub.tally.gossip_bytes if parameters is not None else None,
        "parameters": parameters,
        "parameter_bytes": parameter_bytes,
    }


def _history(hub: TelemetryHub) -> dict[str, Any]:
    history = hub.history
    return {
        "loss": history.loss.points(),
        "loss_of_all": history.loss_of_all.points(),
        "halvings": history.halvings,
        "figures": {name: curve.points() for name, curve in history.figures.items()},
        "steps_per_second": history.speed.points(),
    }


def _journal(subject: Subject) -> dict[str, Any]:
    size = subject.journal_size()
    return {key: size.get(key) for key in JOURNAL_KEYS}


def _round(value: float | None) -> float | None:
    """Rounded to six digits after the point; None if it is not finite, because JSON has no infinity."""
    return round(value, 6) if value is not None and math.isfinite(value) else None
