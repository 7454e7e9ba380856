"""A cluster on this machine: real daemons as processes on loopback, watched through their logs, as operators do."""

import asyncio
import json
import os
import re
import shutil
import signal
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from seedflood.cluster.ports import free_ports
from seedflood.cluster.processes import STDOUT_FILE, NodeProcess, start_nodes
from seedflood.cluster.topology import TopologyName, make_topology
from seedflood.config import PREVIOUS, RunSettings, check_course, detach, load_course, merge, spell
from seedflood.errors import ConfigError, ExitCode, SeedfloodError

PLAIN_SECONDS = 5.0
"""Between two progress lines if there is no terminal."""

STOP_SECONDS = 15.0

EXACT_MODE = "seedflood"
"""Its replicas end with one digest."""

THEN_FILE = "then.toml"

EVALUATIONS = 8
"""How often the second run is evaluated on the way."""

FIGURES_SHOWN = 2
"""How many figures the last table shows, the most telling ones; it must fit into a terminal."""

RECOVERED = "the loss is near its best again"
"""What a node logs when it no longer unlearns."""


class StoppedError(SeedfloodError):
    """The operator ended the cluster before its run was over."""

    exit_code = ExitCode.TRY_AGAIN


@dataclass(frozen=True, slots=True)
class ClusterPlan:
    """What to run. overrides: settings by section, for every node. train_examples: None for all. then: settings of a
    second run, by section, with absolute paths; its model may be "previous", the result of the first."""

    nodes: int
    topology: TopologyName
    model: str
    task: str
    data: str | None
    steps: int
    train_examples: int | None
    seed: int
    evaluate_every: int
    export: Path | None = None
    overrides: dict[str, Any] = field(default_factory=dict)
    then: dict[str, Any] | None = None


@dataclass(slots=True)
class _Host:
    """A node, as its log describes it. steps_of_runs: of each run of the course. run: the position of the present one,
    from 0."""

    name: str
    folder: Path
    steps_of_runs: tuple[int, ...]
    run: int = 0
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
    results: list[dict[str, Any]] = field(default_factory=list)
    """The results of the runs that have ended."""

    evaluations: list[dict[str, float]] = field(default_factory=list)
    """Evaluations of all runs: `run` and `step`, and figures by name."""

    @property
    def steps(self) -> int:
        """Of the present run."""
        return self.steps_of_runs[self.run]

    def evaluated(self, facts: dict[str, Any]) -> None:
        self.figures = {key: value for key, value in facts.items() if isinstance(value, float)}
        self.evaluations.append({"run": self.run, "step": facts["step"], **self.figures})

    def progressed(self, facts: dict[str, Any]) -> None:
        self.phase, self.shown = "training", _shown_of(facts)
        self.step, self.loss, self.peers = facts["step"], facts["loss"], facts["peers"]
        self.seconds, self.sent_bytes = facts["spent_seconds"], facts["sent_bytes"]

    def went_on(self) -> None:
        """The next run begins."""
        self.run, self.step, self.loss, self.figures, self.shown = self.run + 1, 0, None, {}, {}
        self.seconds, self.sent_bytes = 0.0, 0


def run_cluster(plan: ClusterPlan, folder: Path | None = None) -> dict[str, Any]:
    """Runs the plan to its end. Returns the result as `seedflood local --json` prints it: that of the last run, and
    as `earlier` those of the runs before it.

    folder: it is kept, with peers.toml, log and state of every node. None: a temporary one, kept only if a node fails,
    and not because of its settings before it trains. Raises SeedfloodError with the exit code of the first node that
    failed.
    """
    home = _make_home(folder)
    hosts: list[_Host] = []
    try:
        hosts = _write_settings(plan, home)
        result = asyncio.run(_Cluster(plan, hosts).run())
    except ConfigError as error:
        if any(host.has_trained for host in hosts):
            raise type(error)(f"{error} What the nodes have learned is kept in {home}.") from None
        if folder is not None:
            raise
        shutil.rmtree(home, ignore_errors=True)  # its logs say no more than the sentence
        raise type(error)(re.sub(rf"{re.escape(str(home))}/(node-1/peers.toml: )?", "", str(error))) from None
    if folder is None and is_sound(result):
        shutil.rmtree(home, ignore_errors=True)
    return result | {"folder": str(home)}


