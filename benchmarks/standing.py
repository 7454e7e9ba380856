"""The standing figures: a table in RESULTS.md, of which every benchmark writes the rows of its own.

A row is a figure that has a target: its median with the least and the most, the target, and when, on which commit and
by which command it was measured. A benchmark that is run again with `--keep` replaces its rows, and no others.
"""

from collections.abc import Mapping
from datetime import date
from pathlib import Path

from benchmarks.measure import Metric, commit

RESULTS = Path(__file__).parent / "RESULTS.md"
HEAD = "| figure | median (least to most) | wanted | met | date | commit | command |\n|---|---|---|---|---|---|---|\n"


def keep(name: str, metrics: Mapping[str, Metric], path: Path = RESULTS) -> None:
    """Writes the figures of the benchmark `name` that have a target. path: a page with the table in it."""
    page = path.read_text(encoding="utf-8")
    before, head, rest = page.partition(HEAD)
    assert head, f"{path} has no table of standing figures"
    lines = rest.splitlines(keepends=True)
    count = next((at for at, line in enumerate(lines) if not line.startswith("|")), len(lines))
    command = f"`python -m benchmarks {name}`"
    others = [line for line in lines[:count] if not line.rstrip().endswith(f"| {command} |")]
    ours = [_row(figure, metric, command) for figure, metric in metrics.items() if metric.target is not None]
    path.write_text(before + head + "".join(sorted(others + ours) + lines[count:]), encoding="utf-8")


def _row(figure: str, metric: Metric, command: str) -> str:
    spread = "" if metric.min == metric.max else f" ({_spell(metric.min)} to {_spell(metric.max)})"
    assert metric.target is not None
    wanted = f"{'≥' if metric.more_is_better else '≤'} {_spell(metric.target)}"
    cells = (f"`{figure}`", f"{_spell(metric.median)}{spread}", wanted, "yes" if metric.met else "**no**")
    return "| " + " | ".join((*cells, date.today().isoformat(), commit(), command)) + " |\n"


def _spell(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
