"""`seedflood status | peers | trace | events`: what a running node says of itself, and files of a dead one."""

import itertools
import json
from collections import deque
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, get_args

import typer
from rich.filesize import decimal
from rich.table import Table
from rich.text import Text

from seedflood.cli.options import JsonOption, PeersOption, say, table_console
from seedflood.config import load_settings
from seedflood.errors import NotRunningError, UsageError
from seedflood.host.places import RESULT_FILE, read_result
from seedflood.operations.client import RunningNode, node_at, node_in
from seedflood.operations.eventlog import decode, event_files, read_lines
from seedflood.operations.http_address import find_http_address
from seedflood.operations.names import find_names, resolve_origin
from seedflood.operations.seedflood.trace import trace as trace_lines
from seedflood.protocol.swarm.graph import distances
from seedflood.protocol.swarm.outputs import EventLevel
from seedflood.terminal import Screen, visible

NodeOption = Annotated[
    str | None,
    typer.Option("--node", metavar="HOST:PORT", help="[node] http address of a running node, instead of --peers."),
]
EventsOption = Annotated[
    list[Path] | None,
    typer.Option(
        "--events",
        metavar="FILE",
        help="An event file, or a state folder with event files; the node need not run; repeatable.",
    ),
]
LEVELS = get_args(EventLevel)
COLOURS = {"warning": "yellow", "error": "red"}
BACK = {True: "can be dialled", False: "only dials", None: "-"}
"""What is shown in place of an address of a neighbour that has dialled us."""
STATUS_COLOURS = {
    "self": "bold",
    "linked": "green",
    "reachable": "green",
    "silent": "red",
    "left": "dim",
    "removed": "dim",
}


def status(peers: PeersOption = Path("peers.toml"), node: NodeOption = None, as_json: JsonOption = False) -> None:
    """Is the node ready, how far is it, and for whom does it wait?

    The node is found through the state folder that peers.toml names, or asked where --node says. Exits with 75 if none
    is running.

    Example:

        seedflood status --peers peers.toml
    """
    found = _find(peers, node)
    status = found.ask("/api/status")
    if as_json:
        say(json.dumps(status))
    else:
        table_console().print(status_table(status, found.address))


def status_table(status: dict[str, Any], address: str) -> Table:
    """status: what /api/status of the node at this address gives."""
    progress, updates, journal = status["progress"], status["updates"], status["journal"]
    of_node, run = status["node"], status["node"]["run"]
    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    rows = {
        "node": f"{of_node['name']} ({of_node['origin']})",
        "run": f"{run['name']} ({run['id'][:16]}): {run['model']} on {run['task']}, "
        + (f"{run['window']} windows" if run["window"] else f"mode {run['mode']}"),
        "state": status["state"] + (f": {status['why_not_ready']}" if status["why_not_ready"] else ""),
        "step": f"{_show(progress['step'])} of {progress['steps']}"
        + (", stands still" if _stands_still(status) else _when(progress["steps_per_second"], ", {:.2f} per second"))
        + _when(progress["seconds_left"], ", {:.0f} s left"),
        "loss": _show(progress["loss"])
        + _when(progress["loss_step"], " at step {}")
        + _when(progress["spent_seconds"], f", after {{:.0f}} s and {decimal(progress['spent_bytes'])} sent"),
        "unlearns": _show_rise(progress["rise"]),
        "contradicts": "\n".join(describe_contradicting(status)),
        "evaluated": _show_evaluation(status["history"]["figures"]),
        "figures": ", ".join(f"{name} {_show_figure(value)}" for name, value in status["figures"].items()),
        "besides": ", ".join(f"{name.replace('_', ' ')}: {text}" for name, text in status["words"].items()),
        "roster": _show_roster(status["roster"]) if status["members"] else "not known yet: the node loads",
        "window": _show_window(status["window"]) if run["window"] else "",
        "waits for": "\n".join(f"{one['reason']}, for {one['seconds']:.0f} s" for one in status["blockers"])
        or "nothing",
        "updates": ", ".join(
            f"{value} {key}" for key, value in updates.items() if key != "rejected" and value is not None
        ),
        "rejected": ", ".join(f"{count} {reason}" for reason, count in updates["rejected"].items()) or "none",
        "traffic": decimal(status["traffic"]["seedflood_bytes"]) + _compare(status["traffic"]["gossip_bytes"]),
        "page": f"http://{address}",
        "journal": _when(journal["bundles"], "{} bundles, ")
        + _when(journal["records"] or None, "{} records, ")
        + ("-" if journal["bytes"] is None else decimal(journal["bytes"])),
    }
    for key, value in rows.items():
        if value:
            table.add_row(key, Text(value))
    return table


