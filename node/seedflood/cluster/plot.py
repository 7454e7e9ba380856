"""Draws curves as an SVG picture that needs no script and no font."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

Points = Sequence[tuple[float, float]]

WIDTH, HEIGHT = 420, 300
"""The size of one panel."""

LEFT, RIGHT, TOP, BOTTOM = 58, 18, 46, 48
"""Margins around the plot of a panel."""

TICKS = 5
COLOURS = ("#1a6fb5", "#c2571a", "#3a7d34")
INK, GRID, PAPER = "#24292f", "#d8dee4", "#ffffff"


@dataclass(frozen=True, slots=True)
class Panel:
    """One plot. curves: points by name, in order of x. is_logarithmic: is the y axis logarithmic?"""

    title: str
    x_label: str
    curves: Mapping[str, Points]
    is_logarithmic: bool = False


def draw(panels: Sequence[Panel]) -> str:
    """An SVG picture of the panels, side by side."""
    body = "".join(
        f'<g transform="translate({k * WIDTH} 0)">{_draw_panel(panel)}</g>' for k, panel in enumerate(panels)
    )
    width = WIDTH * len(panels)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {HEIGHT}" width="{width}" height="{HEIGHT}" '
        f'font-family="system-ui, sans-serif" font-size="12" fill="{INK}">\n'
        f'<rect width="{width}" height="{HEIGHT}" fill="{PAPER}"/>\n{body}</svg>\n'
    )


def ticks(least: float, most: float, count: int = TICKS) -> list[float]:
    """About `count` round numbers between two values."""
    rough = (most - least) / count
    size = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * size for factor in (1, 2, 5, 10) if factor * size >= rough)
    first = math.ceil(least / step - 1e-9)
    return [k * step for k in range(first, math.floor(most / step + 1e-9) + 1)]


def _draw_panel(panel: Panel) -> str:
    xs = [x for points in panel.curves.values() for x, _ in points]
    ys = [y for points in panel.curves.values() for _, y in points]
    across = _Axis(min(xs), max(xs), LEFT, WIDTH - RIGHT)
    down = _Axis(min(ys), max(ys), HEIGHT - BOTTOM, TOP, panel.is_logarithmic)
    parts = [f'<text x="{LEFT}" y="20" font-size="14" font-weight="600">{escape(panel.title)}</text>\n']
    for value in down.ticks():
        y = down.place(value)
        parts.append(f'<path d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}" stroke="{GRID}"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{_spell(value)}</text>\n')
    for value in across.ticks():
        where = f'x="{across.place(value):.1f}" y="{HEIGHT - BOTTOM + 18}"'
        parts.append(f'<text {where} text-anchor="middle">{_spell(value)}</text>\n')
    middle = (LEFT + WIDTH - RIGHT) / 2
    parts.append(f'<text x="{middle}" y="{HEIGHT - 10}" text-anchor="middle">{escape(panel.x_label)}</text>\n')
    for k, (name, points) in enumerate(panel.curves.items()):
        colour = COLOURS[k % len(COLOURS)]
        path = " ".join(f"{across.place(x):.1f},{down.place(y):.1f}" for x, y in points)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts += [
            f'<circle cx="{across.place(x):.1f}" cy="{down.place(y):.1f}" r="3" fill="{colour}"/>' for x, y in points
        ]
        legend = f'<text x="{LEFT + 110 * k}" y="38" fill="{colour}">{escape(name)}</text>\n'
        parts.append(legend)
    return "".join(parts)


class _Axis:
    """Maps values from `least` to `most` to places from `begin` to `end`."""

    def __init__(self, least: float, most: float, begin: float, end: float, is_logarithmic: bool = False) -> None:
        self._scale = math.log10 if is_logarithmic else float
        if is_logarithmic:
            least, most = 10 ** math.floor(math.log10(least)), 10 ** math.ceil(math.log10(most))
        if least == most:
            least, most = least - 0.5, most + 0.5
        self._least, self._most, self._is_logarithmic = least, most, is_logarithmic
        self._begin, self._end = begin, end

    def place(self, value: float) -> float:
        least, most = self._scale(self._least), self._scale(self._most)
        return self._begin + (self._end - self._begin) * (self._scale(value) - least) / (most - least)

    def ticks(self) -> list[float]:
        if not self._is_logarithmic:
            return ticks(self._least, self._most)
        first, last = round(math.log10(self._least)), round(math.log10(self._most))
        return [factor * 10.0**k for k in range(first, last + 1) for factor in (1, 2, 5) if factor == 1 or k < last]


def _spell(value: float) -> str:
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.3g}{letter}"
    return f"{value:.3g}"
