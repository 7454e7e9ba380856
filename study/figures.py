"""Draws the figures of a study by matplotlib, as SVG pictures that are the same for the same results."""

from collections.abc import Sequence
from pathlib import Path

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from study.methods import METHODS
from study.summary import Row
from study.timings import Timing

SIZE_INCHES = (7.5, 4.2)
NAMES = list(METHODS)


def draw(title: str, rows: Sequence[Row], figure: str, path: Path) -> None:
    """A part of a study: the figure of the test rows, against bytes if there is one setting, else against settings."""
    picture = Figure(figsize=SIZE_INCHES, layout="constrained")
    axes: Axes = picture.subplots()
    axes.set_ylabel(f"{figure} on test rows, over seeds")
    settings = list(dict.fromkeys(row.setting for row in rows))
    if len(settings) > 1:
        _draw_settings(axes, rows, settings, figure)
    else:
        _draw_bytes(axes, rows, figure)
    _save(picture, axes, title, path)


def draw_timings(timings: Sequence[Timing], path: Path) -> None:
    """Seconds of applying updates, by their number: a colour for each model, dashed with dense directions."""
    picture = Figure(figsize=SIZE_INCHES, layout="constrained")
    axes: Axes = picture.subplots()
    axes.set_xlabel("updates")
    axes.set_ylabel("seconds to apply them")
    for number, one in enumerate(timings):
        colour, counts = matplotlib.colormaps["tab10"](number), [applied.count for applied in one.updates]
        seconds = [applied.subspace_seconds for applied in one.updates]
        axes.plot(counts, seconds, "o-", color=colour, label=f"{one.model}, subspace")
        dense = [applied.dense_seconds for applied in one.updates]
        axes.plot(counts, dense, "o--", color=colour, label=f"{one.model}, dense")
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    _save(picture, axes, "Applying updates", path)


def _save(picture: Figure, axes: Axes, title: str, path: Path) -> None:
    axes.set_title(title)
    axes.grid(alpha=0.3)
    picture.legend(loc="outside right center", fontsize="small")
    with matplotlib.rc_context({"svg.hashsalt": title, "svg.fonttype": "none"}):
        picture.savefig(path, format="svg", metadata={"Date": None})


def _draw_bytes(axes: Axes, rows: Sequence[Row], figure: str) -> None:
    """Methods that send nothing are lines."""
    axes.set_xlabel("bytes over an edge in one direction, whole run")
    for row in rows:
        found, sent = row.spread(figure), row.spread("edge_bytes")
        if found is None or sent is None:
            continue
        colour = _colour(row.method)
        if not sent.mean:
            axes.axhline(found.mean, color=colour, linestyle="--", linewidth=1, label=row.method)
            continue
        error = [[found.mean - found.low], [found.high - found.mean]]
        axes.errorbar([sent.mean], [found.mean], yerr=error, fmt="o", capsize=3, color=colour, label=row.method)
    axes.set_xscale("log")  # at last: of one point it would make limits that are equal


def _draw_settings(axes: Axes, rows: Sequence[Row], settings: Sequence[str], figure: str) -> None:
    axes.set_xticks(range(len(settings)), settings, fontsize="small")
    for method in dict.fromkeys(row.method for row in rows):
        found = {settings.index(row.setting): row.spread(figure) for row in rows if row.method == method}
        whole = {place: spread for place, spread in found.items() if spread is not None}
        means = [spread.mean for spread in whole.values()]
        below = [spread.mean - spread.low for spread in whole.values()]
        above = [spread.high - spread.mean for spread in whole.values()]
        colour = _colour(method)
        axes.errorbar(list(whole), means, yerr=[below, above], fmt="o-", capsize=3, color=colour, label=method)


def _colour(method: str) -> tuple[float, ...]:
    return matplotlib.colormaps["tab20"](NAMES.index(method))