def _make_home(folder: Path | None) -> Path:
    """The folder of a cluster, which is new or empty. Raises ConfigError."""
    if folder is None:
        return Path(tempfile.mkdtemp(prefix="seedflood-"))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        is_used = any(folder.iterdir())
    except OSError as error:
        raise ConfigError(f"{folder} cannot be used as --folder: {error.strerror}; name another one.") from None
    if is_used:
        raise ConfigError(f"{folder} is not empty; name a new folder, so that no earlier run is mixed in.")
    return folder


def show_result(result: dict[str, Any], console: Console) -> None:
    """The end of every run as a table for people, at most 80 columns wide."""
    earlier = result.get("earlier", ())
    last = result | {"seconds": max(node["spent_seconds"] for node in result["nodes"])} if earlier else result
    for one in (*earlier, last):
        _show_run(one, f"{one['name']} ({one['run_id'][:16]})" if earlier else one["run_id"][:16], console)
    for sample in result.get("samples", ()):
        for name in ("prompt", "wanted", "before", "after"):
            console.print(f"{name:>7}: {sample.get(name, '-').strip()}", markup=False, highlight=False)
        console.print()
    for name, words in result.get("errors", {}).items():
        console.print(f"{name} said: {words}", style="red", markup=False, highlight=False)


def _show_run(result: dict[str, Any], name: str, console: Console) -> None:
    steps = "/".join(map(str, sorted({node["steps"] for node in result["nodes"]})))
    title = f"run {name}: {steps} steps, {result['seconds']:.1f} s"
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
            node["digest"][:8],
            links,
        )
    console.print(table)
    if result["digests_equal"]:
        console.print("[green]All replicas are equal: one digest.[/]")
    elif is_sound(result):
        apart = max(node.get("consensus_distance", 0.0) for node in result["nodes"])
        console.print(f"The replicas differ, as they may: by {apart:.1%} of their size at the last exchange.")
    else:
        console.print("[red]The digests differ.[/]")
    if result.get("tokens_per_second"):
        speed, price = result["tokens_per_second"], result["bytes_per_token"]
        console.print(f"All together took {speed:,.0f} tokens per second, and sent {price:,.1f} bytes for each.")


def is_sound(result: dict[str, Any]) -> bool:
    """Are all digests equal, if the algorithm promises that?"""
    runs = (result, *result.get("earlier", ()))
    return all(one["digests_equal"] or one.get("mode", EXACT_MODE) != EXACT_MODE for one in runs)


def _arrow(before: float | None, after: float | None) -> str:
    return "-" if before is None or after is None else f"{_short(before)} → {_short(after)}"


def _short(value: float) -> str:
    """A figure in few characters: the perplexity of a run that went wrong has up to 305 digits."""
    return f"{value:.3f}" if abs(value) < 100 else f"{value:.0f}" if abs(value) < 1e6 else f"{value:.0e}"


def _write_settings(plan: ClusterPlan, home: Path) -> list[_Host]:
    """Writes one folder with a peers.toml per node. All are checked before anything is started."""
    names = [f"node-{k + 1}" for k in range(plan.nodes)]
    ports = free_ports(plan.nodes)
    edges = make_topology(plan.topology, plan.nodes, seed=plan.seed)
    hosts = []
    for k, name in enumerate(names):
        folder = home / name
        folder.mkdir(parents=True, exist_ok=True)
        usual = {"run": _run_section(plan), "node": _node_section(plan, k, name, ports[k])}
        sections = merge(usual, detach(merge(_told(plan, k), plan.overrides), Path()))
        neighbours = sorted(b if a == k else a for a, b in edges if k in (a, b))
        text = spell(sections)
        text += "".join(f'[[peers]]\naddress = "127.0.0.1:{ports[j]}"\n\n' for j in neighbours)
        (folder / "peers.toml").write_text(text)
        if plan.then is not None:
            (folder / THEN_FILE).write_text(spell(_then_sections(plan, k)))
        course = load_course(folder / "peers.toml")
        check_course(course)
        hosts.append(_Host(name, folder, tuple(stage.settings.run.steps for stage in course)))
    return hosts


