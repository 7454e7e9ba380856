"""`seedflood roster`: the list of hosts of a closed run, as its operator reads and changes it.

`add` and `remove` sign the next edition with the operator's key, which no host needs. It is copied to one host, and
read there at SIGHUP, or `remove --node` gives it to a running node. All others get it from that host.
"""

import json
import time
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from seedflood.cli.epilogs import add_command, example
from seedflood.cli.options import JsonOption, say, table_console
from seedflood.errors import ConfigError, UnsettledError, UsageError
from seedflood.identity import Identity
from seedflood.operations.client import RunningNode, node_at
from seedflood.protocol.origin import fingerprint
from seedflood.protocol.swarm.roster import Cut, Entry, Roster
from seedflood.roster_file import SignedRoster, parse_key, parse_time, read_roster, spell_time, write_roster

roster_app = typer.Typer(
    no_args_is_help=True,
    help="Who belongs to a closed run: a list that its operator signs.",
    epilog=f"\n{example('seedflood roster show roster.json')}",
)

FileArgument = Annotated[Path, typer.Argument(metavar="FILE", help="The roster, roster.json.")]
NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="Name of the host on the roster.")]
KeyOption = Annotated[
    Path, typer.Option("--key", metavar="FILE", help="The operator's private key (mode 0600).", show_default=True)
]
NodeOption = Annotated[
    str | None,
    typer.Option("--node", metavar="HOST:PORT", help="[node] http address of a running node, which gets it."),
]

SETTLE_SECONDS, ASK_SECONDS = 30.0, 0.5
"""How long hosts have time to repair what they lack of a removed one, and how often one is asked."""


def show(file: FileArgument, as_json: JsonOption = False) -> None:
    """Prints who is on a roster, and whether that counts now. Exits with 78 unless its operator has signed it.

    Example:

        seedflood roster show roster.json
    """
    found, now = read_roster(file), time.time()
    rows = [_describe(entry, now) for entry in found.roster.entries]
    head = {"operator": found.operator.hex(), "run": found.run, "serial": found.roster.serial}
    if as_json:
        say(json.dumps({**head, "entries": rows}))
        return
    table = Table(title=", ".join(f"{key} {value}" for key, value in head.items() if value), title_justify="left")
    for column in ("name", "state", "roles", "from", "until", "holes", "origin", "public key"):
        table.add_column(column)
    for row in rows:
        table.add_row(*(str(value) if value else "-" for value in row.values()))
    table_console().print(table)


def add(
    file: FileArgument,
    name: NameArgument,
    public_key: Annotated[str, typer.Argument(metavar="PUBLIC-KEY", help="Its public key, 64 hex digits.")],
    key: KeyOption = Path("operator.key"),
    role: Annotated[
        list[str] | None, typer.Option(help="train, relay or read; repeatable.", show_default="train")
    ] = None,
    since: Annotated[str | None, typer.Option("--from", metavar="TIME", help="From when on it counts.")] = None,
    until: Annotated[str | None, typer.Option(metavar="TIME", help="Until when it counts, like 2027-01-31.")] = None,
    run: Annotated[str, typer.Option(help="[run] name, for a FILE that does not exist yet.")] = "run",
) -> None:
    """Puts a host on a roster, or says anew what its roles and times are, and signs it.

    A node that starts prints its public key if it is not on the roster, and `seedflood keygen` prints it. FILE is made
    if there is none.

    Example:

        seedflood roster add roster.json host4 PUBLIC-KEY --until 2027-01-31
    """
    operator = Identity.load(key)
    before = _read_own(file, operator) if file.exists() else SignedRoster(operator.public_key, run, Roster(1))
    try:
        roles: tuple[Any, ...] = tuple(role or ("train",))
        begin, end = (None if text is None else parse_time(text) for text in (since, until))
        entry = Entry(name, parse_key(public_key, "PUBLIC-KEY"), roles, begin, end)
        after = before.roster.adding(entry)
    except ValueError as error:
        raise UsageError(f"{error}.") from None
    over = ", but its time is over" if _is_over(entry, time.time()) else ""
    _write(file, operator, before, after, f"{name} is on the roster{over}", is_sent=False)


