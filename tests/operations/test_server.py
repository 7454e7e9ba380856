"""The HTTP server of a real node: probes, pages, and questions that are wrong."""

import asyncio
import io
import json
import re
import socket
import threading

import pytest

from seedflood.errors import BindError, DiskFullError
from seedflood.host.places import KEY_FILE
from seedflood.identity import Identity
from seedflood.listening import Room
from seedflood.operations.client import node_at, node_in
from seedflood.operations.console import Console
from seedflood.operations.http_address import find_http_address
from seedflood.operations.server import BODY_BYTES_MAX
from seedflood.protocol.swarm.roster import Roster
from seedflood.roster_file import SignedRoster
from strangers import StrangeNode, open_console

ALONE = {"clients": 1, "steps": 4}
PAIR = {"clients": 2, "steps": 300}
SERVE = {"then": "serve"}


async def get(http, daemon, path, **options):
    """(status, text)."""
    async with http.get(f"http://{daemon.address}{path}", **options) as answer:
        return answer.status, await answer.text()


async def status_of(http, daemon):
    return json.loads((await get(http, daemon, "/api/status"))[1])


async def test_a_node_is_alive_but_not_ready_until_it_has_caught_up(cluster, http):
    a = await cluster.start("a", [], PAIR)
    assert await get(http, a, "/livez") == (200, "alive\n")
    status, text = await get(http, a, "/readyz")
    reason, blocker, end = text.split("\n")
    assert (status, reason, end) == (503, "no neighbour is linked; it dials 0", "")
    assert re.fullmatch(r"has waited for \d+ s: it has no link with any neighbour", blocker)
    await cluster.start("b", ["a"], PAIR)
    await cluster.until(lambda: a.node.is_ready)
    assert await get(http, a, "/readyz") == (200, "ready\n")


async def test_a_node_that_drains_is_alive_but_not_ready(cluster, http):
    a = await cluster.start("a", [], PAIR)
    await cluster.start("b", ["a"], PAIR)
    await cluster.until(lambda: a.node.is_ready)
    a.drain()
    assert await get(http, a, "/livez") == (200, "alive\n")
    assert await get(http, a, "/readyz") == (503, "the node is leaving\n")
    assert (await status_of(http, a))["state"] == "draining"


async def test_a_node_whose_disk_is_full_is_not_ready_until_there_is_space(cluster, http, monkeypatch):
    a = await cluster.start("a", [], PAIR)
    await cluster.start("b", ["a"], PAIR)
    await cluster.until(lambda: a.node.is_ready)

    def fail(*_, **__):
        raise DiskFullError("no space left on device")

    def told():
        return [one["event"] for one in a.hub.events if one["event"] in ("ready", "not ready")]

    with monkeypatch.context() as patched:
        patched.setattr(a.engine.journal, "append", fail)
        await cluster.until(lambda: told() == ["ready", "not ready"])
        status, text = await get(http, a, "/readyz")
        assert (status, text.splitlines()[1].split(": ")[1]) == (503, "its own disk is full")
    assert text.splitlines()[0] in [one.get("reason") for one in a.hub.events if one["event"] == "not ready"]
    await cluster.until(lambda: told() == ["ready", "not ready", "ready"])
    assert await get(http, a, "/readyz") == (200, "ready\n")


async def test_probes_answer_while_a_step_takes_as_long_as_it_likes(cluster, http, monkeypatch):
    a = await cluster.start("a", [], PAIR)
    b = await cluster.start("b", ["a"], PAIR)
    await cluster.until(lambda: a.node.step >= 3)
    begun, may_end = threading.Event(), threading.Event()
    measure = a.engine.trainer.measure

    def measure_for_ever(*order):
        begun.set()
        may_end.wait()
        return measure(*order)

    monkeypatch.setattr(a.engine.trainer, "measure", measure_for_ever)
    assert await asyncio.to_thread(begun.wait, 60)
    try:
        assert await get(http, a, "/livez") == (200, "alive\n")
        assert await get(http, a, "/readyz") == (200, "ready\n")
        said = await status_of(http, b)
        assert said["state"] == "ready"
        assert (await get(http, a, "/metrics"))[0] == 200
    finally:
        may_end.set()
    await cluster.until(lambda: b.node.step > said["progress"]["step"] + 1)


