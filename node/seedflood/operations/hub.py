"""The telemetry hub: gets everything that happens on a node, counts it, and writes it into the event log.

It is called on the hot path, so its methods only count and queue. Costly work is done when somebody looks (`status`,
`metrics`) or on the thread of the event log. The hub knows no algorithm: each has an observer that gets what its
driver did and reports it to the hub (`operations/seedflood/observer`). Durations are of the monotonic clock, which
nobody sets; Unix times are only shown.
"""

import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from typing import Any

from seedflood.config import Settings
from seedflood.log import log
from seedflood.operations.eventlog import EventLog, Line, event_files, read_lines, spell_time
from seedflood.operations.history import EVENTS_MAX, SPEED_SECONDS, History
from seedflood.operations.rise import Rise
from seedflood.operations.subject import LastClose, Subject
from seedflood.operations.tally import Tally
from seedflood.protocol.origin import OriginId, fingerprint
from seedflood.protocol.swarm.outputs import Event

Tracer = Callable[[str, int, str | None], Callable[[Iterable[bytes]], dict[str, Any]]]
"""(origin's fingerprint, step, name) -> a function that turns lines of the event log into a trace as JSON. That
function is slow, and must not be called on the loop."""

SPEED_ROUNDS = 200
SPEED_ROUND_SECONDS = 30.0
"""The speed is measured over at most this many rounds and seconds."""

STANDSTILL_ROUNDS = 3
"""Nothing moves if no step was done during the time of this many rounds, and for so many seconds as the one who asks
has patience."""

RISEN = "the loss has risen far above its best: this run unlearns; try a lower learning rate or fewer steps"
NO_NUMBER = "the loss is no finite number any more: this run unlearns; try a lower learning rate or fewer steps"

LOG_BYTES_MAX = 64_000_000
"""Room for the event log and its older files in the state folder."""

LOG_SECONDS_MAX = 5.0
"""How long a trace waits for a slow disk. Then it reads what is there."""


