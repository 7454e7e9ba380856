"""How a local cluster is shown: its nodes while they run, as their logs describe them, and what came of it."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from seedflood.terminal import visible

PLAIN_SECONDS = 5.0
"""Between two progress lines if there is no terminal."""

EXACT_MODE = "seedflood"
"""Its replicas end with one digest."""

FIGURES_SHOWN = 2
"""How many figures the last table shows, the most telling ones; it must fit into a terminal."""

SAMPLE_CHARACTERS_MAX = 800
"""Of a prompt, or of what a model wrote."""

UNKNOWN_MAX = 0.2
"""A larger part of the tokens that the model does not know is shown."""

RECOVERED = "the loss is near its best again"
"""What a node logs when it no longer unlearns."""


@dataclass(slots=True)
class LoggedNode:
    """A node, as its log describes it. steps: of its run."""

    name: str
    folder: Path
    steps: int
    is_first: bool
    phase: str = "importing PyTorch"
    has_trained: bool = False
    step: int = 0
    loss: float | None = None
    peers: int = 0
    seconds: float = 0.0
    sent_bytes: int = 0
    figures: dict[str, float] = field(default_factory=dict)
    shown: dict[str, str] = field(default_factory=dict)
    """Other values of its algorithm's progress, by column."""
    last_words: str = ""
    """Its last fault, unless that has passed: to be shown at the end."""
    has_failed: bool = False
    """Was it the one by which it ended? Nothing counts that comes after it."""
    result: dict[str, Any] | None = None
    """Of the run, when it has ended."""

    evaluations: list[dict[str, float]] = field(default_factory=list)
    """`step`, and figures by name."""

    def learn(self, facts: dict[str, Any]) -> None:
        """facts: of a line of its log."""
        event = facts.get("event", "")
        level = facts.get("level")
        if level == "critical" or (level == "error" and not self.has_failed):
            self.last_words, self.has_failed = str(event), level == "critical"
        elif event == RECOVERED:
            self.last_words = ""
        match event:
            case "loading" | "draining" | "waiting" | "finished":
                self.phase = event
            case "started":
                self.phase = "evaluating"
            case "ready":
                self.phase, self.has_trained = "training", True
            case "progress":
                self.phase, self.shown = "training", _shown_of(facts)
                self.step, self.loss, self.peers = facts["step"], facts.get("loss"), facts["peers"]  # a relay: no loss
                self.seconds, self.sent_bytes = facts.get("spent_seconds", 0.0), facts.get("sent_bytes", 0)
            case "evaluated" if self.is_first or facts["step"]:  # on the way only the first one evaluates
                self.figures = {key: value for key, value in facts.items() if isinstance(value, float)}
                self.evaluations.append({"step": facts["step"], **self.figures})
            case "copy under way":
                self.phase = f"copying, {facts['held'] / max(facts['wanted'], 1):.0%}"


class Picture:
    """What is shown while the nodes run: a live table on a terminal, a line every few seconds elsewhere."""

    def __init__(self, hosts: Sequence[LoggedNode], console: Console) -> None:
        self._hosts = hosts
        self._console = console
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=console,
        )
        self._task = self._bar.add_task("importing PyTorch")
        self._began = time.monotonic()

    async def show(self) -> None:
        """Until it is cancelled."""
        if self._console.is_terminal:
            with Live(self._picture(), console=self._console, refresh_per_second=4) as live:
                try:
                    while True:
                        live.update(self._picture())
                        await asyncio.sleep(0.25)
                finally:
                    live.update(self._picture())
        while True:
            self._console.print(self._line(), highlight=False, soft_wrap=True)
            await asyncio.sleep(PLAIN_SECONDS)

    def _picture(self) -> Group:
        table = Table(box=None)
        name = self._figure_name() or ""
        more = list(dict.fromkeys(column for host in self._hosts for column in host.shown))
        for column in ("node", "state", "step", "seconds", "kB sent", "loss", name, *more, "links"):
            table.add_column(column, justify="left" if column in ("node", "state") else "right")
        for host in self._hosts:
            table.add_row(
                host.name,
                host.phase,
                str(host.step),
                f"{host.seconds:.1f}",
                f"{host.sent_bytes / 1e3:.1f}",
                "-" if host.loss is None else f"{host.loss:.3f}",
                _short(host.figures[name]) if name in host.figures else "-" if name else "",
                *(host.shown.get(column, "-") for column in more),
                str(host.peers),
            )
        last = self._last()
        self._bar.update(self._task, completed=last.step, total=last.steps, description=self._phase())
        return Group(table, self._bar)

    def _line(self) -> str:
        last = self._last()
        losses = [host.loss for host in self._hosts if host.loss is not None]
        name = self._figure_name()
        text = f"{time.monotonic() - self._began:6.1f} s  {self._phase():17s} step {last.step}/{last.steps}"
        if losses:
            sent = sum(host.sent_bytes for host in self._hosts) / len(self._hosts)
            text += f"  loss {sum(losses) / len(losses):.3f} after {sent / 1e3:.1f} kB sent by each"
        if name is not None:
            first = self._hosts[0]
            text += f"  held-out {name} {_short(first.figures[name])} (step {first.evaluations[-1]['step']})"
        return text

    def _last(self) -> LoggedNode:
        """The host that is furthest behind."""
        return min(self._hosts, key=lambda host: host.step)

    def _figure_name(self) -> str | None:
        """The most telling figure of the evaluations; None before the first one."""
        return next(iter(self._hosts[0].figures), None)

    def _phase(self) -> str:
        phases = [host.phase for host in self._hosts]
        order = ("importing PyTorch", "loading", "evaluating", "waiting", "training", "draining", "finished", "done")
        return min(phases, key=lambda phase: order.index(phase) if phase in order else 0)


