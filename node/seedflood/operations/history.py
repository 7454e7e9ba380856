"""Curves that stay small however long a run lasts: when one is full, two neighbouring points become their mean."""

import math
from collections.abc import Iterable, Mapping
from typing import Any

from seedflood.operations.eventlog import Facts, decode

LOSS_POINTS_MAX = 600
SPEED_POINTS_MAX = 300
FIGURE_POINTS_MAX = 600
FIGURES_MAX = 64
"""Figures of an algorithm that have a curve; their names are its own affair."""

SPEED_SECONDS = 1.0
"""Between two samples of how many steps a second brings."""


class Curve:
    """Means over equal shares of what was added; each stands at the last x of its share."""

    def __init__(self, points_max: int) -> None:
        """points_max: three or more."""
        self._full_points = (points_max - 1) // 2 * 2
        """An even number, and one point less for the share that is being filled."""
        self._points: list[tuple[float, list[float]]] = []
        self._stride = 1
        self._share: list[tuple[float, list[float]]] = []

    def add(self, x: float, *values: float) -> None:
        self._share.append((x, list(values)))
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
        """The last one may stand for a share that is not full yet."""
        points = [*self._points, _mean(self._share)] if self._share else self._points
        return [[x, *values] for x, values in points]


NO_FIGURES = {"time", "event", "level", "node", "run", "step", "rows"}
"""What an event log says of an evaluation beside its figures."""


class History:
    """loss by step, figures of evaluations by their name and step, speed and figures of the algorithm by time."""

    def __init__(self) -> None:
        self.loss = Curve(LOSS_POINTS_MAX)
        self.figures: dict[str, Curve] = {}
        self.algorithm_figures: dict[str, Curve] = {}
        self.speed = Curve(SPEED_POINTS_MAX)
        self._evaluated_step = -1

    def measured(self, step: int, loss: float | None) -> None:
        if loss is not None:
            self.loss.add(step, loss)

    def evaluated(self, step: int, figures: Mapping[str, float | None]) -> None:
        """None: a figure that is no number, which no curve shows."""
        if step > self._evaluated_step:  # a restarted node evaluates the end of its run again
            self._evaluated_step = step
            for name, value in figures.items():
                if value is not None:
                    self.figures.setdefault(name, Curve(FIGURE_POINTS_MAX)).add(step, value)

    def described(self, at: float, figures: Mapping[str, float]) -> None:
        """What the algorithm shows of itself. at: Unix time."""
        for name, value in figures.items():
            has_room = name in self.algorithm_figures or len(self.algorithm_figures) < FIGURES_MAX
            if has_room and math.isfinite(value):
                self.algorithm_figures.setdefault(name, Curve(SPEED_POINTS_MAX)).add(round(at, 3), value)

    def recall(self, lines: Iterable[bytes]) -> list[dict[str, Any]]:
        """Takes what an earlier life has written into the event log; returns its lines that are for people."""
        told: list[dict[str, Any]] = []
        for line in lines:
            if b'"level":"debug"' in line and b'"event":"measured"' not in line:
                continue
            whole = decode(line)
            if whole is not None:
                self._recall(whole, told)
        return told

    def _recall(self, whole: dict[str, Any], told: list[dict[str, Any]]) -> None:
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
            return  # of another version
        told.append(for_people(whole))
        del told[:-EVENTS_MAX]


EVENTS_MAX = 500
"""Events for people that are held in memory."""


def for_people(whole: Facts) -> dict[str, Any]:
    return {key: value for key, value in whole.items() if key not in ("node", "run")}


def _mean(points: list[tuple[float, list[float]]]) -> tuple[float, list[float]]:
    columns = zip(*(values for _, values in points), strict=True)
    return points[-1][0], [sum(column) / len(points) for column in columns]