PEERS_KEYS = ("members", "roster", "links", "edges", "diameter", "cut_vertices", "words")


def peers(peers: PeersOption = Path("peers.toml"), node: NodeOption = None, as_json: JsonOption = False) -> None:
    """Who takes part, who is linked with this node, and who is behind?

    Example:

        seedflood peers --node 127.0.0.1:7071 --json
    """
    status = _find(peers, node).ask("/api/status")
    if as_json:
        say(json.dumps({key: status[key] for key in PEERS_KEYS}))
        return
    table_console().print(peers_table(status))
    say(_show_roster(status["roster"]) if status["members"] else "the node loads: ask again when it is up")
    for sentence in describe_reach(status):
        say(sentence)
    for sentence in (*describe_contradicting(status), *describe_unaudited(status)):
        say(visible(sentence))


def describe_contradicting(status: dict[str, Any]) -> Iterator[str]:
    """Whose updates do not count. status: what /api/status gives."""
    for member in status["members"]:
        if member.get("contradicts"):
            yield f"{member['name']} contradicts the others: its updates do not count (docs/how-to/operating.md)."


def describe_unaudited(status: dict[str, Any]) -> Iterator[str]:
    """Who cannot be audited by this host. status: what /api/status gives."""
    names = status["words"].get("cannot_be_audited")
    if names is not None:
        yield f"This host cannot audit {names}: they state other rows, or none, so what they send is believed."


def describe_reach(status: dict[str, Any]) -> Iterator[str]:
    """Where this host can be dialled, and who would be cut off from it without whom. status: what /api/status gives."""
    for link in status["links"]:
        if link["state"] == "connected" and link["seen_as"] is not None:
            host, _, port = link["seen_as"].rpartition(":")
            if port == "0":
                yield f"{link['peer']} sees this host as {host}, and it only dials ([node] listen)."
                continue
            can = "can be dialled there" if link["may_dial_us"] else "cannot be dialled there"
            yield f"{link['peer']} sees this host as {link['seen_as']}, and it {can}."
    names = {member["origin"]: member["name"] for member in status["members"]}
    ours, edges = status["node"]["origin"], [tuple(edge) for edge in status["edges"]]
    whole = distances(edges, ours).keys()
    for cut in (one for one in status["cut_vertices"] if one != ours):
        left = distances([edge for edge in edges if cut not in edge], ours).keys()
        if gone := sorted(names.get(one, one) for one in whole - left - {cut}):
            yield (
                f"Without {names.get(cut, cut)} this host would be cut off from {', '.join(gone)}: give them more "
                "[[peers]], or a second relay."
            )


def peers_table(status: dict[str, Any]) -> Table:
    """status: what /api/status of a node gives."""
    links = {link["origin"] or link["peer"]: link for link in status["links"]}
    has_reputations = any(member.get("reputation") is not None for member in status["members"])
    table = Table(box=None, padding=(0, 2, 0, 0))
    for column in ("name", "origin", "status", "step", "behind", "hop", "address", "sent", "received"):
        table.add_column(column, justify="right" if column in ("step", "behind", "hop", "sent", "received") else "left")
    if has_reputations:
        table.add_column("reputation", justify="right")
    for member in status["members"]:
        link = links.pop(member["origin"], None) or links.pop(member["name"], None) or {}
        hop = link.get("hop_seconds") or member["hop_seconds"]
        table.add_row(
            member["name"],
            member["origin"],
            Text(member["status"], STATUS_COLOURS.get(member["status"], "")),
            "relay" if member.get("is_relay") else str(member["step"]),
            str(member["lag_steps"]),
            f"{hop * 1000:.1f} ms" if hop is not None else "-",
            Text(link.get("address") or BACK[link.get("may_be_dialled")]),
            decimal(link["bytes_sent"]) if link else "-",
            decimal(link["bytes_received"]) if link else "-",
            *([_show_reputation(member)] if has_reputations else []),
        )
    for link in links.values():
        address = Text(link["address"] or "-")
        table.add_row(Text(link["peer"]), "-", link["state"], "-", "-", "-", address, "-", "-")
    return table


