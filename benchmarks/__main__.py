"""`python -m benchmarks [NAME] [--json] [--keep]`."""

import json
from collections.abc import Callable, Collection, Mapping
from functools import partial
from pathlib import Path
from typing import Annotated

import torch
import typer
from rich.console import Console
from rich.table import Table

from benchmarks import (
    ahead,
    apply,
    audits,
    byzantine,
    byzantine_gossip,
    dtype,
    exchange,
    flood,
    forger,
    gpu,
    gradient,
    join,
    kernels,
    large,
    late,
    latency,
    learn,
    long_runs,
    memory,
    opening,
    overlap,
    own,
    preferences,
    pretrain,
    quantised,
    ranks,
    rates,
    reward,
    scale,
    scripts,
    server,
    soak,
    steady,
    step,
    unlearning,
    weeks,
    wire,
)
from benchmarks.measure import Metric, report
from benchmarks.standing import keep

BENCHMARKS: Mapping[str, Callable[[], dict[str, Metric]]] = {
    "step": step.run,
    "apply": apply.run,
    "memory": memory.run,
    "gradient": gradient.run,
    "kernels": kernels.run,
    "dtype": dtype.run,
    "flood": flood.run,
    "wire": wire.run,
    "latency": latency.run,
    "scale": scale.run,
    "server": server.run,
    "scripts": scripts.run,
}
LONG = (
    "ahead",
    "audits",
    "byzantine",
    "byzantine-gossip",
    "exchange",
    "forger",
    "gpu",
    "join",
    "large",
    "late",
    "learn",
    "long-runs",
    "opening",
    "overlap",
    "own",
    "preferences",
    "pretrain",
    "quantised",
    "ranks",
    "rates",
    "reward",
    "soak",
    "steady",
    "unlearning",
    "weeks",
)
"""Only by name: they take minutes and hours."""
PARTS: Mapping[str, Collection[str]] = {
    "byzantine-gossip": byzantine_gossip.PARTS,
    "large": large.PARTS,
    "learn": learn.PARTS,
    "long-runs": long_runs.ESTIMATES,
    "preferences": preferences.PARTS,
    "pretrain": pretrain.PARTS,
    "rates": rates.PARTS,
    "reward": reward.PARTS,
    "unlearning": unlearning.ESTIMATES,
}
PROFILES: Mapping[str, Callable[[], None]] = {"step": step.print_profile, "flood": flood.print_profiles}


def main(
    name: Annotated[
        str | None, typer.Argument(help=f"{', '.join((*BENCHMARKS, *LONG))}; without it, the short ones.")
    ] = None,
    threads: Annotated[int | None, typer.Option(help="CPU threads of torch.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per benchmark.")] = False,
    keeps: Annotated[
        bool, typer.Option("--keep", help="Write figures that have a target into the table of RESULTS.md.")
    ] = False,
    hours: Annotated[float, typer.Option(min=0.02, help="soak: of wall clock, for real nodes.")] = 1.0,
    simulated_hours: Annotated[float | None, typer.Option(help="soak: of virtual time, instead of real nodes.")] = None,
    clients_max: Annotated[
        int, typer.Option(min=64, help="scale, steady: of the largest run; 1024 takes many minutes.")
    ] = scale.CLIENTS_MAX,
    profile: Annotated[
        bool, typer.Option(help="step, flood: what the time is spent on, instead of the metrics.")
    ] = False,
    part: Annotated[
        list[str] | None,
        typer.Option(help="; ".join(f"{name}: {', '.join(parts)}" for name, parts in PARTS.items()) + "; repeatable."),
    ] = None,
    folder: Annotated[
        Path | None,
        typer.Option(
            help="soak: a new folder for samples.csv, logs and state. rates, reward, preferences: of courses, to go "
            "on. large: of make real."
        ),
    ] = None,
) -> None:
    """Runs benchmarks and prints their metrics: medians over repetitions, with spread and target."""
    known: dict[str, Callable[[], dict[str, Metric]]] = {
        **BENCHMARKS,
        "ahead": ahead.run,
        "audits": audits.run,
        "byzantine": byzantine.run,
        "byzantine-gossip": partial(byzantine_gossip.run, part or ()),
        "exchange": exchange.run,
        "forger": forger.run,
        "gpu": gpu.run,
        "join": join.run,
        "large": partial(large.run, part or (), folder),
        "late": late.run,
        "learn": partial(learn.run, part or ()),
        "long-runs": partial(long_runs.run, part or ()),
        "opening": opening.run,
        "overlap": overlap.run,
        "own": own.run,
        "preferences": partial(preferences.run, part or (), folder),
        "pretrain": partial(pretrain.run, part or ()),
        "quantised": quantised.run,
        "ranks": ranks.run,
        "rates": partial(rates.run, part or (), folder),
        "reward": partial(reward.run, part or (), folder),
        "scale": partial(scale.run, clients_max),
        "soak": partial(soak.run, hours, simulated_hours, folder),
        "steady": partial(steady.run, clients_max),
        "unlearning": partial(unlearning.run, part or ()),
        "weeks": weeks.run,
    }
    if name is not None and name not in known:
        raise typer.BadParameter(f"there is no benchmark {name!r}; choose one of {', '.join(known)}")
    parts = PARTS.get(name or "", ())
    if unknown := set(part or ()) - set(parts):
        raise typer.BadParameter(f"{name} has no part {unknown.pop()!r}; parts: {', '.join(parts) or 'none'}")
    if profile:
        if name is None or name not in PROFILES:
            raise typer.BadParameter(f"there are profiles of {' and '.join(PROFILES)} only", param_hint="--profile")
        PROFILES[name]()
        return
    if threads is not None:
        torch.set_num_threads(threads)
    names = [name] if name is not None else list(BENCHMARKS)
    for chosen in names:
        metrics = known[chosen]()
        if keeps:
            keep(chosen, metrics)
        if as_json:
            typer.echo(json.dumps(report(chosen, metrics)))
            continue
        table = Table("metric", "median", "min", "max", "target", "met", title=chosen)
        for metric, value in metrics.items():
            met = "" if value.met is None else ("yes" if value.met else "no")
            table.add_row(metric, *(f"{x:g}" for x in (value.median, value.min, value.max)), f"{value.target}", met)
        Console().print(table)


if __name__ == "__main__":
    typer.run(main)