@pytest.mark.parametrize(
    ("role", "why"),
    [("train", "the model is being loaded"), ("relay", "it waits for a neighbour that states what the run is")],
)
async def test_before_the_model_is_loaded_the_node_says_so(tmp_path, cluster, http, role, why):
    settings = cluster.settings("a", [], ALONE, {"role": role})
    identity = Identity.load_or_create(settings.node.state / KEY_FILE)
    console = await Console.open(settings, identity.origin)
    try:
        assert await get(http, console, "/livez") == (200, "alive\n")
        assert await get(http, console, "/readyz") == (503, f"{why}\n")
        assert (await status_of(http, console))["state"] == "loading"
        assert (await get(http, console, "/metrics"))[0] == 200
    finally:
        await console.close()


@pytest.mark.parametrize("path", ["/static/" + "a" * 256, "/static/" + "%e4%ba%8c" * 90, "/" + "a/" * 2000])
async def test_a_path_that_no_file_can_have_is_refused_without_a_line_of_the_log(cluster, http, caplog, path):
    a = await cluster.start("a", [], ALONE)
    status, _ = await get(http, a, path)
    assert status == 414
    assert not [record for record in caplog.records if record.exc_info]


async def test_the_status_has_all_keys_whatever_is_known(cluster, http):
    a = await cluster.start("a", [], PAIR)
    early = await status_of(http, a)
    await cluster.start("b", ["a"], PAIR)
    await cluster.until(lambda: a.node.step >= 3)
    late = await status_of(http, a)
    assert early.pop("figures").keys() <= late.pop("figures").keys()
    assert keys(early) == keys(late)
    assert early["window"]["last_close"] is None
    assert set(late["window"]["last_close"]) == {"step", "reason", "waited_seconds", "received", "late", "missing"}


def keys(status):
    return {key: set(value) if isinstance(value, dict) else None for key, value in status.items()}


async def test_the_status_tells_of_members_links_and_traffic(cluster, http):
    a = await cluster.start("a", [], PAIR)
    b = await cluster.start("b", ["a"], PAIR)
    await cluster.until(lambda: b.node.step >= 5)
    said = await status_of(http, b)
    assert said["node"]["name"] == "b"
    assert {member["name"]: member["status"] for member in said["members"]} == {"a": "linked", "b": "self"}
    (link,) = said["links"]
    assert (link["peer"], link["state"], link["address"]) == ("a", "connected", f"127.0.0.1:{a.port}")
    assert said["edges"] == [sorted([said["node"]["origin"], link["origin"]])]
    assert said["traffic"]["parameters"] == 117184
    assert 0 < said["traffic"]["seedflood_bytes"] < said["traffic"]["gossip_bytes"]
    assert said["updates"]["originated"] >= 5
    assert [point[0] for point in said["history"]["loss"]][:3] == [0, 1, 2]
    assert "ready" in [event["event"] for event in said["events"]]


async def test_the_status_tells_why_a_node_waits_and_for_whom(cluster, http):
    a = await cluster.start("a", [], PAIR)
    (blocker,) = (await status_of(http, a))["blockers"]
    assert (blocker["kind"], blocker["name"], blocker["origin"]) == ("no link", "any neighbour", None)
    b = await cluster.start("b", ["a"], PAIR)
    await cluster.until(lambda: a.node.step >= 3)
    await b.close()
    await cluster.until(lambda: a.node.blockers(0.0) != ())
    (blocker,) = (await status_of(http, a))["blockers"]
    assert (blocker["kind"], blocker["name"], blocker["step"]) == ("window", "b", a.node.step)
    assert blocker["reason"] == f"step {a.node.step} of b has not come"
    assert blocker["origin"] == f"{b.node.origin:016x}"


async def test_a_peer_that_is_not_there_is_being_dialled(cluster, http):
    a = await cluster.start("a", [], PAIR)
    a.dial(["127.0.0.1:9"])
    (link,) = (await status_of(http, a))["links"]
    assert (link["state"], link["address"], link["origin"]) == ("dialling", "127.0.0.1:9", None)


