"""SeedFlood's observer: is called with what its driver did with updates, counts it, and reports it to the hub.

It implements the driver's observer seam and is called on the hot path, so its methods only count and queue. The event
log gets one line per frame or window, never one per update. For every bundle the lines say where it came from, to whom
it was sent, and in which window it was applied:

    published   updates                        our own bundle is on the disk
    kept        from, updates                  new bundles came and are in the journal
    adopted     from, epoch, updates           a sum came and has replaced bundles
    sent        to, updates                    bundles were given to the link (not those in answers to pulls: the other
                                               side's `kept` shows these)
    applied     steps, reason, updates, late   a window closed; without steps: applied outside of any window

`updates` is a list of [origin, first step, last step], with a fourth number if the origin skipped that many steps right
before. They are made on the event log's thread (`spans`).
"""

from collections.abc import Callable, Iterable, Sequence
from statistics import median
from typing import Any, get_args

from seedflood.operations.hub import TelemetryHub
from seedflood.operations.seedflood.spans import frame_spans, frontier_spans, update_spans
from seedflood.operations.seedflood.trace import trace
from seedflood.operations.subject import LastClose
from seedflood.protocol.origin import OriginId, fingerprint
from seedflood.protocol.seedflood.bundles import LOSS_UNIT_BITS, Bundle, Update, Updates, count_updates
from seedflood.protocol.seedflood.messages import ClosedEpoch
from seedflood.protocol.seedflood.outputs import ClosedWindow, CloseReason
from seedflood.protocol.swarm.messages import Message
from seedflood.protocol.swarm.outputs import Event

FindUpdate = Callable[[OriginId, int], tuple[bool, bool]]
"""(origin, step) -> is its update held, and is it applied."""


class SeedfloodObserver:
    """find_update: asks the node about an update."""

    def __init__(self, hub: TelemetryHub, find_update: FindUpdate) -> None:
        self._hub = hub
        self._find_update = find_update
        self.figures: dict[str, float] = {}
        """What all hosts reported: `loss_of_all_hosts`, the median over origins of the last window."""
        hub.tally.count_updates(get_args(CloseReason))
        hub.unready_reason = "its replica was not compared with a neighbour's yet"
        hub.counts_rounds = True
        hub.tracer = self._trace

    # What the driver did (seams.Observer)

    def noted(self, event: Event) -> None:
        self._hub.tally.mismatches += event.name == "replicas differ"
        self._hub.noted(event)

    def learned(self, bundles: Sequence[Bundle], source: OriginId | None) -> None:
        hub = self._hub
        if source is None:
            hub.tally.originated += count_updates(bundles)
            hub.write("published", "debug", lambda: {"updates": frame_spans(tuple(bundles))})
        else:
            name = hub.name(source)
            hub.write("kept", "debug", lambda: {"from": name, "updates": frame_spans(tuple(bundles))})

    def adopted(self, closed: ClosedEpoch, source: OriginId | None) -> None:
        name = self._hub.name(source)
        self._hub.write(
            "adopted",
            "info",
            lambda: {"from": name, "epoch": closed.epoch, "updates": frontier_spans(closed.frontier)},
        )

    def sent(self, peer: OriginId, message: Message) -> None:
        match message:
            case Updates(bundles):
                name = self._hub.name(peer)
                self._hub.write("sent", "debug", lambda: {"to": name, "updates": frame_spans(bundles)})

    def applied(self, window: ClosedWindow) -> None:
        hub, (first, last) = self._hub, window.steps
        hub.tally.applied += len(window.updates)
        hub.tally.late += window.late
        if first <= last:
            waited = window.waited_seconds
            if window.updates:
                loss = median(update.loss for update in window.updates) * 2.0**-LOSS_UNIT_BITS
                self.figures["loss_of_all_hosts"] = loss
                hub.history.loss_of_all.add(last, loss)
            hub.last_close = LastClose(last, window.reason, waited, window.received, window.late, window.missing)
            hub.tally.closed(window.reason, waited)
            hub.stepped(last - first + 1)
        hub.write("applied", "debug", lambda: _spell_window(window))

    def _trace(self, origin: str, step: int, name: str | None) -> Callable[[Iterable[bytes]], dict[str, Any]]:
        """A `hub.Tracer`. It asks the node right away; the function that it returns reads the lines later."""
        hub = self._hub
        run, at_step = hub.settings, hub.subject.view().step
        is_held, is_applied = self._find_update(int(origin, 16), step)

        def read(lines: Iterable[bytes]) -> dict[str, Any]:
            found = trace(lines, origin, step, name)
            found.node, found.run_steps = run.node.name, run.run.steps
            found.is_held, found.is_applied, found.at_step = is_held, is_applied, at_step
            return found.as_json()

        return read


def _spell_window(window: ClosedWindow) -> dict[str, Any]:
    first, last = window.steps
    is_outside = first > last
    on_time: tuple[Update, ...] = window.updates
    late: tuple[Update, ...] = ()
    if is_outside:
        on_time = tuple(sorted(on_time))  # from a catch-up or a start: by origin, so that spans are long
    elif window.late:
        on_time = tuple(update for update in window.updates if update.step >= first)
        late = tuple(update for update in window.updates if update.step < first)
    return {
        "steps": None if is_outside else [first, last],
        "reason": window.reason,
        "waited_seconds": round(window.waited_seconds, 6),
        "missing": [fingerprint(origin) for origin in window.missing],
        "updates": update_spans(on_time),
        "late": update_spans(late),
    }
