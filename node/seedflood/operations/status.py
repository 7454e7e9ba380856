"""The status of a node as one JSON object: what `/api/status` answers, and so what the page and the commands show.

All keys are always there; what is not known yet is null. Origins are fingerprints, times Unix seconds.

    node      name, origin, version, incarnation, started_at, now, run {name, id, model, task, mode, clients, steps,
              window, local_steps, batch_size, refresh_period}
    state     loading | joining | catching up | ready | draining | finished | doubted | disk full
    is_ready, why_not_ready
    progress  step, steps, epoch, loss, step_seconds, steps_per_second, seconds_left, spent_seconds, spent_bytes
              spent: until the present loss, in this life of the process; bytes: sent on all links together
    window    step, opened_seconds, heard, expected, waiting_for [names], bound_seconds, last_close {step, reason,
              waited_seconds, heard, late, missing [names]}
    members   [{name, origin, status, step, lag_steps, hop_seconds, first_step, last_step, incarnation}]
              status: self | linked | reachable | silent | left | unknown; step: the first one of it not held here
    edges     [[origin, origin]]: links that both ends state
    diameter
    links     [{peer, origin, address, state, bytes_sent, bytes_received, pull_bytes_received, updates_dropped,
              hop_seconds, connected_at}]; state: connected | dialling
    updates   originated, received, duplicate, applied, late, rejected {reason: n}: of this life of the process
    delays    hop_seconds_p50, hop_seconds_p99, delivery_seconds [the last hops, in seconds]
    traffic   seedflood_bytes, gossip_bytes, parameters, parameter_bytes
    history   loss [[step, loss]] of training, figures {name: [[step, value]]} of evaluations, the most telling first,
              accuracy [[step, accuracy, loss]] of these, steps_per_second [[unix seconds, value]]
    journal   bundles, bytes, closed_epochs
    events    the last ones: [{time, level, event, ...}]
"""

import math
import time
from typing import Any

from seedflood import VERSION
from seedflood.config import RunSettings
from seedflood.operations.hub import TelemetryHub
from seedflood.operations.subject import LinkState, Subject
from seedflood.operations.tally import percentile
from seedflood.protocol.origin import fingerprint
from seedflood.protocol.seedflood.outputs import ClosedWindow
from seedflood.protocol.seedflood.phase import Phase
from seedflood.protocol.seedflood.view import MemberView, View

EVENTS_SHOWN = 50

RUN_SETTINGS = ("name", "model", "mode", "clients", "steps", "batch_size")
SEEDFLOOD_SETTINGS = ("window", "local_steps", "refresh_period")


def describe_state(subject: Subject | None) -> str:
    """One of the words that the module names."""
    if subject is None:
        return "loading"
    node = subject.node
    if subject.is_draining or node.phase is Phase.LEFT:
        return "draining"
    if subject.is_disk_full:
        return "disk full"
    if node.is_doubted:
        return "doubted"
    if subject.is_finished:
        return "finished"
    if node.is_ready:
        return "ready"
    return "catching up" if node.neighbours else "joining"


def why_not_ready(subject: Subject | None) -> str | None:
    """One sentence; None if the node is ready."""
    if subject is None:
        return "the model is being loaded"
    state, node = describe_state(subject), subject.node
    if state == "draining":
        return "the node is leaving"
    if node.is_ready:
        return None
    if state == "doubted":
        return "its replica differs from a neighbour's and is made again"
    if not node.neighbours:
        return f"no neighbour is linked; it dials {len(subject.settings.peers)}"
    catching_up = subject.view().catching_up
    if catching_up is not None:
        name = node.membership.name(catching_up.donor)
        return f"catching up: {catching_up.held} of {catching_up.wanted} steps held, from {name}"
    if node.phase is Phase.JOINING:
        return "catching up"
    return "its replica was not compared with a neighbour's yet"


def describe_line(subject: Subject | None) -> str:
    """State and step in a few words, for a supervisor."""
    if subject is None:
        return "loading the model"
    run = subject.settings.run
    return f"{describe_state(subject)}, step {min(subject.node.step, run.steps)} of {run.steps}"


def describe(hub: TelemetryHub) -> dict[str, Any]:
    """The whole status."""
    subject = hub.subject
    view = subject.view() if subject is not None else None
    links = subject.link_states() if subject is not None else []
    reason = why_not_ready(subject)
    return {
        "node": _node(hub),
        "state": describe_state(subject),
        "is_ready": reason is None,
        "why_not_ready": reason,
        "progress": _progress(hub, links),
        "window": _window(hub, view),
        "members": [_member(member, view) for member in view.members] if view is not None else [],
        "edges": [[fingerprint(a), fingerprint(b)] for a, b in view.edges] if view is not None else [],
        "diameter": view.diameter if view is not None else None,
        "links": [_link(link, hub) for link in links],
        "updates": _updates(hub, links),
        "delays": _delays(hub),
        "traffic": _traffic(hub, links),
        "history": _history(hub),
        "journal": _journal(subject),
        "events": list(hub.events)[-EVENTS_SHOWN:],
    }


def _node(hub: TelemetryHub) -> dict[str, Any]:
    run, subject = hub.settings.run, hub.subject
    return {
        "name": hub.settings.node.name,
        "origin": fingerprint(hub.origin),
        "version": VERSION,
        "run": _run(run),
        "incarnation": subject.incarnation if subject is not None else None,
        "started_at": hub.started_at,
        "now": time.time(),
    }