def show_result(result: dict[str, Any], console: Console) -> None:
    """The end of a run as a table for people, at most 80 columns wide."""
    _show_run(result, console)
    for sample in result.get("samples", ()):
        for name in ("prompt", "wanted", "before", "after"):
            console.print(Text(visible(f"{name:>7}: {_shortened(sample.get(name, '-').strip())}")))
        console.print()
    for name, words in result.get("errors", {}).items():
        console.print(Text(visible(f"{name} said: {words}"), "red"))


def _shortened(text: str) -> str:
    half = SAMPLE_CHARACTERS_MAX // 2
    return text if len(text) <= SAMPLE_CHARACTERS_MAX else f"{text[:half]} … {text[-half:]}"


def _show_run(result: dict[str, Any], console: Console) -> None:
    steps = "/".join(map(str, sorted({node["steps"] for node in result["nodes"]})))
    title = f"run {result['run_id'][:16]}: {steps} steps, {result['seconds']:.1f} s"
    table = Table(title=title, title_justify="left", box=None, padding=(0, 2, 0, 0))
    names = [key.removesuffix("_before") for key in result["nodes"][0] if key.endswith("_before")][:FIGURES_SHOWN]
    for column in ("node", "seconds", *names, "digest", "kB sent / received"):
        table.add_column(column, justify="left" if column in ("node", "digest") else "right", no_wrap=True)
    for node in result["nodes"]:
        links = "\n".join(
            f"{link['peer']}: {link['bytes_sent'] / 1e3:.1f} / {link['bytes_received'] / 1e3:.1f}"
            for link in node["links"]
        )
        table.add_row(
            node["name"],
            f"{node['spent_seconds']:.1f}",
            *(_arrow(node[f"{name}_before"], node[f"{name}_after"]) for name in names),
            node.get("digest", "-")[:8],
            links,
        )
    console.print(table)
    if texts := (counts := result["nodes"][0].get("evaluated", {})).get("texts"):
        console.print(f"The reward is the mean of {texts:,} texts after {counts['rows']:,} rows for validation.")
    if halvings := (first := result["nodes"][0]).get("rate_halvings"):
        steps = ", ".join(map(str, first["control_steps"]))  # none if a node was started again since
        at = f" (steps {steps})" if steps else ""
        console.print(f"The learning rate was too high: it was halved until it was 1/{2**halvings}{at}.")
    if result["digests_equal"]:
        console.print("[green]All replicas are equal: one digest.[/]")
    elif not is_sound(result):
        console.print("[red]The digests differ.[/]")
    elif any("consensus_distance" in node for node in result["nodes"]):
        apart = max(node.get("consensus_distance", 0.0) for node in result["nodes"])
        console.print(f"The replicas differ, as they may: by {apart:.1%} of their size at the last exchange.")
    if result.get("tokens_per_second"):
        speed, price = result["tokens_per_second"], result["bytes_per_token"]
        console.print(f"All together took {speed:,.0f} tokens per second, and sent {price:,.1f} bytes for each.")


def is_sound(result: dict[str, Any]) -> bool:
    """Are all digests equal, if the algorithm promises that?"""
    return bool(result["digests_equal"]) or result.get("mode", EXACT_MODE) != EXACT_MODE


def understood(facts: dict[str, Any]) -> str:
    """What a node has understood of its rows, and a row with what is learned of it."""
    how = "held out" if facts["held_out"] else "a split of its own"
    copies = f"; copies of these left out: {facts['copies']:,}" if facts["copies"] else ""
    *columns, last = facts["columns"]
    roles = f"{', '.join(columns)} → {last}" if columns else last
    unused = f", not {', '.join(facts['unused'])}" if facts["unused"] else ""
    rows = f"{facts['rows']:,} {'row' if facts['rows'] == 1 else 'rows'} to train"
    if facts["rows_found"] > facts["rows"]:
        rows = f"{facts['rows']:,} of {facts['rows_found']:,} rows to train (--set run.train_examples=N for more)"
    cut = f"; {facts['cut']:,} of {facts['looked_at']:,} cut" if facts["cut"] else ""
    cut += ", raise run.objective.max_length if the model has more positions" if cut else ""
    remarks = "".join(f"; {remark}" for remark in facts["remarks"])
    unknown = f", {facts['unknown']:.0%} unknown to this model" if facts["unknown"] > UNKNOWN_MAX else ""
    unknown += ": take one that knows such words (--model)" if unknown else ""
    return visible(
        f"task {facts['task']}: {rows}, "
        f"{facts['validation_rows']:,} to evaluate ({how}{copies}); columns {roles}{unused}; "
        f"{facts['tokens_per_row']:g} tokens a row{unknown}{cut}{remarks}\n"
        f"learned: {facts['sample']}"
    )


def _arrow(before: float | None, after: float | None) -> str:
    return "-" if before is None or after is None else f"{_short(before)} → {_short(after)}"


def _short(value: float) -> str:
    """A figure in few characters: the perplexity of a run that went wrong has up to 305 digits."""
    return f"{value:.3f}" if abs(value) < 100 else f"{value:.0f}" if abs(value) < 1e6 else f"{value:.0e}"


def _shown_of(progress: dict[str, Any]) -> dict[str, str]:
    """Other values of an algorithm's progress, by column."""
    shown = {}
    if "tokens_per_second" in progress:
        shown["tokens/s"] = f"{progress['tokens_per_second']:,.0f}"
    if "distance" in progress:
        shown["apart"] = f"{progress['distance']:.2%}"
    return shown
