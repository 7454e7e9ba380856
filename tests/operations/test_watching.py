"""The commands that look at a node: running ones over HTTP, dead ones by their files."""

import asyncio
import json
import socket

import pytest
from forks import run_command

from seedflood.cli.watching import _turn, describe_contradicting, describe_reach, describe_unaudited, peers_table
from seedflood.errors import ExitCode, NotRunningError
from seedflood.operations import client
from seedflood.operations.client import node_at

RUN = {"clients": 2, "steps": 6}
SERVE = {"then": "serve"}


async def run(*arguments):
    """(exit code, stdout, stderr) of a command: a process of its own, for its stdout must be data alone."""
    ran = await asyncio.to_thread(run_command, *arguments, COLUMNS="200")
    return ran.returncode, ran.stdout, ran.stderr


async def command(*arguments):
    """What a command that succeeds prints."""
    code, out, errors = await run(*arguments)
    assert (code, errors) == (0, "")
    return out


async def fails(code, words, *arguments):
    """Does the command end with this code and one sentence with these words?"""
    got, out, errors = await run(*arguments)
    assert (got, out) == (code, "")
    assert words in errors
    assert len(errors.splitlines()) == 1


@pytest.fixture
async def pair(cluster):
    """Two nodes that have ended their run and serve, and the settings file of the first."""
    a = await cluster.start("a", [], RUN, SERVE)
    b = await cluster.start("b", ["a"], RUN, SERVE)
    await cluster.until(lambda: a.result is not None and b.result is not None)
    settings = cluster.folder / "peers.toml"
    settings.write_text(f'[node]\nname = "a"\nstate = "{a.settings.node.state}"\n')
    return a, b, settings


async def test_status_finds_the_node_by_its_settings(pair):
    _, _, settings = pair
    said = json.loads(await command("status", "--peers", settings, "--json"))
    assert (said["node"]["name"], said["progress"]["step"]) == ("a", 6)
    assert "finished" in await command("status", "--peers", settings)


async def test_status_tells_what_the_present_loss_has_cost(pair):
    _, _, settings = pair
    progress = json.loads(await command("status", "--peers", settings, "--json"))["progress"]
    assert progress["spent_seconds"] > 0
    assert progress["spent_bytes"] > 0
    assert (
        f"{progress['loss']} at step {progress['loss_step']}, after {progress['spent_seconds']:.0f} s and"
        in await command("status", "--peers", settings)
    )


async def test_peers_lists_members_and_links(pair):
    a, b, _ = pair
    said = json.loads(await command("peers", "--node", a.address, "--json"))
    assert {member["name"] for member in said["members"]} == {"a", "b"}
    table = await command("peers", "--node", b.address)
    assert f"127.0.0.1:{a.port}" in table
    assert f"a sees this host as 127.0.0.1:{b.port}, and it can be dialled there." in table
    assert "can be dialled" in (await command("peers", "--node", a.address)).splitlines()[2]


def compared(**reputations):
    """The status of a node as far as `peers` shows it; None: a host has no reputation yet, or never."""
    members = [
        {"name": name, "origin": name, "status": "linked", "step": 9, "lag_steps": 0, "hop_seconds": None}
        | {"reputation": reputation, "contradicts": None if reputation is None else reputation < -1}
        for name, reputation in reputations.items()
    ]
    return {"members": members, "links": []}


def columns(said):
    return {column.header: [str(cell) for cell in column.cells] for column in peers_table(said).columns}


def test_how_hosts_agree_is_a_column_and_who_contradicts_is_told():
    said = compared(ada=2.41, bob=None, mallory=-3.04)
    assert columns(said)["reputation"] == ["2.4", "-", "contradicts -3.0"]
    (sentence,) = describe_contradicting(said)
    assert sentence.startswith("mallory contradicts the others: its updates do not count")


def test_where_hosts_are_not_compared_there_is_no_such_column():
    said = compared(ada=None, bob=None)
    assert "reputation" not in columns(said)
    assert [*describe_contradicting(said)] == []


def test_who_cannot_be_audited_is_told():
    assert [*describe_unaudited({"words": {}})] == []
    (sentence,) = describe_unaudited({"words": {"cannot_be_audited": "ada, bob"}})
    assert sentence.startswith("This host cannot audit ada, bob:")


def test_who_would_be_cut_off_without_whom_is_told_of_each_cut():
    names = {"a": "ada", "b": "bob", "c": "cyd", "d": "dan"}
    said = {
        "node": {"origin": "a"},
        "links": [],
        "members": [{"origin": origin, "name": name} for origin, name in names.items()],
        "edges": [["a", "b"], ["b", "c"], ["c", "d"]],
        "cut_vertices": ["b", "c"],
    }
    assert [*describe_reach(said)] == [
        "Without bob this host would be cut off from cyd, dan: give them more [[peers]], or a second relay.",
        "Without cyd this host would be cut off from dan: give them more [[peers]], or a second relay.",
    ]
    assert [*describe_reach(said | {"node": {"origin": "b"}, "cut_vertices": ["b"]})] == []


