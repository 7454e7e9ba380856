"""The Markdown report of a study: its figures and tables, of whatever results are there."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from seedflood import durable
from seedflood.study.figures import draw
from seedflood.study.methods import METHODS
from seedflood.study.plan import Part, Plan, Study
from seedflood.study.results import Results
from seedflood.study.summary import LINKS, Row, Spread, chosen, halfway, rows_of, studies_in, tries_of

REPORT_FILE = "study.md"
FIGURES_FOLDER = "figures"

INTRODUCTION = """\
# Methods of decentralised training, compared

Written by `seedflood study` from `results.jsonl`; do not edit it. Every figure is a mean over seeds, with the least and
the most in parentheses. All clients of a cell run in one process, on one core. Seconds are per client, as if each had
such a core for itself. Bytes are those of a whole run over one edge in one direction, in each method's real encoding:
frames of SeedFlood are signed and sent one by one, parameters are without the few bytes that frame them. Where one
replica stands for all clients (SeedFlood in strict windows, and the central yardsticks) the consensus error is 0 by
construction.
"""

Column = tuple[str, Callable[[Row], str]]


def write_report(plan: Plan, results: Results, folder: Path) -> Path:
    """Draws and writes what there is of a plan. Returns the path of the report. Raises OSError."""
    (folder / FIGURES_FOLDER).mkdir(parents=True, exist_ok=True)
    studies = [Study(plan, *names) for names in studies_in(results)]
    text = INTRODUCTION + "".join(_study(study, results, folder) for study in studies if chosen(study, results))
    durable.write(folder / REPORT_FILE, text.encode(), mode=0o644)
    return folder / REPORT_FILE


def _study(study: Study, results: Results, folder: Path) -> str:
    cells = study.cells(chosen(study, results))
    commits = sorted({results[cell].commit for cell in cells if cell in results})
    plan, done = study.plan, sum(cell in results for cell in cells)
    steps = " and ".join(f"{count:,} {order}-order" for order, count in plan.steps.items())
    rows, seeds = plan.rows, ", ".join(map(str, plan.seeds))
    said = (
        f"\n## {study.model}, {study.task}\n\n"
        f"{plan.clients} clients on a {plan.topology}, {steps} steps of {plan.batch_size} rows each, parameters "
        f"exchanged every {plan.local_steps} steps. {rows.train:,} training rows, {rows.validation:,} to choose "
        f"options by, {rows.test:,} test rows at most. Seeds {seeds}. {done} of {len(cells)} cells are measured, by "
        f"the code of {', '.join(commits) or 'no commit'}.\n"
    )
    said += f"\n### Options\n\n{_options(study, results)}"
    for number, part in enumerate(plan.parts):
        found = rows_of(study, part, results)
        if found:
            name = f"{study.task}-{study.rows[:8]}-{number}.svg"
            said += _part(part, found, folder / FIGURES_FOLDER / name)
    return said + _times(rows_of(study, plan.parts[0], results))


def _options(study: Study, results: Results) -> str:
    """Validation losses of all tries; the chosen one is bold."""
    lines = []
    for method in chosen(study, results):
        cells = tries_of(study, method, results)
        best = min(results[cell].loss for cell in cells)
        tries = [(", ".join(f"{key} {value:g}" for key, value in cell.options), results[cell].loss) for cell in cells]
        spelled = [f"**{name}: {loss:.4f}**" if loss == best else f"{name}: {loss:.4f}" for name, loss in tries]
        lines.append([method, METHODS[method].source, "; ".join(spelled)])
    return _table(["method", "source", "tries, and the validation loss of each"], lines)


def _part(part: Part, rows: Sequence[Row], path: Path) -> str:
    test = rows[0].results[0].test or {}
    merit = "accuracy" if "accuracy" in test else "loss"
    draw(part.title, rows, merit, path)
    columns: list[Column] = [("setting", lambda row: row.setting)] if len(part.changes) > 1 else []
    columns += [("method", lambda row: row.method)]
    columns += [(name, _spelled(name, "{:.4f}")) for name in dict.fromkeys([merit, "loss"])]
    columns += [
        ("consensus error", _spelled("consensus_error", "{:.3g}")),
        ("bytes", _spelled("edge_bytes", "{:,.0f}")),
        ("forwards", _spelled("forwards", "{:,.0f}")),
        ("backwards", _spelled("backwards", "{:,.0f}")),
        ("seconds measuring", _spelled("measure_seconds", "{:.2f}")),
        ("seconds exchanging", _spelled("exchange_seconds", "{:.2f}")),
        ("seeds", lambda row: str(len(row.results))),
    ]
    table = _table([name for name, _ in columns], [[show(row) for _, show in columns] for row in rows])
    return f"\n### {part.title}\n\n![{part.title}]({FIGURES_FOLDER}/{path.name})\n\n{table}"


def _times(rows: Sequence[Row]) -> str:
    """Seconds until a validation loss is reached, on links of some kinds."""
    loss = halfway(rows)
    if loss is None:
        return ""
    names = ["method", *(link.name for link in LINKS)]
    lines = [[row.method, *(_show(row.seconds_to(loss, link), "{:,.1f}") for link in LINKS)] for row in rows]
    return (
        f"\n### Seconds to a validation loss of {loss:.4f}\n\nHalfway from the base model to the best method here. "
        "Computed from what was measured: computing, each message's delay, and bytes at full bandwidth. It is read off "
        f"the points of the courses, so it is a little late for all.\n\n{_table(names, lines)}"
    )


def _spelled(figure: str, form: str) -> Callable[[Row], str]:
    return lambda row: _show(row.spread(figure), form)


def _show(spread: Spread | None, form: str) -> str:
    if spread is None:
        return "-"
    middle, low, high = (form.format(value) for value in (spread.mean, spread.low, spread.high))
    return middle if low == high else f"{middle} ({low} to {high})"


def _table(names: Iterable[str], lines: Iterable[Sequence[str]]) -> str:
    rows = [list(names), ["---"] * len(list(names)), *lines]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)