def _told(plan: ClusterPlan, k: int) -> dict[str, Any]:
    """What the operator has told of models and rows: paths begin at the working directory."""
    node: dict[str, Any] = {} if plan.data is None else {"data": plan.data}
    if plan.export is not None and plan.then is None and k == 0:
        node["export"] = str(plan.export)
    return {"run": {"model": plan.model}, "node": node}


def _run_section(plan: ClusterPlan) -> dict[str, Any]:
    return {
        "name": "local",
        "seed": plan.seed,
        "clients": plan.nodes,
        "steps": plan.steps,
        "objective": {"task": plan.task},
    } | ({} if plan.train_examples is None else {"train_examples": plan.train_examples})


def _node_section(plan: ClusterPlan, k: int, name: str, port: int) -> dict[str, Any]:
    return {
        "name": name,
        "listen": f"127.0.0.1:{port}",
        "state": "state",
        "shard": f"{k + 1}/{plan.nodes}",
        "threads": max(1, (os.cpu_count() or 1) // plan.nodes),
        "progress_seconds": 0.5,
        "evaluate_every": plan.evaluate_every if k == 0 else 0,
    } | ({"then": THEN_FILE} if plan.then is not None else {})


def _then_sections(plan: ClusterPlan, k: int) -> dict[str, Any]:
    """Settings of the second run. Those that it does not have are as in the first run."""
    assert plan.then is not None, "nothing follows"
    usual = {"run": {"name": "then", "model": PREVIOUS, "seed": plan.seed, "clients": plan.nodes}}
    sections = merge(usual, plan.then)
    steps = sections["run"].get("steps", RunSettings.model_fields["steps"].default)
    node: dict[str, Any] = {"evaluate_every": max(1, steps // EVALUATIONS) if k == 0 else 0}
    if plan.export is not None and k == 0:
        node["export"] = str(plan.export.resolve())
    return merge({"run": {}, "node": node}, sections)


class _Cluster:
    """The processes of a plan, started together and ended together."""

    def __init__(self, plan: ClusterPlan, hosts: list[_Host]) -> None:
        self.plan = plan
        self.hosts = hosts
        self._console = Console(stderr=True)
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=self._console,
        )
        self._task = self._bar.add_task("importing PyTorch", total=plan.steps)
        self._began = time.monotonic()
        self._signals = 0
        self._processes: list[NodeProcess] = []

    async def run(self) -> dict[str, Any]:
        loop = asyncio.get_running_loop()
        main = asyncio.current_task()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._interrupt, main)
        self._processes, following = await start_nodes([host.folder for host in self.hosts])
        pairs = zip(self.hosts, self._processes, strict=True)
        watching = [asyncio.create_task(self._watch(host, process)) for host, process in pairs]
        showing = asyncio.create_task(self._show())
        try:
            await asyncio.gather(*watching)
        except asyncio.CancelledError:
            raise StoppedError(
                f"stopped before the end; logs and state are in {self.hosts[0].folder.parent}."
            ) from None
        finally:
            await self._stop()
            showing.cancel()
            await asyncio.gather(*watching, showing, following, return_exceptions=True)
        return self._result()

    def _interrupt(self, main: "asyncio.Task[Any] | None") -> None:
        """The first signal ends all hosts gently, any later one at once."""
        self._signals += 1
        if self._signals == 1 and main is not None:
            main.cancel()
        for process in self._processes if self._signals > 1 else ():
            process.send(signal.SIGKILL)

    async def _watch(self, host: _Host, process: NodeProcess) -> None:
        """One node from start to exit. Raises SeedfloodError if it fails."""
        await self._read_log(host, process.log)
        code = await asyncio.shield(process.ended)
        if code != 0:
            why = host.last_words or _how_it_ended(code)
            if code == ExitCode.CONFIG:
                raise ConfigError(why)
            error = SeedfloodError(f"{host.name} failed: {why} (log: {host.folder}/log.jsonl)")
            error.exit_code = ExitCode(code) if code in set(ExitCode) else ExitCode.INTERNAL
            raise error
        results = (host.folder / STDOUT_FILE).read_text()
        host.results = [json.loads(line) for line in results.splitlines() if line.strip()]
        if host.results:
            host.phase = "done"

    async def _read_log(self, host: _Host, stream: asyncio.StreamReader) -> None:
        with (host.folder / "log.jsonl").open("ab") as log:
            async for line in stream:
                log.write(line)
                log.flush()
                try:
                    facts = json.loads(line)
                except ValueError:
                    facts = {"event": line.decode(errors="replace").strip(), "level": "critical"}
                if isinstance(facts, dict):
                    self._learn(host, facts)

    def _learn(self, host: _Host, facts: dict[str, Any]) -> None:
        event = facts.get("event", "")
        host.last_words = _complaint(str(event), facts.get("level"), host.last_words)
        match event:
            case "loading" | "draining" | "waiting" | "finished":
                host.phase = event
            case "rows read" if host is self.hosts[0]:
                self._console.print(understood(facts), highlight=False, markup=False, soft_wrap=True)
            case "goes on to the next run":
                host.went_on()
            case "started":
                host.phase = "evaluating"
            case "ready":
                host.phase, host.has_trained = "training", True
            case "progress":
                host.progressed(facts)
            case "evaluated":
                if facts["step"] > 0 or host is self.hosts[0]:  # on the way only the first one evaluates
                    host.evaluated(facts)
            case "copy under way":
                host.phase = f"copying, {facts['held'] / max(facts['wanted'], 1):.0%}"

    async def _show(self) -> None:
        """A live table on a terminal, a line every few seconds elsewhere."""
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
        more = list(dict.fromkeys(column for host in self.hosts for column in host.shown))
        for column in ("node", "state", "step", "seconds", "kB sent", "loss", name, *more, "links"):
            table.add_column(column, justify="left" if column in ("node", "state") else "right")
        for host in self.hosts:
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
        losses = [host.loss for host in self.hosts if host.loss is not None]
        name = self._figure_name()
        text = f"{time.monotonic() - self._began:6.1f} s  {self._phase():17s} step {last.step}/{last.steps}"
        if losses:
            sent = sum(host.sent_bytes for host in self.hosts) / len(self.hosts)
            text += f"  loss {sum(losses) / len(losses):.3f} after {sent / 1e3:.1f} kB sent by each"
        if name is not None:
            first = self.hosts[0]
            text += f"  held-out {name} {_short(first.figures[name])} (step {first.evaluations[-1]['step']})"
        return text

    def _last(self) -> _Host:
        """The host that is furthest behind."""
        return min(self.hosts, key=lambda host: (host.run, host.step))

    def _figure_name(self) -> str | None:
        """The most telling figure of the evaluations; None before the first one."""
        return next(iter(self.hosts[0].figures), None)

    def _phase(self) -> str:
        phases = [host.phase for host in self.hosts]
        order = ("importing PyTorch", "loading", "evaluating", "waiting", "training", "draining", "finished", "done")
        phase = min(phases, key=lambda phase: order.index(phase) if phase in order else 0)
        return f"run {self._last().run + 1}: {phase}" if self.plan.then is not None else phase

    async def _stop(self) -> None:
        """Ends the processes that still run: first gently, then by force."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            for process in self._processes:
                process.send(number)
            await asyncio.wait([process.ended for process in self._processes], timeout=STOP_SECONDS)

    def _result(self) -> dict[str, Any]:
        runs = 1 if self.plan.then is None else 2
        if any(len(host.results) < runs for host in self.hosts):
            raise SeedfloodError("a node ended without a result; see the logs.")
        curves = [[point for point in self.hosts[0].evaluations if point["run"] == k] for k in range(runs)]
        *earlier, last = (_describe_run([host.results[k] for host in self.hosts], curves[k]) for k in range(runs))
        errors = {host.name: host.last_words for host in self.hosts if host.last_words}
        return last | {"seconds": round(time.monotonic() - self._began, 3), "earlier": earlier, "errors": errors}


def understood(facts: dict[str, Any]) -> str:
    """What a node has understood of its rows, and a row with what is learned of it."""
    how = "held out" if facts["held_out"] else "a split of its own"
    copies = f"; {facts['copies']:,} copies of these left out" if facts["copies"] else ""
    *columns, last = facts["columns"]
    roles = f"{', '.join(columns)} → {last}" if columns else last
    unused = f", not {', '.join(facts['unused'])}" if facts["unused"] else ""
    rows = f"{facts['rows']:,} rows to train"
    if facts["rows_found"] > facts["rows"]:
        rows = f"{facts['rows']:,} of {facts['rows_found']:,} rows to train (--set run.train_examples=N for more)"
    cut = f"; {facts['cut']:,} of {facts['looked_at']:,} cut, raise run.objective.max_length" if facts["cut"] else ""
    return (
        f"task {facts['task']}: {rows}, "
        f"{facts['validation_rows']:,} to evaluate ({how}{copies}); columns {roles}{unused}; "
        f"{facts['tokens_per_row']:g} tokens a row{cut}\n"
        f"learned: {facts['sample']}"
    )


def _complaint(event: str, level: Any, before: str) -> str:
    """What is still to be told of a node at the end, after an event: its last fault, unless that has passed."""
    if level in ("critical", "error"):
        return event
    return "" if event == RECOVERED else before


def _describe_run(results: list[dict[str, Any]], evaluations: list[dict[str, float]]) -> dict[str, Any]:
    """One run of all nodes as a result. evaluations: of the first node."""
    figures = [key for key in results[0] if key.endswith(("_before", "_after"))]
    keys = ("name", "steps", "spent_seconds", *figures, "digest", "consensus_distance", "tokens", "links")
    run: dict[str, Any] = {
        "run_id": results[0]["run_id"],
        "name": results[0]["run"],
        "mode": results[0]["mode"],
        "seconds": max(result["spent_seconds"] for result in results),
        "digests_equal": len({result["digest"] for result in results}) == 1,
        "evaluations": evaluations,
        "samples": results[0].get("samples", []),
        "nodes": [{key: result[key] for key in keys if key in result} for result in results],
    }
    tokens = sum(result.get("tokens", 0) for result in results)
    if tokens:
        sent = sum(result["parameter_bytes_sent"] for result in results)
        run |= {"tokens_per_second": round(tokens / run["seconds"], 1), "bytes_per_token": round(sent / tokens, 3)}
    return run


def _shown_of(progress: dict[str, Any]) -> dict[str, str]:
    """Other values of an algorithm's progress, by column."""
    shown = {}
    if "tokens_per_second" in progress:
        shown["tokens/s"] = f"{progress['tokens_per_second']:,.0f}"
    if "distance" in progress:
        shown["apart"] = f"{progress['distance']:.2%}"
    return shown


def _how_it_ended(code: int) -> str:
    """For a node that said nothing of its end."""
    if code >= 0:
        return f"it ended with exit code {code}"
    return f"it was ended by {signal.Signals(-code).name}" + (
        " (by hand, or for lack of memory)" if code == -signal.SIGKILL else ""
    )
