"""The table and the pictures of what has been measured, as Markdown and SVG."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from textwrap import fill
from typing import Any, NamedTuple

import matplotlib
from matplotlib.figure import Figure

from benchmarks.real.plan import BASE, EXERCISES, LINES, cells
from seedflood import durable
from study.cell import Cell, Result
from study.results import Results

SIZE_INCHES = (7.5, 3.4)
BYTES, SECONDS = "edge_bytes", "measure_seconds"

WIDTH = 110

INTRODUCTION = (
    "Written by `python -m benchmarks.real`; do not edit it. {swarm} Medians over run seeds, with the least and the "
    "most in parentheses, on test rows. *base* is the model before training, *rank-R* SeedFlood with the coefficients "
    "of the gradient, *two-sided* SeedFlood with differences of losses: {how} AdamW, LoRA (rank 8), DiLoCo and DSGD "
    "with LoRA are in one process, with as many rows in a step. Of each, at most three learning rates were tried with "
    "the first seed, and the best one was kept. AdamW and LoRA train one model with all rows, and send nothing. "
    "Weights are float32. Seconds are processor time of one host, without loading and evaluation; what was measured "
    "on a GPU has none."
)


class Words(NamedTuple):
    """What a page says of its swarm. swarm, how: in `INTRODUCTION`. column: of bytes. sent: in its picture."""

    swarm: str
    how: str
    column: str
    sent: str


TWO_HOSTS = Words(
    "2 origins on one link.",
    "real daemons over loopback at their defaults, but for strict windows, with all bytes that they send.",
    "bytes per origin, step and link",
    "bytes that an origin has sent over its link",
)
MORE_HOSTS = Words(
    "{0.clients} origins on a {0.topology}, {0.batch_size} rows of each in a step.",
    "the code of the daemons at its defaults, all hosts in one process, no update late, with the bytes of the signed "
    "updates.",
    "bytes per step over a link, one way",
    "bytes that went over a link, one way",
)
COMPUTED = "seconds of a core that a host has computed"


@dataclass(frozen=True, slots=True)
class Line:
    """name: of `LINES`. results: with all seeds; of a yardstick with the options that were chosen."""

    name: str
    results: Sequence[Result]

    def spell(self, figure: str, form: str, per: int = 1) -> str:
        """Of the ends of all courses: the median over the seeds, with the least and the most. per: divides them."""
        values = sorted(end[figure] / per for result in self.results if figure in (end := result.course[-1]))
        if not values:
            return "-"
        middle, low, high = (f"{value:{form}}" for value in (median(values), values[0], values[-1]))
        return middle if low == high else f"{middle} ({low} to {high})"

    @property
    def options(self) -> str:
        options = dict(self.results[0].cell.options)
        return f", rate {options['rate']:g}" if "rate" in options else ""

    @property
    def course(self) -> Sequence[Mapping[str, Any]]:
        """The one with most points."""
        return max((result.course for result in self.results), key=len)


def lines_of(base: Cell, results: Results) -> Iterator[Line]:
    """Those of which there is something."""
    for name in LINES:
        if found := _measured(name, base, results):
            least = min(found, key=lambda result: result.loss)
            yield Line(name, [one for one in found if one.cell.options == least.cell.options])


def _measured(line: str, base: Cell, results: Results) -> list[Result]:
    found = []
    for cell in cells(line, base, results):
        if cell not in results:
            break
        found.append(results[cell])
    return found


def write_report(title: str, bases: Mapping[str, Cell], results: Results, path: Path) -> None:
    """title: of the model. bases: by the name of the exercise (`EXERCISES`). Figures are written to a folder beside the
    report. Raises OSError."""
    figures = path.with_suffix("")
    figures.mkdir(parents=True, exist_ok=True)
    some = next(iter(bases.values()))
    words = TWO_HOSTS if some.clients == 2 else MORE_HOSTS
    introduction = INTRODUCTION.format(swarm=words.swarm.format(some), how=words.how)
    text = f"# A real model: {title}\n\n{fill(introduction, WIDTH)}\n"
    axes = {BYTES: words.sent, SECONDS: COMPUTED}
    for name, base in bases.items():
        if lines := list(lines_of(base, results)):
            text += f"\n## {EXERCISES[name].title}\n\n{_table(lines, words)}"
            for axis, label in axes.items():
                if drawn := [line for line in lines if line.name != BASE and axis in line.course[-1]]:
                    picture = figures / f"{name}-{axis.partition('_')[2]}.svg"
                    _draw(name, drawn, axis, label, picture)
                    text += f"\n![{name}: loss against {label}]({picture.relative_to(path.parent)})\n"
    durable.write(path, text.encode(), mode=0o644)


def _table(lines: Sequence[Line], words: Words) -> str:
    merits = [name for name in ("perplexity", "accuracy", "loss") if name in lines[0].results[0].course[-1]]
    names = ["", *merits, words.column, "seconds per step", "steps", "seeds"]
    rows = [names, ["---"] * len(names)]
    for line in lines:
        steps = line.results[0].cell.steps
        costs = [line.spell(name, form, max(1, steps)) for name, form in ((BYTES, ",.0f"), (SECONDS, ".2f"))]
        figures = [line.spell(name, ".3f") for name in merits]
        rows.append([line.name + line.options, *figures, *costs, str(steps), str(len(line.results))])
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def _draw(name: str, lines: Sequence[Line], axis: str, label: str, path: Path) -> None:
    """The course of each line. What sends nothing is a level of its last loss."""
    picture = Figure(figsize=SIZE_INCHES, layout="constrained")
    axes = picture.subplots()
    axes.set_xlabel(label)
    axes.set_ylabel("loss on test rows")
    for number, line in enumerate(lines):
        colour, course = matplotlib.colormaps["tab10"](number), line.course
        if not course[-1][axis]:
            axes.axhline(course[-1]["loss"], color=colour, linestyle="--", linewidth=1, label=line.name)
        else:
            axes.plot([p[axis] for p in course], [p["loss"] for p in course], "o-", color=colour, label=line.name)
    axes.set_xscale("log")
    axes.grid(alpha=0.3)
    picture.legend(loc="outside right center", fontsize="small")
    with matplotlib.rc_context({"svg.hashsalt": name, "svg.fonttype": "none"}):
        picture.savefig(path, format="svg", metadata={"Date": None})
