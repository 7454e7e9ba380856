"""The hub: hears of everything that happens on a node, counts it, remembers it, and writes it down.

It is called on the hot path, so its methods only count and queue; what is costly happens when somebody looks (`status`,
`metrics`) or on the event log's own thread. It knows no algorithm. Each has an observer that hears what its driver did
and tells the hub (`operations/seedflood/observer`).
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

import structlog

from seedflood.config import Settings
from seedflood.operations.eventlog import EventLog, Line, event_files, now_microseconds, read_lines, spell_time
from seedflood.operations.history import EVENTS_MAX, SPEED_SECONDS, History
from seedflood.operations.subject import LastClose, Subject
from seedflood.operations.tally import Tally
from seedflood.protocol.origin import OriginId, fingerprint
from seedflood.protocol.swarm.outputs import Event

Curves = Callable[[int, Mapping[str, float | None]], None]
"""Takes points of several curves at one step: TensorBoard."""

Tracer = Callable[[str, int, str | None], Callable[[Iterable[bytes]], dict[str, Any]]]
"""(origin's fingerprint, step, name) -> what, away from the loop, makes of the event log's lines a trace as JSON."""

SPEED_ROUNDS = 200
SPEED_ROUND_SECONDS = 30.0
"""Steps per second are those of so many rounds and seconds."""

STANDSTILL_ROUNDS = 3
"""Nothing moves if no step was done for as long as so many rounds took, and for SPEED_ROUND_SECONDS."""

MEGABYTE = 1_000_000

LOG_SECONDS_MAX = 5.0
"""A trace waits so long for a slow disk, then reads what is there."""

_log = structlog.stdlib.get_logger("seedflood")


class TelemetryHub:
    """subject: None until the node is loaded. events: the last ones for people, the newest last.

    What the algorithm's observer sets: last_close, of an algorithm that has windows; tells_rounds, of one that calls
    `stepped`; tracer, of one whose updates can be traced; unready_reason, why a node that is linked may not be ready.
    """

    def __init__(
        self, settings: Settings, origin: OriginId, loop: asyncio.AbstractEventLoop, curves: Curves | None = None
    ) -> None:
        self.settings = settings
        self.origin = origin
        self.subject: Subject | None = None
        self.tally = Tally()
        self.history = History()
        self.events: deque[dict[str, Any]] = deque(maxlen=EVENTS_MAX)
        self.started_at = time.time()
        self.loss: float | None = None
        self.figures: Mapping[str, float] = {}
        """Those of the last evaluation, by name."""
        self.step_seconds: float | None = None
        self.measuring_since: float | None = None
        """When the first measurement of this life began, Unix time."""
        self.last_close: LastClose | None = None
        self.tells_rounds = False
        self.tracer: Tracer | None = None
        self.unready_reason = "it does not take part yet"
        self._curves = curves
        self._loop = loop
        self._linked: dict[OriginId, str] = {}
        """Names of the neighbours."""
        self._progress: deque[tuple[float, int]] = deque(maxlen=SPEED_ROUNDS)
        self._step: int | None = None
        self._speed_at = 0.0
        self._looked_at = 0.0
        self._log = self._open_log() if settings.node.events_megabytes else None

    def _open_log(self) -> EventLog:
        node = self.settings.node
        return EventLog(
            node.state,
            node=node.name,
            run=self.settings.run.run_id().hex()[:16],
            bytes_max=node.events_megabytes * MEGABYTE,
            names=self.names,
            call_soon=self._loop.call_soon,
        )

    @property
    def lines_lost(self) -> int:
        return self._log.lost if self._log is not None else 0

    def recall(self) -> None:
        """Curves and events of earlier lives. Reads files: not on the loop, and before anything is told."""
        if self._log is not None:
            self.events.extend(self.history.recall(read_lines(event_files(self.settings.node.state))))

    def wait_for_log(self) -> Callable[[], object]:
        """Call what it returns away from the loop: it blocks until all that was told by now can be read."""
        return partial(self._log.flush().wait, LOG_SECONDS_MAX) if self._log is not None else _nothing

    def close(self) -> None:
        if self._log is not None:
            self._log.close()

    # For people: the log on stderr, the event log and the page tell the same

    def tell(self, event: str, level: str = "info", **facts: Any) -> None:
        _log.log(logging.getLevelNamesMapping()[level.upper()], event, **facts)
        microseconds = self.write(event, level, facts)
        if level != "debug":
            self.events.append({"time": spell_time(microseconds), "event": event, "level": level, **facts})

    def noted(self, event: Event) -> None:
        self.tell(event.name, event.level, **event.facts)

    def write(self, event: str, level: str, facts: Mapping[str, Any] | Callable[[], Mapping[str, Any]]) -> int:
        """Into the event log alone; facts: made on its thread if they are costly. Returns when that was, in
        microseconds of Unix time."""
        line = Line(now_microseconds(), event, level, facts)
        if self._log is not None:
            self._log.write(line)
        return line.microseconds

    # Links

    def connected(self, peer: OriginId, name: str, *, is_dialled: bool) -> None:
        self._linked[peer] = name
        self.write("connected", "debug", {"peer": name, "origin": fingerprint(peer), "is_dialled": is_dialled})

    def disconnected(self, peer: OriginId, reason: str) -> None:
        self.write("disconnected", "debug", {"peer": self.name(peer), "reason": reason})
        self._linked.pop(peer, None)

    # What the model did

    def measured(self, step: int, count: int, loss: float | None, seconds: float) -> None:
        """seconds: of all `count` steps."""
        self.loss, self.step_seconds = loss, seconds / count
        if self.measuring_since is None:
            self.measuring_since = time.time() - seconds
        self.history.measured(step, loss)
        for _ in range(count):
            self.tally.steps.observe(seconds / count)
        self.write("measured", "debug", {"step": step, "count": count, "loss": loss, "seconds": round(seconds, 6)})
        self.draw(step, {"loss/train": loss, "seconds/step": seconds / count})

    def spent_seconds(self) -> float | None:
        """Wall clock of this life from the first measurement to the last window: what the present loss has taken."""
        if self.measuring_since is None:
            return None
        return max(0.0, (self.tally.last_step_at or time.time()) - self.measuring_since)

    def evaluated(self, step: int, figures: Mapping[str, float | None], rows: int) -> None:
        """None: a figure that is no number."""
        self.figures = {name: value for name, value in figures.items() if value is not None}
        self.history.evaluated(step, figures)
        facts: dict[str, Any] = {"step": step, **figures, "rows": rows}
        self.tell("evaluated", **facts)
        self.draw(step, {f"{name}/validation": value for name, value in figures.items()})

    # How far

    def stepped(self, step: int, count: int) -> None:
        """All steps below `step` are done, and the last `count` of them together."""
        now = time.time()
        self.tally.last_step_at = now
        parameters = self.subject.parameters if self.subject is not None else None
        if parameters is not None:
            self.tally.gossip_bytes += 2 * len(self._linked) * count * parameters[1]
        if self.steps_per_second() == 0:
            self._progress.clear()  # it moves again: how long it stood still says nothing of its speed
        self._progress.append((now, step))
        if now - self._speed_at >= SPEED_SECONDS and (speed := self.steps_per_second()) is not None:
            self._speed_at = now
            self.history.speed.add(round(now, 3), round(speed, 4))

    def reached(self, step: int) -> None:
        """The node is at this step: told after whatever happened. It counts, from where this life began, unless an
        observer tells of rounds: that one knows what was done, and what was only caught up with."""
        before, self._step = self._step, step
        if before is not None and step > before and not self.tells_rounds:
            self.stepped(step, step - before)

    def steps_per_second(self) -> float | None:
        """Of the last seconds; it falls while a round takes longer than those before, and is 0 if nothing moves."""
        now = time.time()
        while self._progress and now - self._progress[0][0] > SPEED_ROUND_SECONDS and len(self._progress) > 2:
            self._progress.popleft()
        if len(self._progress) < 2:
            return None
        (began, first), (ended, last) = self._progress[0], self._progress[-1]
        round_seconds = (ended - began) / (len(self._progress) - 1)
        if now - ended > max(SPEED_ROUND_SECONDS, STANDSTILL_ROUNDS * round_seconds):
            return 0.0
        return (last - first) / max(now - began, 1e-6)

    def look(self) -> None:
        """Remembers what the algorithm shows of itself, once a second at most."""
        now = time.time()
        if self.subject is not None and now - self._looked_at >= SPEED_SECONDS:
            self._looked_at = now
            self.history.described(now, self.subject.view().figures)

    def draw(self, step: int, points: Mapping[str, float | None]) -> None:
        """For TensorBoard, if it is on."""
        if self._curves is not None:
            self._curves(step, points)

    # Small things

    def names(self) -> dict[str, str]:
        """Of all known origins, by fingerprint; for any thread."""
        known = self.subject.names() if self.subject is not None else {}
        return {fingerprint(origin): name for origin, name in ({self.origin: self.settings.node.name} | known).items()}

    def name(self, origin: OriginId | None) -> str | None:
        """Of a neighbour."""
        return self._linked.get(origin) or fingerprint(origin) if origin is not None else None


def _nothing() -> None:
    """There is no log to wait for."""