def trace(
    origin: Annotated[str, typer.Argument(help="Who measured the update: name, fingerprint or its beginning.")],
    step: Annotated[int, typer.Argument(min=0, help="Of which step.")],
    peers: PeersOption = Path("peers.toml"),
    node: Annotated[
        list[str] | None,
        typer.Option("--node", metavar="HOST:PORT", help="[node] http address of a running node; repeatable."),
    ] = None,
    files: EventsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Follows one update: who got it from whom and when, in which window it was applied, or why it was not.

    Asked of several nodes, running (--node) or dead (--events), it shows the way of the update through all of them.

    Examples:

        seedflood trace alpha 120

        seedflood trace alpha 120 --node 10.0.0.2:7071 --node 10.0.0.3:7071

        seedflood trace alpha 120 --events beta/state --events gamma/state
    """
    nodes = [node_at(address) for address in node or ()]
    if not nodes and not files:
        nodes = [_find(peers, None)]
    traces = [one.ask("/api/trace", origin=origin, step=step) for one in nodes]
    traces += _trace_files(files or [], origin, step)
    traces.sort(key=_turn)
    if as_json:
        first = traces[0]
        say(json.dumps({"origin": first["origin"], "name": first["name"], "step": step, "nodes": traces}))
        return
    table = Table(box=None, padding=(0, 2, 0, 0), title=f"update of {traces[0]['name'] or origin}, step {step}")
    for column in ("node", "had it", "from", "gave it to", "what became of it"):
        table.add_column(column, no_wrap=column == "had it")
    for one in traces:
        had = one["had"]
        table.add_row(
            one["node"] or "?",
            had["time"][11:] if had else "-",
            "itself" if had and had["event"] == "published" else (had or {}).get("from") or "-",
            ", ".join(dict.fromkeys(fact["to"] for fact in one["sent"])) or "-",
            Text(one["verdict"]),
        )
    table_console().print(table)


def _turn(trace: Mapping[str, Any]) -> tuple[bool, bool, str]:
    """By when nodes had the update. Their clocks may differ, but nobody had it before its origin."""
    had = trace["had"] or {}
    return not had, had.get("event") != "published", had.get("time", "")


def events(
    peers: PeersOption = Path("peers.toml"),
    node: NodeOption = None,
    files: EventsOption = None,
    limit: Annotated[int, typer.Option(min=1, max=100_000, help="How many events, the last ones.")] = 50,
    level: Annotated[EventLevel, typer.Option(help="Least level.")] = "info",
    as_json: JsonOption = False,
) -> None:
    """What happened, the newest last: links, members, faults, evaluations.

    --events reads files; with --level debug they also show the way of every bundle. --json prints one object per line.

    Example:

        seedflood events --level warning --limit 20
    """
    if files:
        wanted = LEVELS[LEVELS.index(level) :]
        lines = (decode(line) for line in itertools.chain.from_iterable(map(_lines, files)))
        found = list(deque((line for line in lines if line is not None and line.get("level") in wanted), limit))
        found.sort(key=lambda line: str(line.get("time")))
    else:
        found = _find(peers, node).ask("/api/events", limit=limit, level=level)["events"]
    for event in found:
        if as_json:
            say(json.dumps(event))
            continue
        Screen(soft_wrap=True).print(show_event(event))


def show_event(event: dict[str, Any]) -> Text:
    facts = {key: value for key, value in event.items() if key not in ("time", "level", "event", "run")}
    shown = " ".join(f"{key}={value if isinstance(value, str) else json.dumps(value)}" for key, value in facts.items())
    name = Text(visible(str(event["event"])), COLOURS.get(str(event.get("level")), "bold"))
    return Text.assemble((visible(str(event.get("time"))), "dim"), "  ", name, "  ", visible(shown))


def _show_roster(roster: dict[str, Any] | None) -> str:
    if roster is None:
        return "the run is open: whoever knows its settings may take part"
    gone = f", {roster['gone']} removed or out of date" if roster["gone"] else ""
    counts = f"serial {roster['serial']}: {roster['hosts']} hosts{gone}; {roster['refused']} messages of others refused"
    return "\n".join([counts, *map(_show_removal, roster["removals"])]) + (
        "\na cut contradicts compacted epochs, which stand" if roster["contradicted"] else ""
    )


def _show_removal(removal: dict[str, Any]) -> str:
    state = {
        "frozen": "frozen, and not cut off yet (`seedflood roster remove --node`)",
        "cut": "cut off, and updates that count still lack here",
        "settled": "cut off, and settled here",
    }[removal["state"]]
    sides = (("the same is held by", "same"), ("not by", "others"), ("not reached", "unreached"))
    shown = [f"{words} {', '.join(removal[key])}" for words, key in sides if removal[key]]
    return "; ".join([f"{removal['name']}: {state}", *shown])


def _find(peers: Path, node: str | None) -> RunningNode:
    if node is not None:
        return node_at(node)
    state = load_settings(peers).node.state
    if find_http_address(state) is None and (digest := read_result(state).get("digest")) is not None:
        raise NotRunningError(
            f"the run has ended here, with digest {digest[:8]}: {state / RESULT_FILE} says what came of it, and "
            f"`seedflood events --events {state}` what happened."
        )
    return node_in(state)


def _lines(path: Path) -> Iterator[bytes]:
    """The lines of a file, or of all event files in a state folder. Raises UsageError if there are none."""
    paths = event_files(path) if path.is_dir() else [path]
    if not paths or not paths[0].is_file():
        raise UsageError(f"{path} is no event file and holds none; name events.jsonl or a state folder.")
    return read_lines(paths)


def _trace_files(files: list[Path], origin: str, step: int) -> list[dict[str, Any]]:
    names: dict[str, str] = {}
    for path in files:
        names |= find_names(_lines(path))
    found = resolve_origin(origin, names) if files else None
    if files and found is None:
        raise UsageError(
            f'no origin, or more than one, goes by "{origin}" in these files; known are '
            f"{', '.join(sorted(set(names.values()))) or 'none'}."
        )
    return [trace_lines(_lines(path), str(found), step, names.get(str(found))).as_json() for path in files]


def _show_reputation(member: dict[str, Any]) -> Text:
    if member["reputation"] is None:
        return Text("-")
    reputation = f"{member['reputation']:.1f}"
    return Text(f"contradicts {reputation}", "red") if member["contradicts"] else Text(reputation)


def _show_window(window: dict[str, Any]) -> str:
    if window["step"] is None:
        return "none is open"
    opened = window["opened_seconds"]
    return f"step {window['step']}, open for {opened:.1f} s, {window['received']} of {window['expected']} received"


def _show_rise(rise: dict[str, Any] | None) -> str:
    if rise is None:
        return ""
    best = _when(rise["best_step"], f"; its best was {rise['best_loss']} at step {{}}")
    return f"the loss of the evaluation at step {rise['step']} is {rise['loss'] or 'no finite number'}{best}"


def _show_evaluation(figures: dict[str, list[list[float]]]) -> str:
    """The last point of each curve."""
    return ", ".join(
        f"{name} {_show_figure(points[-1][1])} at step {points[-1][0]}" for name, points in figures.items()
    )


def _stands_still(status: dict[str, Any]) -> bool:
    progress = status["progress"]
    return bool(progress["steps_per_second"] == 0 and progress["step"] < progress["steps"])


def _show_figure(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"


def _show(value: object) -> str:
    return "-" if value is None else str(value)


def _when(value: object, text: str) -> str:
    return text.format(value) if value is not None else ""


def _compare(gossip_bytes: int | None) -> str:
    return f"; exchanging parameters would have cost {decimal(gossip_bytes)}" if gossip_bytes else ""
