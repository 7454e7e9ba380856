"""Draws the picture of the README, four hosts and one digest, in a light and a dark variant.

`python tools/draw_four_hosts.py` writes docs/four-hosts-light.svg and docs/four-hosts-dark.svg.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

DOCS = Path(__file__).parents[1] / "docs"

WIDTH, HEIGHT = 860, 228
CARD_WIDTH, CARD_HEIGHT, CARD_TOP = 158, 84, 40
GAP = 68

NAMES = ("alpha", "beta", "gamma", "delta")
LEFTS = [12 + k * (CARD_WIDTH + GAP) for k in range(len(NAMES))]
"""Where the cards of the hosts begin."""

DIGEST = "54e49de7"
PER_STEP = "5 kB a step of Gemma 3 270M"
FONT = "ui-sans-serif, system-ui, 'Segoe UI', Helvetica, Arial, sans-serif"
MONO = "ui-monospace, SFMono-Regular, Menlo, Consolas, monospace"


@dataclass(frozen=True)
class Theme:
    """Colours."""

    ink: str
    quiet: str
    card: str
    edge: str
    link: str
    same: str
    same_ink: str


THEMES = {
    "light": Theme("#1f2328", "#59636e", "#f6f8fa", "#d1d9e0", "#0969da", "#dafbe1", "#116329"),
    "dark": Theme("#f0f6fc", "#9198a1", "#151b23", "#3d444d", "#4493f8", "#12261e", "#3fb950"),
}


def draw(theme: Theme) -> str:
    """The picture as SVG, which has no background of its own."""
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
        f'font-family="{FONT}" text-anchor="middle">'
    )
    title = "<title>Four hosts on a ring send each other small updates, and end with one digest</title>"
    parts = [head, title, *_links(theme)]
    for name, left in zip(NAMES, LEFTS, strict=True):
        parts += _host(theme, name, left)
    parts += _equal_signs(theme)
    return "\n".join([*parts, "</svg>", ""])


def _links(theme: Theme) -> Iterator[str]:
    """A ring: a link from each host to the next one, and above them one from the last host to the first."""
    middle = CARD_TOP + CARD_HEIGHT / 2
    for left in LEFTS[1:]:
        yield _line(theme, f"M{left - GAP} {middle:g}H{left}")
        yield from _updates(theme, left - GAP / 2, middle)
    first, last = (left + CARD_WIDTH / 2 for left in (LEFTS[0], LEFTS[-1]))
    up, along = f"M{first:g} {CARD_TOP}V22Q{first:g} 12 {first + 10:g} 12", f"H{last - 10:g}"
    yield _line(theme, f"{up}{along}Q{last:g} 12 {last:g} 22V{CARD_TOP}")
    yield from _updates(theme, WIDTH / 2, 12)
    yield _text(WIDTH / 2, 34, f"each host signs and floods its updates: {PER_STEP}", theme.quiet, 13)


def _line(theme: Theme, path: str) -> str:
    return f'<path d="{path}" fill="none" stroke="{theme.link}" stroke-width="2"/>'


def _updates(theme: Theme, x: float, y: float) -> Iterator[str]:
    """Three updates that are on their way."""
    for offset in (-14, 0, 14):
        yield f'<circle cx="{x + offset:g}" cy="{y:g}" r="4" fill="{theme.link}"/>'


def _host(theme: Theme, name: str, left: int) -> Iterator[str]:
    middle = left + CARD_WIDTH / 2
    yield (
        f'<rect x="{left}" y="{CARD_TOP}" width="{CARD_WIDTH}" height="{CARD_HEIGHT}" rx="8" fill="{theme.card}" '
        f'stroke="{theme.edge}"/>'
    )
    yield _text(middle, CARD_TOP + 27, name, theme.ink, 16, "600")
    yield _text(middle, CARD_TOP + 48, "its own rows", theme.quiet, 13)
    yield _text(middle, CARD_TOP + 67, "a replica of the model", theme.quiet, 13)
    bottom = CARD_TOP + CARD_HEIGHT
    yield f'<path d="M{middle:g} {bottom}V{bottom + 24}" stroke="{theme.edge}" stroke-width="2"/>'
    yield f'<rect x="{left + 22}" y="{bottom + 24}" width="{CARD_WIDTH - 44}" height="32" rx="16" fill="{theme.same}"/>'
    yield _text(middle, bottom + 45, DIGEST, theme.same_ink, 15, "600", MONO)


def _equal_signs(theme: Theme) -> Iterator[str]:
    below = CARD_TOP + CARD_HEIGHT
    for left in LEFTS[1:]:
        yield _text(left - GAP / 2, below + 47, "=", theme.same_ink, 22, "600")
    yield _text(WIDTH / 2, below + 92, "All hosts apply all updates, and end with one digest.", theme.ink, 15)


def _text(x: float, y: float, words: str, colour: str, size: int, weight: str = "400", font: str = "") -> str:
    family = f' font-family="{font}"' if font else ""
    return f'<text x="{x:g}" y="{y:g}" fill="{colour}" font-size="{size}" font-weight="{weight}"{family}>{words}</text>'


def main() -> None:
    for name, theme in THEMES.items():
        (DOCS / f"four-hosts-{name}.svg").write_text(draw(theme), encoding="utf-8")


if __name__ == "__main__":
    main()
