"""The commands, and how a fault of any of them is reported."""

import json
from pathlib import Path
from typing import Annotated, get_args

import typer

from seedflood import VERSION
from seedflood.cli.continuing import continue_run
from seedflood.cli.diagnosing import doctor
from seedflood.cli.epilogs import EXIT_CODES, add_command, example
from seedflood.cli.founding import init, invite, join, keygen
from seedflood.cli.learned import evaluate, export, generate, replay
from seedflood.cli.options import (
    DATA_HELP,
    TASK_HELP,
    BatchSizeOption,
    EstimateOption,
    JsonOption,
    LearningRateOption,
    PeersOption,
    RankOption,
    SetOption,
    SizeOption,
    VersionOption,
    parse_overrides,
    say,
    table_console,
    tables_of,
    typed,
    with_guess,
)
from seedflood.cli.rosters import roster_app
from seedflood.cli.watching import events, peers, status, trace
from seedflood.cluster.topology import TopologyName
from seedflood.config import (
    ObjectiveSettings,
    Settings,
    check_ranks,
    check_settings,
    find_rank,
    load_settings,
    merge,
    read_layer,
    read_objective,
)
from seedflood.errors import ConfigError, DivergenceError
from seedflood.host import garbage, outlets
from seedflood.host.logs import configure_logging
from seedflood.host.places import hold
from seedflood.log import log

LOCAL_STEPS = {"gradient": 48, "reward": 100}
LOCAL_STEPS_OTHERWISE = 400
"""The default length of a run of `local`, by estimate, or by task."""

node_app = typer.Typer(add_completion=False, rich_markup_mode="markdown", pretty_exceptions_enable=False)
app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    help="Hosts fine-tune one language model together, by messages of a few bytes. "
    "`seedflood-node --peers peers.toml` runs one host; these commands are for everything around it.",
    epilog=f"\n{EXIT_CODES}{example('seedflood local --nodes 4 --estimate gradient')}",
)
config_app = typer.Typer(
    no_args_is_help=True,
    help="Look at settings without running anything.",
    epilog=f"\n{example('seedflood config check --peers peers.toml')}",
)
app.add_typer(config_app, name="config")
app.add_typer(roster_app, name="roster")


def run_node(
    peers: PeersOption = Path("peers.toml"),
    name: Annotated[str | None, typer.Option(help="Name of this host ([node] name).")] = None,
    listen: Annotated[str | None, typer.Option(metavar="HOST:PORT", help="Where to listen ([node] listen).")] = None,
    state: Annotated[Path | None, typer.Option(help="Folder of key, journal and result ([node] state).")] = None,
    data: Annotated[str | None, typer.Option(help=f"{DATA_HELP} ([node] data).")] = None,
    device: Annotated[str | None, typer.Option(help="auto, cpu, cuda, cuda:1, mps or xpu ([node] device).")] = None,
    overrides: SetOption = None,
    _version: VersionOption = None,
) -> None:
    """Runs one host: measures updates on its own data, floods them, applies everyone's.

    Settings come from FILE, then SEEDFLOOD__SECTION__KEY in the environment, then the options here. The node redials
    neighbours that are down for ever; SIGTERM makes it leave in peace, SIGHUP read the peers again. When the run has
    ended it prints one JSON object and exits.

    Example:

        seedflood-node --peers peers.toml
    """
    given = {"name": name, "listen": listen, "state": state, "data": data, "device": device}
    flags = parse_overrides(overrides)
    flags.setdefault("node", {}).update({key: value for key, value in given.items() if value is not None})
    outlets.begin(is_daemon=True)
    configure_logging(name or "?")
    settings = load_settings(peers, flags)
    check_settings(settings)
    place = find_rank()
    check_ranks(settings, place)
    _check_own_score(settings)
    if place.rank > 0:
        configure_logging(f"{settings.node.name}, rank {place.rank}", is_quiet=True)
        from seedflood.host.seedflood.rank import run_rank

        run_rank(settings, place)
    configure_logging(settings.node.name)
    ranks = {"ranks": place.world_size} if place.world_size > 1 else {}
    log.info("starting", version=VERSION, state=str(settings.node.state), **ranks)

    hold(settings.node.state)
    garbage.defer()
    # torch takes seconds to import: --help and faults do not wait for it
    from seedflood.host.process import run_process

    raise typer.Exit(run_process(settings, lambda: load_settings(peers, flags)))


def relay(
    peers: PeersOption = Path("peers.toml"),
    name: Annotated[str | None, typer.Option(help="Name of this relay ([node] name).")] = None,
    listen: Annotated[str | None, typer.Option(metavar="HOST:PORT", help="Where to listen ([node] listen).")] = None,
    state: Annotated[Path | None, typer.Option(help="Folder of key and journal ([node] state).")] = None,
    overrides: SetOption = None,
) -> None:
    """Runs a relay: it passes on what hosts say, keeps it, and serves those that come late. It trains nothing, and
    needs neither PyTorch nor the model nor rows, only the [run] of the hosts.

    The same as `seedflood-node` with `[node] role = "relay"`. It ends when all hosts have ended the run, or stays with
    `[node] then = "serve"`.

    Example:

        seedflood relay --peers peers.toml
    """
    run_node(peers, name, listen, state, overrides=[*(overrides or ()), "node.role=relay"])