async def test_a_peer_that_only_dials_us_is_away_when_it_is_not_there(cluster, http):
    a = await cluster.start("a", [], PAIR)
    b = await cluster.start("b", ["a"], PAIR)
    await cluster.until(lambda: a.node.step >= 3)
    await b.close()
    await cluster.until(lambda: a.node.blockers(0.0) != ())
    (link,) = (await status_of(http, a))["links"]
    assert (link["state"], link["peer"], link["address"]) == ("away", "b", None)


async def test_curves_and_events_outlive_a_restart(cluster, http):
    run = {"clients": 1, "steps": 400}
    a = await cluster.start("a", [], run)
    await cluster.until(lambda: a.node.step >= 20)
    a.drain()
    await a.close()
    a = await cluster.start("a", [], run)
    said = await status_of(http, a)
    assert [point[0] for point in said["history"]["loss"]][:20] == list(range(20))
    assert [event["event"] for event in said["events"]].count("started") == 2


async def test_a_trace_tells_from_whom_an_update_came_and_in_which_window_it_was_applied(cluster, http):
    a = await cluster.start("a", [], PAIR)
    b = await cluster.start("b", ["a"], PAIR)
    await cluster.until(lambda: b.node.step >= 5)
    said = json.loads((await get(http, b, "/api/trace?origin=a&step=3"))[1])
    assert (said["node"], said["name"], said["had"]["from"]) == ("b", "a", "a")
    assert said["is_held"]
    assert said["is_applied"]
    assert said["applied"]["steps"] == [3, 3]
    own = json.loads((await get(http, a, f"/api/trace?origin={said['origin']}&step=3"))[1])
    assert own["had"]["event"] == "published"
    assert [fact["to"] for fact in own["sent"]] == ["b"]
    never = json.loads((await get(http, b, "/api/trace?origin=a&step=299"))[1])
    assert never["verdict"].startswith("never came here")


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/api/trace?origin=nobody&step=1", 404),
        ("/api/trace?origin=a", 400),
        ("/api/trace?origin=a&step=-1", 400),
        ("/api/trace?origin=a&step=99999999999999999999", 400),
        ("/api/trace?origin=a&step=%C2%B2", 400),
        ("/api/events?level=loud", 400),
        ("/api/events?limit=x", 400),
        ("/static/../server.py", 404),
        ("/static/%2e%2e/server.py", 404),
        ("/nowhere", 404),
    ],
)
async def test_a_wrong_question_is_refused_and_the_node_goes_on(cluster, http, path, status):
    a = await cluster.start("a", [], ALONE, SERVE)
    assert (await get(http, a, path))[0] in (status, 403)
    assert await get(http, a, "/livez") == (200, "alive\n")


async def test_events_are_given_by_level_and_number(cluster, http):
    a = await cluster.start("a", [], ALONE, SERVE)
    a.hub.log("something odd", "warning", number=1)
    a.hub.log("something odd", "warning", number=2)
    last = json.loads((await get(http, a, "/api/events?limit=1&level=warning"))[1])["events"]
    assert [(event["event"], event["number"]) for event in last] == [("something odd", 2)]
    assert json.loads((await get(http, a, "/api/events?limit=0"))[1]) == {"events": []}
    assert "loading" in (await get(http, a, "/api/events"))[1]


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "PATCH"])
async def test_nothing_but_reading_is_allowed(cluster, http, method):
    a = await cluster.start("a", [], ALONE, SERVE)
    async with http.request(method, f"http://{a.address}/api/status") as answer:
        assert answer.status == 405