def _run(run: RunSettings) -> dict[str, Any]:
    said: dict[str, Any] = {"id": run.run_id().hex(), "task": run.objective.task}
    said |= {key: getattr(run, key) for key in RUN_SETTINGS}
    return said | {key: getattr(run.seedflood, key) for key in SEEDFLOOD_SETTINGS}


def _progress(hub: TelemetryHub, links: list[LinkState]) -> dict[str, Any]:
    subject, run = hub.subject, hub.settings.run
    step = min(subject.node.step, run.steps) if subject is not None else None
    speed = hub.steps_per_second()
    return {
        "step": step,
        "steps": run.steps,
        "epoch": step // run.seedflood.refresh_period if step is not None else None,
        "loss": _round(hub.loss),
        "step_seconds": _round(hub.step_seconds),
        "steps_per_second": _round(speed),
        "seconds_left": _round((run.steps - step) / speed) if speed and step is not None else None,
        "spent_seconds": _round(hub.spent_seconds()),
        "spent_bytes": sum(link.bytes_sent for link in links),
    }


def _window(hub: TelemetryHub, view: View | None) -> dict[str, Any]:
    window = view.window if view is not None else None
    return {
        "step": window.last if window is not None else None,
        "opened_seconds": _round(window.opened_seconds) if window is not None else None,
        "heard": window.heard if window is not None else None,
        "expected": window.expected if window is not None else None,
        "waiting_for": [blocker.name for blocker in view.blockers] if view is not None and window is not None else [],
        "bound_seconds": window.bound_seconds if window is not None else None,
        "last_close": _last_close(hub.subject, hub.last_close),
    }


def _last_close(subject: Subject | None, window: ClosedWindow | None) -> dict[str, Any] | None:
    if subject is None or window is None:
        return None
    return {
        "step": window.steps[1],
        "reason": window.reason,
        "waited_seconds": _round(window.waited_seconds),
        "heard": window.heard,
        "late": window.late,
        "missing": sorted(subject.node.membership.name(origin) for origin in window.missing),
    }


def _member(member: MemberView, view: View) -> dict[str, Any]:
    foremost = max(other.mark for other in view.members)
    return {
        "name": member.name,
        "origin": fingerprint(member.origin),
        "status": member.status,
        "step": member.mark,
        "lag_steps": foremost - member.mark,
        "hop_seconds": member.hop_seconds,
        "first_step": member.first_step,
        "last_step": member.last_step,
        "incarnation": member.incarnation,
    }


def _link(link: LinkState, hub: TelemetryHub) -> dict[str, Any]:
    hops = hub.tally.hops.latest
    return {
        "peer": link.peer,
        "origin": fingerprint(link.origin) if link.origin is not None else None,
        "address": link.address,
        "state": "connected" if link.is_connected else "dialling",
        "bytes_sent": link.bytes_sent,
        "bytes_received": link.bytes_received,
        "pull_bytes_received": link.pull_bytes_received,
        "updates_dropped": link.updates_dropped,
        "hop_seconds": _round(hops.get(link.origin)) if link.origin is not None else None,
        "connected_at": link.connected_at,
    }


def _updates(hub: TelemetryHub, links: list[LinkState]) -> dict[str, Any]:
    tally, subject = hub.tally, hub.subject
    return {
        "originated": tally.originated,
        "received": sum(link.updates_received for link in links),
        "duplicate": subject.node.duplicates * subject.settings.run.seedflood.local_steps if subject is not None else 0,
        "applied": tally.applied,
        "late": tally.late,
        "rejected": dict(subject.node.admission.refused) if subject is not None else {},
    }


def _delays(hub: TelemetryHub) -> dict[str, Any]:
    samples = hub.tally.hops.samples()
    return {
        "hop_seconds_p50": _round(percentile(samples, 0.5)),
        "hop_seconds_p99": _round(percentile(samples, 0.99)),
        "delivery_seconds": [_round(sample) for sample in samples],
    }


def _traffic(hub: TelemetryHub, links: list[LinkState]) -> dict[str, Any]:
    subject = hub.subject
    parameters, parameter_bytes = subject.parameters if subject is not None else (None, None)
    return {
        "seedflood_bytes": sum(link.bytes_sent + link.bytes_received for link in links),
        "gossip_bytes": hub.tally.gossip_bytes,
        "parameters": parameters,
        "parameter_bytes": parameter_bytes,
    }


def _history(hub: TelemetryHub) -> dict[str, Any]:
    history = hub.history
    figures = {name: curve.points() for name, curve in history.figures.items()}
    pairs = zip(figures.get("accuracy", ()), figures.get("loss", ()), strict=False)
    return {
        "loss": history.loss.points(),
        "figures": figures,
        "accuracy": [[step, accuracy, loss] for (step, accuracy), (_, loss) in pairs],
        "steps_per_second": history.speed.points(),
    }


def _journal(subject: Subject | None) -> dict[str, Any]:
    size = subject.journal_size() if subject is not None else None
    return {
        "bundles": size.bundles if size is not None else None,
        "bytes": size.bytes if size is not None else None,
        "closed_epochs": size.closed_epochs if size is not None else None,
    }


def _round(value: float | None) -> float | None:
    """To microseconds; JSON has no infinity."""
    return round(value, 6) if value is not None and math.isfinite(value) else None
