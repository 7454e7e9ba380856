"""Commands of an operator: keys, the files of a closed run, and invitations for hosts that join later."""

import asyncio
from pathlib import Path
from typing import Annotated, Any

import typer

from seedflood.cli.options import (
    TASK_HELP,
    BatchSizeOption,
    EstimateOption,
    LearningRateOption,
    RankOption,
    SetOption,
    SizeOption,
    guessed,
    parse_overrides,
    say,
    tables_of,
    typed,
)
from seedflood.config import EMBEDDED, detach, divide_data, merge, read_layer
from seedflood.errors import UsageError
from seedflood.host.places import ROSTER_FILE

HostsArgument = Annotated[
    list[str], typer.Argument(metavar="NAME[=HOST:PORT]...", help="All hosts; one without an address only dials.")
]


def keygen(path: Annotated[Path, typer.Argument(help="File of the key, with mode 0600.")]) -> None:
    """Makes a key, unless there is one, and prints its public half: 64 hex digits.

    For `[[peers]] origin`, a roster, or `[run] operator`. The key of a host lies in its state folder; a node makes it
    by itself at its first start.

    Example:

        seedflood keygen seedflood-state/identity.pem
    """
    from seedflood.identity import Identity

    say(Identity.load_or_create(path).public_key.hex())


def init(
    hosts: HostsArgument,
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="A new folder for all files.")] = Path("run"),
    relay: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=HOST:PORT", help="A host that only relays, without model and rows; repeatable."),
    ] = None,
    mode: Annotated[str | None, typer.Option(help="How the hosts train ([run] mode).")] = None,
    model: Annotated[str | None, typer.Option(help="Base model, as the hosts find it ([run] model).")] = None,
    task: Annotated[str | None, typer.Option(help=TASK_HELP)] = None,
    steps: Annotated[int | None, typer.Option(min=1, help="Length of the run ([run] steps).")] = None,
    estimate: EstimateOption = None,
    size: SizeOption = None,
    rank: RankOption = None,
    learning_rate: LearningRateOption = None,
    batch_size: BatchSizeOption = None,
    run: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Takes [run] from this peers.toml (default: a short first run).")
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(help="Where each host has its rows ([node] data): a folder there, a hub data set or embedded."),
    ] = None,
    overrides: SetOption = None,
) -> None:
    """Makes a closed run: a folder for each host that is ready to be copied to it, and the operator's own key.

    Only hosts on the roster take part, and links are encrypted. The first run uses the embedded model, which needs no
    download. Paths of model and rows begin in each host's folder, or here if all hosts are on this machine.

    Examples:

        seedflood init alpha=10.0.0.1:7070 beta=10.0.0.2:7070 gamma --out run

        seedflood init ada bob --relay server=10.0.0.3:7070

        seedflood init alpha=10.0.0.1:7070 beta --model gpt2 --data ./rows
    """
    from seedflood.founding import plan

    given = parse_overrides(overrides)
    if set(given) - {"run"}:
        raise UsageError("--set is for [run] here; change the files of single hosts after they are made.")
    layers = [read_layer(run, "name a peers.toml with --run").get("run", {}) if run is not None else {}]
    layers += [{key: value for key, value in (("mode", mode), ("model", model), ("steps", steps)) if value is not None}]
    layers += [{} if task is None else {"objective": {"task": task}}]
    set_by_key = given.get("run", {})
    named = merge(*layers, set_by_key).get("mode")
    layers += [tables_of(named, estimate, size, rank, learning_rate, batch_size), set_by_key]
    tables, planned = merge(*layers), plan.parse_hosts(hosts, relay or ())
    if data not in (None, EMBEDDED):
        tables = _with_task(tables, data)
    if plan.is_on_this_machine(planned):
        detached = detach({"run": tables, "node": {} if data is None else {"data": data}}, Path())
        tables, data = detached["run"], detached["node"].get("data")
    keys = plan.found(planned, tables, out, data)
    say(f"{out / plan.OPERATOR_FILE}: your own key, which signs the roster; keep it, and give it to nobody")
    for name, key in keys.items():
        say(f"{out / name}: copy this folder to {name} (public key {key})")
    say(f"{out / ROSTER_FILE}, {out / plan.NEWCOMER_FILE}: to invite more hosts, later")
    if data is not None and not Path(data).is_absolute() and Path(divide_data(data)[0]).exists():
        say(f"{data}: each host looks for its rows there, beside its {plan.PEERS_FILE}")
    if tables.get("objective", {}).get("task") == "own":
        called = f'seedflood.join(model, "{plan.PEERS_FILE}")'
        say(f"then, in the folder on each host: start your script, which calls {called}")
    else:
        say(f"then, in the folder on each host: {typed('seedflood-node')} --peers {plan.PEERS_FILE}")
    if relay:
        say(f"on a relay: {typed('seedflood')} relay --peers {plan.PEERS_FILE}")


def _with_task(run: dict[str, Any], data: str) -> dict[str, Any]:
    """The tables of a run, and what is guessed of rows that are here; they may be on the hosts alone."""
    objective = run.get("objective", {})
    if Path(divide_data(data)[0]).exists():
        run = merge({"objective": guessed(data, objective)}, run)
        say(f"{data}: task {run['objective']['task']}")
    elif "task" not in objective and run.get("mode") != "gasloc":  # which learns any text
        raise UsageError(f"{data} is not here, so its rows do not show the task: name it with --task.")
    return run


def invite(
    name: Annotated[str, typer.Argument(help="Name of the new host.")],
    listen: Annotated[str, typer.Option(metavar="HOST:PORT", help="Where the new host reaches this one; port 0: any.")],
    roster: Annotated[Path, typer.Option(metavar="FILE", help="The roster; it gets one more entry.")] = Path(
        "roster.json"
    ),
    key: Annotated[Path, typer.Option(metavar="FILE", help="The operator's key.")] = Path("operator.key"),
    settings: Annotated[
        Path, typer.Option(metavar="FILE", help="Settings for a new host: [run], and whom it dials.")
    ] = Path("newcomer.toml"),
    role: Annotated[list[str] | None, typer.Option(help="train, relay or read; repeatable (default: train).")] = None,
    minutes: Annotated[float, typer.Option(min=0.01, help="How long the code is valid.")] = 60.0,
) -> None:
    """Waits for one new host: prints a code for `seedflood join` there, and puts the host onto the roster.

    The code is a secret until it is used: whoever has it can join. The new host brings the new roster to the others.

    Example:

        seedflood roster invite delta --listen 10.0.0.1:7171
    """
    from seedflood.founding.enrolling import Desk, invite_host

    roles: tuple[Any, ...] = tuple(role or ("train",))
    enrolled = asyncio.run(invite_host(Desk(roster, key, settings), name, roles, listen, 60 * minutes, say))
    say(f"{name} is on the roster: public key {enrolled.hex()}", err=True)


def join(
    code: Annotated[str, typer.Argument(help="What `seedflood roster invite` has printed.")],
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="Where the files of this host are made.")] = Path(),
    listen: Annotated[
        str, typer.Option(metavar="HOST:PORT", help='Where this host will listen, for example "0.0.0.0:7070"; "": not.')
    ] = "",
) -> None:
    """Makes this host part of a closed run, by a code that its operator has got from `seedflood roster invite`.

    Makes the key of this host here, and writes peers.toml and roster.json.

    Example:

        seedflood join CODE
    """
    from seedflood.founding.enrolling import join_run

    name = asyncio.run(join_run(code, out, listen))
    say(f"this host is {name}; start it, in {out.resolve()}, by: {typed('seedflood-node')} --peers peers.toml")