class TelemetryHub:
    """subject: the node. events: the last events for people, the newest last.

    The observer of the algorithm sets: last_close, if it has windows; counts_rounds, if it calls `stepped`; tracer, if
    its updates can be traced; unready_reason, why a node with links may not be ready.
    """

    def __init__(self, settings: Settings, origin: OriginId) -> None:
        self.settings = settings
        self.origin = origin
        self.subject = Subject()
        self.tally = Tally()
        self.history = History()
        self.events: deque[dict[str, Any]] = deque(maxlen=EVENTS_MAX)
        self.started_at, self.began = time.time(), time.monotonic()
        """When the process began, Unix time and on the monotonic clock."""
        self.loss: float | None = None
        self.loss_step: int | None = None
        """Of which step the loss is."""
        self.rise: Rise | None = None
        """The last evaluation, if its loss lies clearly above the best one."""
        self.figures: Mapping[str, float] = {}
        """Figures of the last evaluation, by name."""
        self.step_seconds: float | None = None
        self.measured_seconds = 0.0
        """For how long steps have been measured in this process."""
        self.measuring_since: float | None = None
        """When the first measurement of this process began, on the monotonic clock."""
        self.last_close: LastClose | None = None
        self.counts_rounds = False
        self.tracer: Tracer | None = None
        self.take_roster: Callable[[bytes], Awaitable[int]] | None = None
        """Takes the file of a roster, and returns the serial that counts then. Raises ConfigError."""
        self.unready_reason = "it does not take part yet"
        self._linked: dict[OriginId, str] = {}
        """The names of linked neighbours."""
        self._progress: deque[tuple[float, int]] = deque(maxlen=SPEED_ROUNDS)
        """When rounds were done, each with how many steps were done by then in this process."""
        self._done = self._round_steps = 0
        """Steps that were done in this process, and in its last round."""
        self._step: int | None = None
        self._stepped_at: float | None = None
        self._speed_at = 0.0
        self._file = EventLog(
            settings.node.state,
            node=settings.node.name,
            run=settings.run.shown_id(),
            bytes_max=LOG_BYTES_MAX,
            names=self.names,
        )

    @property
    def lines_lost(self) -> int:
        return self._file.lost

    def recall(self) -> None:
        """Restores curves and events of earlier lives. It reads files, so call it away from the loop, before anything
        else."""
        self.events.extend(self.history.recall(read_lines(event_files(self.settings.node.state))))

    def wait_for_log(self) -> Callable[[], object]:
        """A function that blocks until everything that was logged by now can be read. Call it away from the loop."""
        return partial(self._file.flush().wait, LOG_SECONDS_MAX)

    def close(self) -> None:
        self._file.close()

    # For people: the log on stderr, the event log and the page show the same

    def log(self, event: str, level: str = "info", **facts: Any) -> None:
        log.log(logging.getLevelNamesMapping()[level.upper()], event, **facts)
        at = self.write(event, level, facts)
        if level != "debug":
            self.events.append({"time": spell_time(at), "event": event, "level": level, **facts})

    def noted(self, event: Event) -> None:
        self.log(event.name, event.level, **event.facts)

    def write(self, event: str, level: str, facts: Mapping[str, Any] | Callable[[], Mapping[str, Any]]) -> float:
        """Writes into the event log only. facts: if they are costly to make, a function that the log's thread calls.
        Returns the time of the line, Unix time."""
        at = time.time()
        self._file.write(Line(at, event, level, facts))
        return at

    # Links

    def connected(self, peer: OriginId, name: str, *, is_dialled: bool) -> None:
        self._linked[peer] = name
        self.write("connected", "debug", {"peer": name, "origin": fingerprint(peer), "is_dialled": is_dialled})

    def disconnected(self, peer: OriginId, reason: str) -> None:
        self.write("disconnected", "debug", {"peer": self.name(peer), "reason": reason})
        self._linked.pop(peer, None)

    # What the model did

    def measured(self, step: int, count: int, loss: float | None, seconds: float) -> None:
        """A round was measured. seconds: for all `count` steps together."""
        self.loss, self.loss_step, self.step_seconds = loss, step, seconds / count
        self.measured_seconds += seconds
        if self.measuring_since is None:
            self.measuring_since = time.monotonic() - seconds
        self.history.measured(step, loss)
        for _ in range(count):
            self.tally.steps.observe(seconds / count)
        self.write("measured", "debug", {"step": step, "count": count, "loss": loss, "seconds": round(seconds, 6)})

    def spent_seconds(self) -> float | None:
        """Time in this process from the first measurement to the last step: what it took to get to the
        present loss."""
        if self.measuring_since is None:
            return None
        return max(0.0, (self._stepped_at or time.monotonic()) - self.measuring_since)

    def evaluated(
        self, step: int, figures: Mapping[str, float | None], counts: Mapping[str, int], rise: Rise | None = None
    ) -> None:
        """The model was evaluated. A figure is None if it is not a finite number. counts: of what, by name."""
        self.figures = {name: value for name, value in figures.items() if value is not None}
        self.history.evaluated(step, figures)
        facts: dict[str, Any] = {"step": step, **figures, **counts}
        self.log("evaluated", **facts)
        self._log_rise(rise)

    def _log_rise(self, rise: Rise | None) -> None:
        """Reports once that the loss has risen, and once that it is down again."""
        before, self.rise = self.rise, rise
        if rise is not None and before is None:
            best = {"best_loss": round(rise.best.loss, 6), "best_step": rise.best.step} if rise.best is not None else {}
            self.log(NO_NUMBER if rise.loss is None else RISEN, "error", step=rise.step, loss=rise.loss, **best)
        elif rise is None and before is not None:
            self.log("the loss is near its best again")

    # Progress

    def stepped(self, count: int) -> None:
        """A round of so many steps is done. Only what is done here makes up the speed: a node that catches up skips the
        steps that the others have done without it."""
        self.tally.last_step_at, now = time.time(), time.monotonic()
        self._stepped_at = now
        parameters = self.subject.parameters
        if parameters is not None:
            self.tally.gossip_bytes += 2 * len(self._linked) * count * parameters[1]
        if self.steps_per_second() == 0 or count > self._round_steps:
            self._progress.clear()  # it moves again, or jumps to where the others are
        self._done, self._round_steps = self._done + count, count
        self._progress.append((now, self._done))
        if now - self._speed_at >= SPEED_SECONDS and (speed := self.steps_per_second()) is not None:
            self._speed_at = now
            self.history.speed.add(round(self.tally.last_step_at, 3), round(speed, 4))

    def reached(self, step: int) -> None:
        """The node is at this step. Called after every event. It counts as progress since the process began, unless the
        algorithm's observer calls `stepped`: an observer can distinguish steps that were done from steps that were
        caught up with."""
        before, self._step = self._step, step
        if before is not None and step > before and not self.counts_rounds:
            self.stepped(step - before)

    def steps_per_second(self) -> float | None:
        """The speed over the last seconds. It falls while a round takes longer than those before, and is 0 if nothing
        moves."""
        now = time.monotonic()
        while self._progress and now - self._progress[0][0] > SPEED_ROUND_SECONDS and len(self._progress) > 2:
            self._progress.popleft()
        if len(self._progress) < 2:
            return None
        if self.is_quiet(SPEED_ROUND_SECONDS):
            return 0.0
        (began, first), (_, last) = self._progress[0], self._progress[-1]
        return (last - first) / max(now - began, 1e-6)

    def quiet_seconds(self) -> float:
        """Time since the last step, or since the process began."""
        return time.monotonic() - (self._stepped_at or self.began)

    def is_quiet(self, seconds: float) -> bool:
        """Was no step done for so long, and for the time of several rounds?"""
        if len(self._progress) > 1:
            lasted = self._progress[-1][0] - self._progress[0][0]
            seconds = max(seconds, STANDSTILL_ROUNDS * lasted / (len(self._progress) - 1))
        return self.quiet_seconds() > seconds

    # Small things

    def names(self) -> dict[str, str]:
        """The names of all known origins, by fingerprint. For any thread."""
        known = {self.origin: self.settings.node.name} | self.subject.names()
        return {fingerprint(origin): name for origin, name in known.items()}

    def name(self, origin: OriginId | None) -> str | None:
        """The name of a neighbour, else the fingerprint; None for None."""
        return self._linked.get(origin) or fingerprint(origin) if origin is not None else None
