"""The files of a closed run: a folder for each host that is ready to be copied, and what only the operator keeps.

    OUT/operator.key           signs the roster: keep it, give it to nobody
    OUT/roster.json            who belongs; the same file lies in the folder of each host
    OUT/newcomer.toml          settings for a host that is invited later
    OUT/alpha/peers.toml       the settings of alpha
    OUT/alpha/roster.json
    OUT/alpha/seedflood-state/identity.pem    its key

A host with an address listens there; one without only dials. Of those with an address few are linked each with each,
more in a ring. One without dials two of them.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seedflood import durable
from seedflood.config import EMBEDDED, SECTIONS, WITHOUT_ROWS, check_address, combine, is_loopback, merge, spell
from seedflood.errors import ConfigError, UsageError
from seedflood.host.places import KEY_FILE, ROSTER_FILE
from seedflood.identity import Identity
from seedflood.protocol.origin import NAME_PATTERN
from seedflood.protocol.swarm.roster import Entry, Role, Roster
from seedflood.roster_file import SignedRoster, write_roster

OPERATOR_FILE, NEWCOMER_FILE = "operator.key", "newcomer.toml"
PEERS_FILE, STATE_FOLDER = "peers.toml", "seedflood-state"

HEAD = "# Made by `seedflood`. deploy/peers.toml of the source explains every setting.\n\n"
HEADINGS = {
    "run": "# --- The run: equal on all hosts. `seedflood config check` prints its id. ---\n",
    "node": "# --- This host ---\n",
    "peers": "# --- Whom it dials. The key of each is pinned: nobody else is accepted at its address. ---\n",
}

COMPLETE_MAX = 4
"""Up to so many hosts that can be reached, each is linked with each."""

DIALLED = 2
"""How many others a host dials that cannot be reached itself. If one is down, the other keeps it in the run."""

DEFAULT_RUNS: Mapping[str, Mapping[str, Any]] = {
    "seedflood": {"steps": 300, "objective": {"task": "embedded"}},
    "gasloc": {"objective": {"task": "lm", "max_length": 64}},
}
"""By mode: what `[run]` says if nothing else is chosen. It needs no download."""


@dataclass(frozen=True, slots=True)
class PlannedHost:
    """address: where others reach it; None if they cannot. role: on the roster, and in its settings."""

    name: str
    address: str | None = None
    role: Role = "train"

    @property
    def listen(self) -> str:
        """Where it listens: on all its addresses, unless others reach it on this machine alone."""
        if self.address is None:
            return ""
        return self.address if is_loopback(self.address) else f"0.0.0.0:{self.address.rpartition(':')[2]}"


NEWCOMER = PlannedHost("newcomer")
"""Stands for a host that is invited later."""


def parse_hosts(texts: Sequence[str], relays: Sequence[str] = ()) -> list[PlannedHost]:
    """`NAME=HOST:PORT`, or `NAME` for a host that only dials. Raises UsageError."""
    hosts = []
    for k, text in enumerate((*texts, *relays)):
        name, equals, address = text.partition("=")
        if re.fullmatch(NAME_PATTERN, name) is None:
            raise UsageError(f'"{name[:80]}" is no name of a host: letters, digits, ".", "_" and "-", 63 at most.')
        try:
            role: Role = "train" if k < len(texts) else "relay"
            hosts.append(PlannedHost(name, check_address(address) if equals else None, role))
        except ValueError as error:
            raise UsageError(f"{name}: {error}.") from None
    for what in ("name", "address"):
        seen = [getattr(host, what) for host in hosts if getattr(host, what) is not None]
        if (twice := next((one for one in seen if seen.count(one) > 1), None)) is not None:
            raise UsageError(f"two hosts have the {what} {twice}.")
    if (unreached := next((host for host in hosts if host.role == "relay" and host.address is None), None)) is not None:
        raise UsageError(f"a relay is there to be reached: say where it listens, {unreached.name}=HOST:PORT.")
    if len(hosts) > 1 and all(host.address is None for host in hosts):
        raise UsageError(f"nobody can be reached: say where at least one host listens, {hosts[0].name}=HOST:PORT.")
    return hosts


def is_on_this_machine(hosts: Sequence[PlannedHost]) -> bool:
    return any(host.address is not None and is_loopback(host.address) for host in hosts)


def plan_dials(hosts: Sequence[PlannedHost]) -> dict[str, list[PlannedHost]]:
    """Whom each host dials, by its name. The graph of all is connected."""
    reachable = [host for host in hosts if host.address is not None]
    count = len(reachable)
    dials: dict[str, list[PlannedHost]] = {host.name: [] for host in hosts}
    for k, host in enumerate(reachable):
        others = range(k) if count <= COMPLETE_MAX else [(k + 1) % count]
        dials[host.name] = [reachable[other] for other in others]
    for k, host in enumerate(host for host in hosts if host.address is None):
        dials[host.name] = [reachable[(DIALLED * k + j) % count] for j in range(min(DIALLED, count))]
    return dials


def found(hosts: Sequence[PlannedHost], run: Mapping[str, Any], out: Path, data: str | None = None) -> dict[str, str]:
    """Makes all files in a new folder, and returns the public keys of the hosts by name. run: the tables of `[run]`
    but for operator and clients. data: where each host has its rows. Raises SeedfloodError; if settings cannot
    be used, nothing is made."""
    if out.exists() and any(out.iterdir()):
        raise UsageError(f"the folder {out} is not empty; name a new one with --out, for keys are not made twice.")
    mode = str(run.get("mode", "seedflood"))
    usual = {"name": "first", "model": "embedded", **DEFAULT_RUNS.get(mode, {})}
    trainers = [host for host in hosts if host.role == "train"]
    tables = merge(usual, run, {"clients": len(trainers)})
    role = hosts[-1].role  # relays come last, and not every run can have them
    task = combine({"run": tables, "node": {"role": role}}, None, "settings").run.objective.task
    rows = _choose_rows(task, data, is_own=bool({"model", "objective"} & run.keys()))
    try:
        out.mkdir(parents=True, exist_ok=True, mode=0o700)
        operator = Identity.load_or_create(out / OPERATOR_FILE)
        operator.use()
        tables["operator"] = operator.public_key.hex()
        keys = {host.name: _make_host(out / host.name) for host in hosts}
        entries = tuple(Entry(host.name, keys[host.name], (host.role,)) for host in hosts)
        roster = SignedRoster.sign(operator, tables["name"], Roster(1, entries))
        write_roster(out / ROSTER_FILE, roster)
        for host in hosts:
            layer = {"run": tables, **_own(hosts, host, keys, rows)}
            if host in trainers:
                layer["node"]["shard"] = f"{trainers.index(host) + 1}/{len(trainers)}"
            else:
                layer["node"]["role"] = host.role
            write_roster(out / host.name / ROSTER_FILE, roster)
            write_text(out / host.name / PEERS_FILE, explain(layer))
        newcomer = {"run": tables, **_own([*hosts, NEWCOMER], NEWCOMER, keys, rows)}
        write_text(out / NEWCOMER_FILE, explain(newcomer))
    except OSError as error:
        raise ConfigError(f"cannot write in {out}: {error.strerror}.") from None
    return {name: key.hex() for name, key in keys.items()}


def explain(layer: Mapping[str, Any]) -> str:
    """The text of a peers.toml that says what its lines mean."""
    sections = [(heading, section) for section, heading in HEADINGS.items() if layer.get(section)]
    return HEAD + "".join(heading + spell({section: layer[section]}, _meaning) for heading, section in sections)


def _meaning(table: str, key: str) -> str:
    return "" if table == "peers" else f"# {SECTIONS[table].model_fields[key].description}\n"


def write_text(path: Path, text: str) -> None:
    """Raises OSError."""
    durable.write(path, text.encode(), mode=0o644)


def _choose_rows(task: str, data: str | None, *, is_own: bool) -> dict[str, str]:
    """What `[node]` says of rows. is_own: model or objective are the operator's, so that rows of the package would be
    others than meant. Raises UsageError."""
    if data is None and task in WITHOUT_ROWS and is_own:
        raise UsageError(f'task "{task}" needs rows: say with --data where each host has them, such as --data ./rows.')
    data = EMBEDDED if data is None and task in WITHOUT_ROWS else data
    return {} if data is None else {"data": data}


def _own(
    hosts: Sequence[PlannedHost], host: PlannedHost, keys: Mapping[str, bytes], rows: Mapping[str, str]
) -> dict[str, Any]:
    """The tables that belong to one host. Its page takes any port: another host may be on the same machine."""
    node = {"name": host.name, "listen": host.listen, "state": STATE_FOLDER, "roster": ROSTER_FILE, **rows}
    dialled = plan_dials(hosts)[host.name]
    return {
        "node": node,
        "peers": [{"address": one.address, "origin": keys[one.name].hex()} for one in dialled],
    }


def _make_host(folder: Path) -> bytes:
    """The folder of a host with its key. Returns the public key."""
    (folder / STATE_FOLDER).mkdir(parents=True, mode=0o700)
    return Identity.load_or_create(folder / STATE_FOLDER / KEY_FILE).public_key
