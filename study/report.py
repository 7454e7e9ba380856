"""The Markdown report of a study: its figures and tables, of whatever results are there."""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from seedflood import durable
from study.choices import choose, spell
from study.claims import judge
from study.evidence import Evidence
from study.figures import draw, draw_timings
from study.links import LINKS
from study.methods import METHODS
from study.methods.applying import DENSE_MAX
from study.plan import Part, Plan, Study
from study.results import Results
from study.summary import BASE, Row, Spread, chosen, halfway, rows_of, studies_in, tries_of
from study.timings import Timing
from study.traffic import Traffic

STUDY = "model, task and plan"
"""The title of a column."""

TIMINGS_FIGURE = "updates.svg"

INTRODUCTION = """\
# Methods of decentralised training, compared

Written by `python -m study` from the files of results beside it; do not edit it. Every figure is a mean over seeds,
with the least and the most in parentheses. All clients of a cell run in one process, on one core. Seconds are those of
computing, per client, as if each had such a core for itself. Bytes are those of a whole run over one edge in one
direction, in each method's real encoding: frames of SeedFlood are signed and sent one by one, parameters are without
the few bytes that frame them. Where one replica stands for all clients (SeedFlood in strict windows, and the central
yardsticks) the consensus error is 0 by construction, and a graph changes nothing but bytes and hops.

Learning rates are chosen on validation rows, with a seed of its own, by equally many tries for each method. While the
best try has the least or the greatest rate, the next one on that side is tried, too, three times at most.
"""

BEGINS = {"pretrained": "the model's weights", "random": "random weights"}

Column = tuple[str, Callable[[Row], str]]


@dataclass(frozen=True, slots=True)
class Figures:
    """A folder of pictures. seen_from: the folder of the page that shows them."""

    folder: Path
    seen_from: Path

    def show(self, title: str, name: str) -> str:
        """Markdown that shows a picture."""
        return f"![{title}]({os.path.relpath(self.folder / name, self.seen_from)})\n\n"


def write_report(
    plans: Iterable[Plan],
    results: Results,
    timings: Mapping[str, Timing],
    traffic: Mapping[str, Traffic],
    path: Path,
    figures_folder: Path,
) -> None:
    """Draws and writes what there is of these plans. Raises OSError."""
    figures_folder.mkdir(parents=True, exist_ok=True)
    figures = Figures(figures_folder, path.parent)
    studies = [study for study in studies_in(plans, results) if chosen(study, results)]
    waiting = dict(timings)  # the first study of a model judges by them
    evidence = [Evidence(study, results, waiting.pop(Path(study.model).name, None)) for study in studies]
    text = INTRODUCTION + f"\n## Which one should I use?\n\n{_choices(evidence)}\n## Claims\n\n{_claims(evidence)}"
    text += f"\n## Accuracy by task\n\n{_accuracies(evidence)}"
    text += _traffic(list(traffic.values())) + _timings(list(timings.values()), figures)
    text += "".join(_study(study, results, figures) for study in studies)
    durable.write(path, text.encode(), mode=0o644)


def _choices(evidence: Sequence[Evidence]) -> str:
    """The methods for each of some situations."""
    lines = [[choice.situation.name, choice.study, *spell(choice)] for choice in choose(evidence)]
    soonest, best = "seconds to a validation loss, of it and of the next ones", "accuracy on test rows in the end"
    return _table(["situation", STUDY, "the soonest", soonest, f"the best: {best}"], lines)


def _claims(evidence: Sequence[Evidence]) -> str:
    lines = [[one.claim.paper, one.claim.text, one.study, f"**{one.verdict}**", one.figures] for one in judge(evidence)]
    return _table(["paper", "claim", STUDY, "here", "figures"], lines)


def _accuracies(evidence: Sequence[Evidence]) -> str:
    """Of all methods in the base setting of each study, beside that of the model they begin with."""
    lines = [[name, *(_show(one.accuracy_of(name), "{:.3f}") for one in evidence)] for name in METHODS]
    measured = [line for line in lines if set(line[1:]) != {"-"}]
    before = ["before training, on validation rows", *(_show(one.accuracy_before(), "{:.3f}") for one in evidence)]
    return _table(["method", *(one.study.name for one in evidence)], [before, *measured])