def local(
    nodes: Annotated[int, typer.Option(min=1, max=256, help="How many daemons.")] = 4,
    relays: Annotated[int, typer.Option(min=0, help="How many of them, the last ones, only relay.")] = 0,
    topology: Annotated[
        TopologyName, typer.Option(metavar="NAME", help=f"Links: {', '.join(get_args(TopologyName))}.")
    ] = "ring",
    model: Annotated[str, typer.Option(help="Base model: embedded, a folder or a hub name.")] = "embedded",
    task: Annotated[str | None, typer.Option(help=TASK_HELP)] = None,
    data: Annotated[str | None, typer.Option(help=DATA_HELP)] = None,
    steps: Annotated[
        int | None, typer.Option(min=1, help="Length of the run (400; 48 by gradients, 100 by reward).")
    ] = None,
    estimate: EstimateOption = None,
    size: SizeOption = None,
    rank: RankOption = None,
    learning_rate: LearningRateOption = None,
    batch_size: BatchSizeOption = None,
    train_examples: Annotated[int, typer.Option(help="Training rows, split over the nodes.")] = 1024,
    seed: Annotated[int, typer.Option(help="Seed of the run.")] = 1,
    evaluate_every: Annotated[
        int | None, typer.Option(help="Steps between evaluations by the first node (an eighth of the run).")
    ] = None,
    folder: Annotated[Path | None, typer.Option(help="Keep settings, logs and state here.")] = None,
    export: Annotated[Path | None, typer.Option(help="Write the fine-tuned model here.")] = None,
    overrides: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Runs a cluster of real daemons on this machine, from start to end, and shows what came of it.

    Each daemon is a process of its own with its own key, journal and share of the rows, linked over loopback.

    Examples:

        seedflood local --nodes 4 --topology ring --steps 250

        seedflood local --model ./opt-125m --data ./rows.csv --size medium

        seedflood local --estimate gradient --rank 8 --learning-rate 0.01
    """
    from seedflood.cluster.display import EXACT_MODE, is_sound, show_result
    from seedflood.cluster.local import run_cluster
    from seedflood.cluster.plan import ClusterPlan

    flags = with_guess(parse_overrides(overrides), task, data, nodes - relays)
    of_options = tables_of(flags["run"].get("mode"), estimate, size, rank, learning_rate, batch_size)
    flags["run"] = merge(of_options, flags["run"])
    if steps is None:
        run = flags["run"]
        chosen = "reward" if run["objective"].get("task") == "reward" else run.get("seedflood", {}).get("estimate")
        steps = LOCAL_STEPS.get(chosen, LOCAL_STEPS_OTHERWISE)
    _check_score(read_objective(flags["run"]["objective"]), runs_code=False)
    plan = ClusterPlan(
        nodes=nodes,
        topology=topology,
        model=model,
        task=task or ("embedded" if model == "embedded" else "sst2"),
        data=data,
        steps=steps,
        train_examples=train_examples,
        seed=seed,
        evaluate_every=max(1, steps // 8) if evaluate_every is None else evaluate_every,
        export=export,
        overrides=flags,
        relays=relays,
    )
    outlets.begin(is_daemon=False)
    result = run_cluster(plan, folder)
    if as_json:
        say(json.dumps(result))
    else:
        show_result(result, table_console())
        if export is not None:
            say(f"The model is in {export}.")
        learned = None if export is None else f"--model {export}"
        if export is None and folder is not None and result["mode"] == EXACT_MODE:  # of others no journal holds it
            learned = f"--peers {folder / 'node-1' / 'peers.toml'}"
        if learned is not None:
            words = "--chat PROMPT" if flags["run"]["objective"].get("task") == "chat" else "PROMPT"
            say(f"To see what it says: {typed('seedflood')} generate {learned} {words}")
    if not is_sound(result):
        raise DivergenceError(f"the nodes ended with different digests; keep {result['folder']} and report this.")


def _check_own_score(settings: Settings) -> None:
    if settings.node.role != "relay":
        _check_score(settings.run.objective)


def _check_score(objective: ObjectiveSettings, *, runs_code: bool = True) -> None:
    """A score that nobody has is refused before PyTorch is imported. runs_code: may that of a file be tried here?
    Raises ConfigError."""
    from seedflood.training.rewards.scores import make_scorer, source_of

    if objective.task == "reward" and objective.is_code and not runs_code:
        source_of(objective.score, objective.score_sha256)
    elif objective.task == "reward":
        make_scorer(objective.score, objective.score_sha256)


def check_config(peers: PeersOption = Path("peers.toml"), overrides: SetOption = None) -> None:
    """Says whether a peers.toml can be used, and which run it belongs to. Exits with 0 or 78.

    Example:

        seedflood config check --peers peers.toml
    """
    settings = load_settings(peers, parse_overrides(overrides))
    check_settings(settings)
    _check_own_score(settings)
    if not read_layer(peers):
        raise ConfigError(f"{peers} is empty; `seedflood init` makes one.")
    say(f"{peers} is valid: run {settings.run.name}, id {settings.run.shown_id()}")


def show_config(peers: PeersOption = Path("peers.toml"), overrides: SetOption = None) -> None:
    """Prints all settings as they combine, as JSON: of peers.toml, if there is one, environment, --set and defaults.

    Example:

        seedflood config show --peers peers.toml --set run.seedflood.rank=8
    """
    is_there = peers != Path("peers.toml") or peers.exists()
    settings = load_settings(peers if is_there else None, parse_overrides(overrides))
    say(json.dumps(settings.model_dump(mode="json"), indent=2))


@app.callback()
def _describe(_version: VersionOption = None) -> None:
    pass


OF_HOSTS = (init, join, relay, status, peers, trace, events, doctor, replay)
OF_MODELS = (evaluate, generate, export)

add_command(node_app, run_node, begin=EXIT_CODES)
add_command(app, local)
for one in (*OF_HOSTS, *OF_MODELS, keygen):
    add_command(app, one, begin=EXIT_CODES if one is relay else "")
add_command(app, continue_run, "continue")
add_command(config_app, check_config, "check")
add_command(config_app, show_config, "show")
add_command(roster_app, invite)
