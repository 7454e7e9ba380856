"""Curves of bounded size: when one is full, each pair of neighbouring points is replaced by its mean."""

from collections.abc import Iterable, Mapping
from typing import Any

from seedflood.operations.eventlog import decode

LOSS_POINTS_MAX = 600
SPEED_POINTS_MAX = 300
FIGURE_POINTS_MAX = 600

SPEED_SECONDS = 1.0
"""Time between two samples of the speed."""


class Curve:
    """A curve of means: each point is the mean of equally many samples, at the x of the last of them."""

    def __init__(self, points_max: int) -> None:
        """points_max: the most points; at least 3."""
        self._full_points = (points_max - 1) // 2 * 2
        """An even number, and at least one less than points_max: the last point may be a mean that is not complete."""
        self._points: list[list[float]] = []
        self._stride = 1
        self._share: list[list[float]] = []

    def add(self, x: float, value: float) -> None:
        self._share.append([x, value])
        if len(self._share) < self._stride:
            return
        if len(self._points) == self._full_points:
            pairs = (self._points[k : k + 2] for k in range(0, self._full_points, 2))
            self._points = [_mean(pair) for pair in pairs]
            self._stride *= 2
        else:
            self._points.append(_mean(self._share))
            self._share = []

    def points(self) -> list[list[float]]:
        """[x, mean] for each point. The last one may be the mean of fewer samples."""
        return [*self._points, _mean(self._share)] if self._share else [*self._points]


EVENTS_MAX = 500
"""The most events for people that are kept in memory."""

NO_FIGURES = {"time", "event", "level", "node", "run", "step", "rows", "texts"}
"""Keys in a line about an evaluation that are not figures."""


class History:
    """Curves of one node: losses and figures of evaluations by step, speed by time."""

    def __init__(self) -> None:
        self.loss = Curve(LOSS_POINTS_MAX)
        self.loss_of_all = Curve(LOSS_POINTS_MAX)
        """What all hosts reported of their losses; in this life of the process."""
        self.halvings: list[tuple[int, int]] = []
        """(step, how often the learning rate has been halved up to it), for each time; 0 where it only should have
        been."""
        self.figures: dict[str, Curve] = {}
        self.speed = Curve(SPEED_POINTS_MAX)
        self._evaluated_step = -1

    def measured(self, step: int, loss: float | None) -> None:
        if loss is not None:
            self.loss.add(step, loss)

    def evaluated(self, step: int, figures: Mapping[str, float | None]) -> None:
        """A figure is None if it is not a finite number; no curve shows it."""
        if step > self._evaluated_step:  # a restarted node evaluates the end of its run again
            self._evaluated_step = step
            for name, value in figures.items():
                if value is not None:
                    self.figures.setdefault(name, Curve(FIGURE_POINTS_MAX)).add(step, value)

    def recall(self, lines: Iterable[bytes]) -> list[dict[str, Any]]:
        """Restores curves from the event log that earlier lives wrote. Returns its last events for people."""
        events: list[dict[str, Any]] = []
        for line in lines:
            if b'"level":"debug"' in line and b'"event":"measured"' not in line:
                continue
            whole = decode(line)
            if whole is not None:
                self._recall(whole, events)
        return events

    def _recall(self, whole: dict[str, Any], events: list[dict[str, Any]]) -> None:
        try:
            match whole["event"]:
                case "measured":
                    self.measured(int(whole["step"]), None if whole["loss"] is None else float(whole["loss"]))
                    return
                case "evaluated":
                    figures = {
                        name: None if value is None else float(value)
                        for name, value in whole.items()
                        if name not in NO_FIGURES
                    }
                    self.evaluated(int(whole["step"]), figures)
        except (LookupError, TypeError, ValueError):
            return  # the line is of another version
        if isinstance(whole.get("halvings"), int) and isinstance(whole.get("step"), int):
            self.halvings.append((whole["step"], whole["halvings"]))
        events.append({key: value for key, value in whole.items() if key not in ("node", "run")})
        del events[:-EVENTS_MAX]


def _mean(points: list[list[float]]) -> list[float]:
    return [points[-1][0], sum(value for _, value in points) / len(points)]