def _traffic(traffic: Sequence[Traffic]) -> str:
    """Bytes of a step, by method and model."""
    if not traffic:
        return ""
    names = ["method", *(f"{one.model}, {one.parameters:,} parameters" for one in traffic)]
    sent = {name: [one.step_bytes.get(name) for one in traffic] for name in METHODS}
    lines = [[name, *("-" if one is None else f"{one:,.0f}" for one in its)] for name, its in sent.items() if any(its)]
    commits = ", ".join(sorted({one.commit for one in traffic}))
    return (
        "\n## Bytes of a step\n\nOver the link between two hosts, in one direction: of a round that was run and "
        f"encoded, by the code of {commits}. Parameters are exchanged after each step; who exchanges them "
        "every k steps sends a k-th. On a ring of N hosts what SeedFlood and coefficients "
        "send is (N + 1) / 2 times as much, for it goes to everyone; all others send as much or less.\n\n"
        f"{_table(names, lines)}"
    )


def _timings(timings: Sequence[Timing], figures: Figures) -> str:
    """Estimates and updates, in the subspace and dense."""
    if not timings:
        return ""
    draw_timings(timings, figures.folder / TIMINGS_FIGURE)
    estimates = [
        [
            one.model,
            f"{one.parameters:,}",
            *(f"{seconds:.4g}" for seconds in (one.forwards_seconds, one.estimate_seconds, one.dense_estimate_seconds)),
            *(f"{applied.subspace_seconds:.3g} / {applied.dense_seconds:.3g}" for applied in one.updates),
        ]
        for one in timings
    ]
    counts = [f"{applied.count:,} updates" for applied in timings[0].updates]
    names = ["model", "parameters", "two forwards", "estimate", "dense estimate", *counts]
    commits = ", ".join(sorted({one.commit for one in timings}))
    return (
        f"\n## Estimates and updates\n\n{figures.show('Applying updates', TIMINGS_FIGURE)}"
        f"Seconds of one core: of an estimate on {timings[0].batch_size} rows, and of applying updates in the subspace "
        f"/ with dense directions (MeZO), by the code of {commits}. More than {DENSE_MAX} dense updates are computed "
        f"from {DENSE_MAX}.\n\n{_table(names, estimates)}"
    )


def _study(study: Study, results: Results, figures: Figures) -> str:
    cells = study.cells(chosen(study, results))
    commits = sorted({results[cell].commit for cell in cells if cell in results})
    plan, done = study.plan, sum(cell in results for cell in cells)
    steps = " and ".join(f"{count:,} {order}-order" for order, count in plan.steps.items())
    rows, seeds = plan.rows, ", ".join(map(str, plan.seeds))
    text = (
        f"\n## {study.name}\n\n"
        f"{plan.clients} clients on a {plan.topology}, which begin with {BEGINS[plan.initial]}. {steps} steps of "
        f"{plan.batch_size} rows each, parameters exchanged every {plan.local_steps} steps. {rows.train:,} training "
        f"rows, {rows.validation:,} to choose options by, {rows.test:,} test rows at most. Seeds {seeds}. {done} of "
        f"{len(cells)} cells are measured, by the code of {', '.join(commits) or 'no commit'}.\n"
    )
    text += f"\n### Options\n\n{_options(study, results)}"
    for number, part in enumerate(plan.parts):
        found = rows_of(study, part, results)
        if found and (len(part.changes) == 1 or any(row.setting != BASE for row in found)):
            name = f"{Path(study.model).name}-{study.task}-{plan.name}-{study.rows[:8]}-{number}.svg"
            text += _part(part, found, figures, name)
    return text + _times(rows_of(study, plan.parts[0], results))


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


def _part(part: Part, rows: Sequence[Row], figures: Figures, name: str) -> str:
    test = rows[0].results[0].test or {}
    merit = "accuracy" if "accuracy" in test else "loss"
    draw(part.title, rows, merit, figures.folder / name)
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
    return f"\n### {part.title}\n\n{figures.show(part.title, name)}{table}"


def _times(rows: Sequence[Row]) -> str:
    """Seconds until a validation loss is reached, on links of some kinds."""
    loss = halfway(rows)
    if loss is None:
        return ""
    names = ["method", *(links.name for links in LINKS)]
    lines = [[row.method, *(_show(row.seconds_to(loss, links), "{:,.1f}") for links in LINKS)] for row in rows]
    return (
        f"\n### Seconds to a validation loss of {loss:.4f}\n\nHalfway from the base model to the best method here. "
        "Computed from what was measured: computing, each message's delay, and bytes at full bandwidth. Nobody waits "
        "for more than its method asks for. It is read off the points of the courses, so it is a little late for all."
        f"\n\n{_table(names, lines)}"
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
