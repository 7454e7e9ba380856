"""Commands of an operator: keys, the files of a closed run, and invitations for hosts that join later."""

import asyncio
from pathlib import Path
from typing import Annotated, Any

import typer

from seedflood.cli.options import SetOption, guessed, parse_overrides
from seedflood.config import divide_data, merge, read_layer
from seedflood.errors import UsageError

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

    typer.echo(Identity.load_or_create(path).public_key.hex())


def init(
    hosts: HostsArgument,
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="A new folder for all files.")] = Path("run"),
    mode: Annotated[str | None, typer.Option(help="How the hosts train ([run] mode).")] = None,
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
    download; choose another with --run, or --set run.model=NAME.

    Example:

        seedflood init alpha=10.0.0.1:7070 beta=10.0.0.2:7070 gamma --out run
    """
    from seedflood.founding import plan

    given = parse_overrides(overrides)
    if set(given) - {"run"}:
        raise UsageError("--set is for [run] here; change the files of single hosts after they are made.")
    layers = [read_layer(run, "name a peers.toml with --run").get("run", {}) if run is not None else {}]
    layers += [{"mode": mode} if mode is not None else {}, given.get("run", {})]
    tables = merge(*layers)
    if data is not None and Path(divide_data(data)[0]).exists():  # elsewhere it may be on the hosts alone
        tables = merge({"objective": guessed(data, tables.get("objective", {}))}, tables)
    keys = plan.found(plan.parse_hosts(hosts), tables, out, data)
    typer.echo(f"{out / plan.OPERATOR_FILE}: your own key, which signs the roster; keep it, and give it to nobody")
    for name, key in keys.items():
        typer.echo(f"{out / name}: copy this folder to {name} (public key {key})")
    typer.echo(f"then, in the folder on each host: seedflood-node --peers {plan.PEERS_FILE}")


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
    enrolled = asyncio.run(invite_host(Desk(roster, key, settings), name, roles, listen, 60 * minutes, typer.echo))
    typer.echo(f"{name} is on the roster: public key {enrolled.hex()}", err=True)


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

        seedflood join 10.0.0.1:7171/4hjxq2m7r6wvt3kcbz5ynd8gfe/k7qv3zj2xw6mhc4rtb5ngd8yfa
    """
    from seedflood.founding.enrolling import join_run

    name = asyncio.run(join_run(code, out, listen))
    typer.echo(f"this host is {name}; start it, in {out.resolve()}, by: seedflood-node --peers peers.toml")