def test_a_host_that_does_not_listen_is_not_said_to_be_out_of_reach_at_a_port():
    link = {"peer": "a", "state": "connected", "seen_as": "10.0.0.2:0", "may_dial_us": False}
    said = {"node": {"origin": "b"}, "links": [link], "members": [], "edges": [], "cut_vertices": []}
    assert [*describe_reach(said)] == ["a sees this host as 10.0.0.2, and it only dials ([node] listen)."]


async def test_a_trace_shows_the_way_through_running_nodes(pair):
    a, b, _ = pair
    said = json.loads(await command("trace", "a", 3, "--node", b.address, "--node", a.address, "--json"))
    assert [(one["node"], one["had"]["event"], one["had"].get("from")) for one in said["nodes"]] == [
        ("a", "published", None),
        ("b", "kept", "a"),
    ]
    assert "in the window of step 3" in await command("trace", "a", 3, "--node", b.address)


def test_the_origin_of_an_update_comes_first_whatever_its_clock_says():
    kept, published = ({"had": {"event": event, "time": time}} for event, time in (("kept", "1"), ("published", "2")))
    never = {"had": None}
    assert sorted([never, kept, published], key=_turn) == [published, kept, never]


async def test_a_trace_is_answered_from_the_files_of_dead_nodes_alone(pair):
    a, b, _ = pair
    await asyncio.gather(a.close(), b.close())
    files = ("--events", a.settings.node.state, "--events", b.settings.node.state / "events.jsonl")
    said = json.loads(await command("trace", "b", 2, *files, "--json"))
    assert [one["node"] for one in said["nodes"]] == ["b", "a"]
    assert all(one["applied"]["steps"] == [2, 2] for one in said["nodes"])
    await fails(ExitCode.USAGE, "known are a, b", "trace", "carol", 2, *files)


async def test_events_are_read_from_a_node_or_its_files(pair):
    a, _, _ = pair
    live = [json.loads(one) for one in (await command("events", "--node", a.address, "--json")).splitlines()]
    state = a.settings.node.state
    filed = [json.loads(one) for one in (await command("events", "--events", state, "--json")).splitlines()]
    assert [event["event"] for event in live] == [event["event"] for event in filed]
    assert "member joined" in await command("events", "--node", a.address)
    debug = await command("events", "--events", state, "--level", "debug", "--limit", 1000)
    assert "kept" in debug
    assert "ready" not in await command("events", "--node", a.address, "--level", "warning")


async def test_a_file_that_is_none_is_told(tmp_path):
    await fails(ExitCode.USAGE, "is no event file", "events", "--events", tmp_path)


async def test_without_a_running_node_there_is_one_sentence_and_exit_code_75(pair, tmp_path):
    a, _, settings = pair
    http_address = a.settings.node.state / "http.json"
    left_behind = http_address.read_text()
    await a.close()
    for told in ("the run has ended here, with digest", f"`seedflood events --events {a.settings.node.state}` what"):
        await fails(ExitCode.TRY_AGAIN, told, "status", "--peers", settings)
    (a.settings.node.state / "result.json").unlink()
    await fails(ExitCode.TRY_AGAIN, "no node runs with the state folder", "status", "--peers", settings)
    http_address.write_text(left_behind)
    await fails(ExitCode.TRY_AGAIN, "no node answers at", "status", "--peers", settings)


async def test_a_file_that_a_killed_node_left_does_not_lead_to_another_node(pair):
    a, b, settings = pair
    left = json.loads((a.settings.node.state / "http.json").read_text())
    (a.settings.node.state / "http.json").write_text(json.dumps(left | {"address": b.address}))
    await fails(ExitCode.TRY_AGAIN, "another node answers", "status", "--peers", settings)


@pytest.mark.parametrize(("body", "told"), [(b"hi", "not as a seedflood node"), (b"{}", "another node answers")])
async def test_something_else_that_answers_is_no_node(pair, body, told):
    async def answer(reader, writer):
        await reader.readline()
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n" + body)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        host, port = server.sockets[0].getsockname()
        a, _, settings = pair
        left = json.loads((a.settings.node.state / "http.json").read_text())
        (a.settings.node.state / "http.json").write_text(json.dumps(left | {"address": f"{host}:{port}"}))
        await fails(ExitCode.TRY_AGAIN, told, "status", "--peers", settings)


@pytest.mark.parametrize("path", ["/api/status", "/api/trace"])
def test_a_node_that_is_stopped_is_not_waited_for_in_silence_for_long(monkeypatch, path):
    monkeypatch.setattr(client, "ANSWER_SECONDS_MAX", {"/api/trace": 0.02})
    monkeypatch.setattr(client, "ANSWER_SECONDS", 0.01)
    with socket.create_server(("127.0.0.1", 0)) as stopped:
        address = f"127.0.0.1:{stopped.getsockname()[1]}"
        seconds = {"/api/status": "0.01", "/api/trace": "0.02"}[path]
        said = f"no node has answered within {seconds} s at {address}: its process may be stopped or busy"
        with pytest.raises(NotRunningError, match=said):
            node_at(address).ask(path)


async def test_an_address_that_is_none_is_told():
    await fails(ExitCode.USAGE, "host:port", "status", "--node", "nowhere")
