"""`python -m simulation`: runs the real protocol under a virtual clock, with faults, and judges it from outside."""

import json
from collections.abc import Collection, Mapping
from typing import Annotated, Any

import typer

from seedflood.cli.epilogs import EXIT_CODES
from seedflood.cli.faults import run_command
from seedflood.cli.options import JsonOption, table_console
from seedflood.cluster.topology import TopologyName
from seedflood.errors import DivergenceError, UsageError
from seedflood.protocol.seedflood.rules import WindowRule
from simulation.gasloc.profiles import PROFILES as GASLOC_PROFILES
from simulation.runs import parse_seeds, show_sweep
from simulation.seedflood.profiles import PROFILES

SIMULATED: Mapping[str, Collection[str]] = {"seedflood": PROFILES, "gasloc": GASLOC_PROFILES}
"""What can be simulated, and which sets of faults there are."""

app = typer.Typer(add_completion=False, rich_markup_mode="markdown", pretty_exceptions_enable=False)


def _spell_faults() -> str:
    """Those of all modes, then those of one."""
    common = [name for name in PROFILES if name in GASLOC_PROFILES]
    own = [f"{mode}: {', '.join(name for name in found if name not in common)}" for mode, found in SIMULATED.items()]
    return "; ".join([", ".join(common), *own])


@app.command(epilog=EXIT_CODES)
def simulate(
    mode: Annotated[str, typer.Option(help=f"What hosts train by: {', '.join(SIMULATED)}.")] = "seedflood",
    clients: Annotated[int, typer.Option(min=1, max=4096, help="How many hosts.")] = 16,
    topology: Annotated[TopologyName, typer.Option(help="Who is linked with whom.")] = "ring",
    seed: Annotated[int, typer.Option(help="Everything that happens follows from it.")] = 1,
    seeds: Annotated[str | None, typer.Option(metavar="A..B", help="Many runs instead of one, on all cores.")] = None,
    faults: Annotated[str, typer.Option(help=f"What goes wrong: {_spell_faults()}.")] = "all",
    steps: Annotated[int, typer.Option(min=1, help="Length of the run.")] = 20,
    window: Annotated[WindowRule | None, typer.Option(help="When a step closes (seedflood; strict).")] = None,
    closed: Annotated[
        bool,
        typer.Option("--closed", help="Only hosts on a roster take part; it changes meanwhile, and strangers dial."),
    ] = False,
    relays: Annotated[int, typer.Option(min=0, help="How many hosts more that only relay (seedflood).")] = 0,
    participants: Annotated[
        int | None, typer.Option(min=1, help="About how many hosts measure a round (seedflood; all).")
    ] = None,
    reward: Annotated[bool, typer.Option("--reward", help="What is sent is as in runs by reward (seedflood).")] = False,
    as_json: JsonOption = False,
) -> None:
    """Runs the real protocol under a virtual clock, with faults, and judges it from outside.

    First chaos, judged for what must never happen; then healing, judged for what must happen at last. Exits with 70 if
    a promise was broken. The same seed gives exactly the same run.

    Example:

        python -m simulation --clients 64 --faults all --seeds 1..100

        python -m simulation --mode gasloc --clients 12 --steps 48 --faults crashes
    """
    facts = {"clients": clients, "topology": topology, "seed": seed, "steps": steps, "profile": faults}
    own = {"window": window, "relays": relays, "participants": participants, "reward": reward}
    runs, plan = _plan(mode, {name: value for name, value in own.items() if value}, closed=closed, **facts)
    if seeds is None:
        result = runs.simulate(plan)
        bad = [] if result.is_good else [result]
        if as_json:
            typer.echo(json.dumps(result.facts()))
        else:
            runs.show_result(result, table_console())
    else:
        chosen = parse_seeds(seeds)
        results = runs.sweep(plan, chosen)
        if as_json:
            bad = []
            for result in results:
                typer.echo(json.dumps(result.facts()))
                bad += [] if result.is_good else [result]
        else:
            bad = show_sweep(results, table_console(), count=len(chosen))
    if bad:
        raise DivergenceError(f"promises were broken; run again with --seed {bad[0].plan.seed} to see how.")


def _plan(mode: str, own: Mapping[str, Any], **facts: Any) -> tuple[Any, Any]:
    """How runs of this mode are simulated (its module `runs`), and what is to be. own: options of SeedFlood. Raises
    UsageError."""
    if mode not in SIMULATED:
        raise UsageError(f'unknown mode "{mode}"; choose one of {", ".join(SIMULATED)}.')
    if mode == "gasloc":
        if own:
            raise UsageError(f"--{next(iter(own))} is for --mode seedflood: gasloc has no such thing.")
        from simulation.gasloc import runs as gasloc_runs

        return gasloc_runs, gasloc_runs.Plan(**facts)
    from simulation.seedflood import runs

    more = {name: own[name] for name in ("window", "relays", "participants") if name in own}
    return runs, runs.Plan(update_kind="rewards" if own.get("reward") else None, **more, **facts)


def main() -> None:
    """`python -m simulation`."""
    run_command(app, "simulation")


if __name__ == "__main__":
    main()