def remove(
    file: FileArgument,
    name: NameArgument,
    key: KeyOption = Path("operator.key"),
    node: NodeOption = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Takes a host off a roster for good, and signs which of its updates count.

    With --node this is one act. The node passes the new roster on to all others. As soon as all hosts that it reaches
    hold the same updates of the removed host, these are signed: exactly they count, on every host and for ever. Without
    --node the roster is signed alone; call this again with --node to finish. It shows what follows, and asks.

    Example:

        seedflood roster remove roster.json host4 --node 127.0.0.1:7071
    """
    operator = Identity.load(key)
    signed = _read_own(file, operator)
    entry = signed.roster.named(name)
    if entry is None:
        raise UsageError(f"{name} is not on the roster.")
    if entry.cut is not None:
        raise UsageError(f"{name} was removed, and what counts of it was signed: both are final.")
    if entry.is_removed and node is None:
        raise UsageError(f"{name} was removed already; say --node HOST:PORT to sign which of its updates count.")
    if not entry.is_removed:
        say(_consequences(entry, signed.roster, is_sent=node is not None))
        if not yes:
            _ask()
        after = signed.roster.removing([name])
        signed = _write(file, operator, signed, after, f"{name} is removed", is_sent=node is not None)
    if node is not None:
        running = node_at(node)
        _send(running, signed)
        _settle(file, operator, signed, entry, running)


def _consequences(entry: Entry, roster: Roster, *, is_sent: bool) -> str:
    left = sum(not one.is_removed for one in roster.entries) - 1
    what_counts = "Then exactly those updates of it count that hosts hold which the node reaches."
    return (
        f"{entry.name} (origin {fingerprint(entry.origin)}) loses its links once a host learns of it, and its key "
        "never returns.\nWhat it has published stays in the model. Windows no longer wait for it. "
        f"{what_counts if is_sent else ''}\nHosts left: {left}."
    )


def _send(node: RunningNode, signed: SignedRoster) -> None:
    """Gives a roster to a node, which passes it on. Raises UsageError if the node knows a newer one."""
    serial = node.send("/api/roster", signed.spelled().encode())["serial"]
    if serial != signed.roster.serial:
        raise UsageError(
            f"the node at {node.address} knows roster {serial}, and this file is roster {signed.roster.serial}: take "
            "the newest file."
        )


def _settle(file: Path, operator: Identity, signed: SignedRoster, entry: Entry, node: RunningNode) -> None:
    """Signs that of a removed host exactly that counts which the hosts hold that a node reaches."""
    status = _wait_until_alike(entry, node)
    removal = _removal_of(entry, status)
    if removal is None:
        say(f"Hosts of this run keep no updates of others, so nothing of {entry.name} has to be signed.")
        return
    try:
        cut = Cut.keeping(map(tuple, removal["held"]), removal["since"], bytes.fromhex(removal["content"]))
        after = signed.roster.cutting(entry.name, cut)
    except ValueError as error:  # its updates have more holes than a roster can list
        raise UsageError(f"{entry.name} is removed, but what counts of it cannot be signed: {error}.") from None
    spans = ", ".join(f"{first}-{last}" for first, last in removal["held"]) or "none"
    say(
        f"Its updates of these steps count: {spans}. All other steps of it count as skipped, for ever.\n"
        f"Held alike by: {', '.join([status['node']['name'], *removal['same']])}."
    )
    if removal["unreached"]:
        say(
            f"Not reached: {', '.join(removal['unreached'])}. Whatever else these hold of {entry.name} is taken out of "
            "their models when they learn of it."
        )
    _send(node, _write(file, operator, signed, after, f"What counts of {entry.name} is signed", is_sent=True))


def _wait_until_alike(entry: Entry, node: RunningNode) -> dict[str, Any]:
    """What a node shows once the hosts that it reaches hold the same of a removed host. Raises UnsettledError if they
    do not in SETTLE_SECONDS."""
    until = time.monotonic() + SETTLE_SECONDS
    while True:
        status = node.ask("/api/status")
        removal = _removal_of(entry, status)
        if removal is None or not removal["others"]:
            return status
        if time.monotonic() > until:
            raise UnsettledError(
                f"{entry.name} is removed, but {', '.join(removal['others'])} and {status['node']['name']} do not hold "
                "the same of it yet: run this again, or remove who never does."
            )
        time.sleep(ASK_SECONDS)


def _removal_of(entry: Entry, status: dict[str, Any]) -> dict[str, Any] | None:
    """What a node shows of a removed host; None if hosts of its run keep no updates of others (GASLoC)."""
    assert status["roster"] is not None, "the node took the roster, so its run is closed"
    removals: list[dict[str, Any]] = status["roster"]["removals"]
    return next((one for one in removals if one["origin"] == fingerprint(entry.origin)), None)


def _read_own(file: Path, operator: Identity) -> SignedRoster:
    found = read_roster(file)
    if found.operator != operator.public_key:
        raise ConfigError(f"{file} is the roster of another operator: its key begins with {found.operator.hex()[:16]}.")
    return found


def _write(
    file: Path, operator: Identity, before: SignedRoster, after: Roster, what: str, *, is_sent: bool
) -> SignedRoster:
    """Signs the next edition, and replaces the file by it."""
    if file.exists() and read_roster(file) != before:
        raise UsageError(f"{file} has changed meanwhile: run this again.")
    signed = SignedRoster.sign(operator, before.run, after)
    write_roster(file, signed)
    how_to_spread = "Copy the file to one host and send its node SIGHUP; the others get it from there."
    say(f"{what}, serial {after.serial}. {'' if is_sent else how_to_spread}".rstrip())
    return signed


def _ask() -> None:
    """Raises UsageError if nobody answers, and Abort if the answer is no."""
    try:
        agreed = typer.confirm("Go on?")
    except typer.Abort:
        raise UsageError("nobody has answered: say --yes to go on without being asked.") from None
    if not agreed:
        raise typer.Abort


def _is_over(entry: Entry, now: float) -> bool:
    return entry.not_after is not None and now >= entry.not_after + 1


def _describe(entry: Entry, now: float) -> dict[str, Any]:
    if entry.is_removed:
        state = "removed" if entry.cut is None else "cut off"
    else:
        state = "over" if _is_over(entry, now) else "valid" if entry.is_valid(now) else "later"
    return {
        "name": entry.name,
        "state": state,
        "roles": ", ".join(entry.roles),
        "from": spell_time(entry.not_before) if entry.not_before is not None else None,
        "until": spell_time(entry.not_after) if entry.not_after is not None else None,
        "holes": _spell_holes(entry.cut),
        "origin": fingerprint(entry.origin),
        "public_key": entry.public_key.hex(),
    }


def _spell_holes(cut: Cut | None) -> str | None:
    """The steps that do not count of a host that was cut off."""
    if cut is None:
        return None
    *inner, (first, _) = cut.holes
    return ", ".join([*(f"{low}-{high}" for low, high in inner), f"from {first} on"])


for one in (show, add, remove):
    add_command(roster_app, one)