async def test_only_a_roster_of_the_runs_operator_is_taken(cluster, http):
    """What else is sent to it changes nothing, and is refused in one sentence."""
    a = await cluster.start("a", [], ALONE, SERVE)
    address = f"http://{a.address}/api/roster"
    operator = Identity.generate()
    roster = SignedRoster.sign(operator, "run", Roster(1)).spelled().encode()
    json_type = {"Content-Type": "application/json"}
    for data, headers, status, sentence in (
        (roster, {"Content-Type": "text/plain"}, 415, "sent as application/json"),
        (b"{", json_type, 400, "the roster that was sent cannot be used"),
        (roster.replace(b'"serial": 1', b'"serial": 2'), json_type, 400, "is not signed by its operator"),
        (roster, json_type, 400, "this run is open, so it has no roster"),
        (io.BytesIO(bytes(BODY_BYTES_MAX + 1)), json_type, 413, "exceed"),
    ):
        async with http.post(address, data=data, headers=headers) as answer:
            text = await answer.text()
            assert (answer.status, sentence in text) == (status, True), text


async def test_every_answer_keeps_the_page_to_itself(cluster, http):
    a = await cluster.start("a", [], ALONE, SERVE)
    for path in ("/", "/static/page.js", "/api/status", "/nowhere"):
        async with http.get(f"http://{a.address}{path}") as answer:
            assert "default-src 'self'" in answer.headers["Content-Security-Policy"]
            assert "unsafe" not in answer.headers["Content-Security-Policy"]
            assert answer.headers["Cache-Control"] in ("no-cache", "no-store"), "an upgrade must reach the browser"
            assert answer.headers["X-Content-Type-Options"] == "nosniff"


async def test_a_page_elsewhere_whose_name_points_here_gets_nothing(cluster, http):
    a = await cluster.start("a", [], ALONE, SERVE)
    assert (await get(http, a, "/api/status", headers={"Host": "evil.example:80"}))[0] == 421
    assert (await get(http, a, "/api/status", headers={"Host": "localhost:80"}))[0] == 200


async def test_bytes_that_are_no_http_end_only_their_connection(cluster, http, caplog):
    a = await cluster.start("a", [], ALONE, SERVE)
    host, _, port = a.address.rpartition(":")
    settings_of_http_2 = b"\0\0\x1e\x04\0\0\0\0\0"
    for junk in (
        b"\0" * 100,
        b"GET " + b"a" * 100_000 + b"\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + settings_of_http_2,
    ):
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(junk)
        await reader.read()
        writer.close()
        await writer.wait_closed()
    assert await get(http, a, "/livez") == (200, "alive\n")
    assert [record for record in caplog.records if record.exc_info] == [], "no traceback reaches an operator"


async def test_an_address_in_use_is_told_in_one_sentence(cluster):
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        with pytest.raises(BindError, match=r"the port is in use; .* another port, in \[node\] http"):
            await cluster.start("a", [], ALONE, {"http": f"127.0.0.1:{other.getsockname()[1]}"})


async def test_without_http_nothing_listens_and_nothing_is_kept(cluster):
    a = await cluster.start("a", [], ALONE, SERVE | {"http": ""})
    assert a.address is None
    assert find_http_address(a.settings.node.state) is None


async def test_a_node_is_found_by_its_state_folder_until_it_has_closed(cluster):
    a = await cluster.start("a", [], ALONE, SERVE)
    state = a.settings.node.state
    found = await asyncio.to_thread(node_in, state)
    assert found.address == a.address
    assert (await asyncio.to_thread(node_at(a.address).ask, "/api/status"))["node"]["name"] == "a"
    await a.close()
    assert find_http_address(state) is None


async def test_a_port_with_no_room_ends_the_oldest_connection_of_whoever_holds_most(tmp_path, monkeypatch):
    monkeypatch.setattr("seedflood.operations.server.room", lambda: Room(links=8, http=4))
    console = await open_console(tmp_path, StrangeNode())
    host, port = console.address.rsplit(":", 1)
    crowd = [await asyncio.open_connection(host, int(port)) for _ in range(4)]
    probe_reads, probe = await asyncio.open_connection(host, int(port), local_addr=("127.0.0.2", 0))
    probe.write(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert (await probe_reads.readline()).startswith(b"HTTP/1.1 200")
    assert await crowd[0][0].read() == b"", "the oldest one of the address with most"
    another = await asyncio.open_connection(host, int(port))
    assert await crowd[1][0].read() == b""
    assert not crowd[2][0].at_eof()
    for _, writer in (*crowd, another, (None, probe)):
        writer.close()
    await console.close()
