"""`seedflood roster`: the list of hosts of a closed run, as its operator reads and changes it.

`add`, `remove` and `cut` sign the next edition with the operator's key, which no host needs. It is then copied to one
host and read there at SIGHUP; all others get it from that host.
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
from seedflood.operations.client import node_at
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
    _write(file, operator, before, after, f"{name} is on the roster{over}")


def remove(
    file: FileArgument,
    name: NameArgument,
    key: KeyOption = Path("operator.key"),
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Takes a host off a roster for good, after it has shown what follows from that, and signs it.

    Example:

        seedflood roster remove roster.json host4
    """
    operator = Identity.load(key)
    before = _read_own(file, operator)
    try:
        after = before.roster.removing([name])
    except ValueError as error:
        raise UsageError(f"{error}.") from None
    entry = after.named(name)
    assert entry is not None, "removed entries stay"
    left = sum(not one.is_removed for one in after.entries)
    say(
        f"{name} (origin {fingerprint(entry.origin)}) loses its links once a host learns of it, and its key never "
        f"returns.\nWhat it has published stays in the model. Windows no longer wait for it. Hosts left: {left}."
    )
    if not yes:
        _ask()
    _write(file, operator, before, after, f"{name} is removed")


def cut(
    file: FileArgument,
    name: NameArgument,
    node: Annotated[str, typer.Option("--node", metavar="HOST:PORT", help="[node] http address of a running node.")],
    key: KeyOption = Path("operator.key"),
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Signs which updates of a removed host count: those that all hosts hold which the node can reach. This is final.

    All other steps of that host count as skipped, on every host and for ever. So replicas are equal, whoever held more,
    and a step that nobody has any more holds nobody up.

    Example:

        seedflood roster cut roster.json host4 --node 127.0.0.1:7071
    """
    operator = Identity.load(key)
    before = _read_own(file, operator)
    status = node_at(node).ask("/api/status")
    removal = _removal_of(name, before.roster, status["roster"], node)
    try:
        cut = Cut.keeping(map(tuple, removal["held"]), removal["since"], bytes.fromhex(removal["content"]))
        after = before.roster.cutting(name, cut)
    except ValueError as error:
        raise UsageError(f"{error}.") from None
    if removal["others"]:
        raise UnsettledError(
            f"{', '.join(removal['others'])} and {status['node']['name']} do not hold the same of {name}, or do not "
            "say so yet: wait until they have repaired it, or remove who never does."
        )
    spans = ", ".join(f"{first}-{last}" for first, last in removal["held"]) or "none"
    say(
        f"{name} (origin {removal['origin']}) keeps its updates of these steps: {spans}. All its other steps count as "
        f"skipped, for ever.\nHeld alike by: {', '.join([status['node']['name'], *removal['same']])}."
    )
    if removal["unreached"]:
        say(
            f"Not reached: {', '.join(removal['unreached'])}. Whatever else these hold of {name} is taken out of their "
            "models when they get the cut."
        )
    if not yes:
        _ask()
    _write(file, operator, before, after, f"{name} is cut off")


def _removal_of(name: str, roster: Roster, known: dict[str, Any] | None, node: str) -> dict[str, Any]:
    """What a node says of a removed host. Raises UsageError if that is no answer to this roster."""
    if known is None or known["serial"] != roster.serial:
        state = "takes part in an open run" if known is None else f"knows roster {known['serial']}"
        raise UsageError(
            f"the node at {node} {state}, and this file is roster {roster.serial}: ask a node of this run that has it."
        )
    removals: list[dict[str, Any]] = known["removals"]
    entry = roster.named(name)
    found = [one for one in removals if entry is not None and one["origin"] == fingerprint(entry.origin)]
    if not found:
        raise UsageError(f"the node at {node} holds no updates of a removed host that is called {name}.")
    return found[0]


def _read_own(file: Path, operator: Identity) -> SignedRoster:
    found = read_roster(file)
    if found.operator != operator.public_key:
        raise ConfigError(f"{file} is the roster of another operator: its key begins with {found.operator.hex()[:16]}.")
    return found


def _write(file: Path, operator: Identity, before: SignedRoster, after: Roster, what: str) -> None:
    if file.exists() and read_roster(file) != before:
        raise UsageError(f"{file} has changed meanwhile: run this again.")
    write_roster(file, SignedRoster.sign(operator, before.run, after))
    how_to_spread = "Copy the file to one host and send its node SIGHUP; the others get it from there."
    say(f"{what}, serial {after.serial}. {how_to_spread}")


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


for one in (show, add, remove, cut):
    add_command(roster_app, one)
