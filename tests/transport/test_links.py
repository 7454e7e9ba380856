"""Links between real gRPC endpoints on the loopback: one per pair, kept for ever, refused with a reason."""

import asyncio
import contextlib
import logging

import grpc
import grpc.aio
import pytest
from linked import bundle, channel_to, frame_of, pair, rogue

from seedflood.errors import BindError, PeerError, RunMismatchError
from seedflood.protocol.seedflood.bundles import Updates
from seedflood.protocol.seedflood.messages import FrontierDigest, ReplicaDigest
from seedflood.protocol.swarm.messages import OPAQUE_BYTES_MAX, Goodbye, Hello, Members, Opaque, Ping
from seedflood.transport import codec, link, links
from seedflood.transport.answer import PULL_PARTS
from seedflood.transport.budget import ALLOWANCES, Allowance, Use
from seedflood.transport.codec import PullEnd, PullMore
from seedflood.transport.credentials import plain_text
from seedflood.transport.door import HALF_OPEN_MAX
from seedflood.transport.link import AS_BEFORE, RECEIVED_BUNDLES
from seedflood.transport.queue import QUEUE_BYTES_MAX
from seedflood.transport.server import CHANNEL_OPTIONS, LINK_PATH, SERVER_OPTIONS, bind, make_server


async def test_both_sides_learn_the_other_hello(make_node) -> None:
    a, b = await pair(make_node)
    assert a.linked == {b.origin: b.hello()}
    assert b.linked == {a.origin: a.hello()}
    assert {peer: link.hello.member.name for peer, link in a.links.open.items()} == {b.origin: "b"}


async def test_messages_arrive_in_order_in_both_directions(make_node) -> None:
    a, b = await pair(make_node)
    said = [
        Updates((bundle(1),)),
        FrontierDigest(bytes(32)),
        ReplicaDigest(bytes(32), bytes(32)),
        Members((a.member,)),
        Updates((bundle(2, updates=5),)),
    ]
    a.links.send(b.origin, said)
    b.links.send(a.origin, said)
    await a.until(lambda: len(a.received_messages) == len(said))
    await b.until(lambda: len(b.received_messages) == len(said))
    assert a.received_messages == b.received_messages == said


async def test_a_digest_that_was_told_last_is_told_again_in_two_bytes(make_node) -> None:
    a, b = await pair(make_node)
    said = [FrontierDigest(bytes([k // 3]) * 32, before=7, members_digest=bytes(16)) for k in range(6)]
    sent = []
    for count, digest in enumerate(said, 1):
        before = a.links.totals.stats()["b"].bytes_sent
        a.links.send(b.origin, [digest])
        await b.until(lambda count=count: len(b.received_messages) == count)
        sent.append(a.links.totals.stats()["b"].bytes_sent - before)
    assert b.received_messages == said
    assert [size for size in sent if size > 2] == [sent[0], sent[3]]


async def test_who_repeats_a_digest_that_was_never_told_loses_its_link(make_node) -> None:
    b = await make_node("b").start()
    async with channel_to(b.address) as channel:
        peer = make_node("peer")
        call = channel.stream_stream(LINK_PATH)()
        await call.write(frame_of(peer.hello()).SerializeToString())
        await b.until(lambda: b.linked)
        await call.write(frame_of(AS_BEFORE).SerializeToString())
        await b.until(lambda: not b.linked)
    assert b.received_messages == []


async def test_updates_that_wait_become_one_frame(make_node) -> None:
    a, b = await pair(make_node)
    frames = a.links.totals.stats()["b"].frames_sent
    for step in range(1000):
        a.links.send(b.origin, [Updates((bundle(step),))])
    await b.until(lambda: len(b.bundles) == 1000)
    assert a.links.totals.stats()["b"].frames_sent - frames < 10
    assert [one.step for one in b.bundles] == list(range(1000))


async def test_a_large_batch_is_given_to_the_core_in_slices(make_node) -> None:
    a, b = await pair(make_node)
    a.links.send(b.origin, [Updates(tuple(map(bundle, range(4096))))])
    await b.until(lambda: len(b.bundles) == 4096)
    assert all(len(message.bundles) == RECEIVED_BUNDLES for message in b.received_messages)


async def test_counters_agree_on_both_sides(make_node) -> None:
    a, b = await pair(make_node)
    a.links.send(b.origin, [Updates((bundle(1, updates=3), bundle(9)))])
    await b.until(lambda: b.bundles)
    sent, received = a.links.totals.stats()["b"], b.links.totals.stats()["a"]
    assert received.updates_received == 4
    assert sent.frames_sent == received.frames_received == 2  # hello, updates
    assert 0 < sent.bytes_sent == received.bytes_received
    await asyncio.gather(*b.links.look_back.tasks)
    b.links.send(a.origin, [Updates((bundle(2),))])
    await a.until(lambda: a.bundles)
    back, there = b.links.totals.stats()["a"], a.links.totals.stats()["b"]
    assert back.frames_sent == there.frames_received == 3  # hello, where b sees a, updates
    assert 0 < back.bytes_sent == there.bytes_received


@pytest.mark.parametrize("round_", range(5))
async def test_simultaneous_dials_yield_one_link(make_node, round_: int) -> None:
    a, b = make_node("a"), make_node("b")
    for node in (a, b):  # every link is tried by a ping that names its dialler
        node.on_connected = lambda peer, node=node: node.links.send(peer, [Ping(float(dialler(node, peer)))])
    await asyncio.gather(a.start(), b.start())
    a.dial(b)
    b.dial(a)
    for node, peer in ((a, b), (b, a)):
        await node.until(
            lambda node=node, peer=peer: node.linked and said_last(node) == float(dialler(node, peer.origin))
        )
    assert dialler(a, b.origin) == dialler(b, a.origin)
    a.links.send(b.origin, [Goodbye("still the same link")])
    await b.until(lambda: b.goodbyes)


def dialler(node, peer: int) -> int:
    return node.origin if node.links._links[peer].is_dialled else peer


def said_last(node) -> float | None:
    return node.received_messages[-1].sent_at if node.received_messages else None


@pytest.mark.parametrize("late_is_smaller", [True, False])
async def test_a_late_dial_does_not_replace_the_link(make_node, late_is_smaller: bool) -> None:
    late, early = sorted((make_node("a"), make_node("b")), key=lambda node: node.origin, reverse=not late_is_smaller)
    answered = asyncio.Event()

    async def sleep(seconds: float) -> None:
        answered.set()

    late.links._sleep = sleep
    await asyncio.gather(late.start(), early.start())
    early.dial(late)
    await early.until(lambda: early.linked)
    late.dial(early)
    await asyncio.wait_for(answered.wait(), 20)
    late.links.send(early.origin, [Ping(1.0)])
    await early.until(lambda: early.received_messages)
    assert [call[0] for call in late.calls] == ["connected"]
    assert [call[0] for call in early.calls] == ["connected", "received"]


async def test_a_link_that_is_dead_on_the_other_side_is_replaced_at_the_second_dial(make_node) -> None:
    peer = make_node("peer")

    async def forget(_, context) -> None:
        """Answers the hello as the peer would, and never says or reads anything again."""
        await context.read()
        await context.write(codec.encode(peer.hello())[0])
        await asyncio.Event().wait()

    server = make_server(forget, forget)
    port = bind(server, "127.0.0.1:0", plain_text())
    await server.start()
    node = await make_node("node").start(f"127.0.0.1:{port}")
    await node.until(lambda: node.linked)
    await peer.start(node)
    await peer.until(lambda: peer.linked)
    assert [call[0] for call in node.calls] == ["connected", "disconnected", "connected"]
    await node.links.close()
    await server.stop(None)


async def test_of_crossing_streams_the_larger_origin_gives_up_its_own(make_node) -> None:
    small, large = sorted((make_node("a"), make_node("b")), key=lambda node: node.origin)
    await large.start()
    await small.start(large)
    await large.until(lambda: large.linked)
    with pytest.raises(PeerError, match="already"):
        large.links._admit(small.hello(), large.hello(), type("Stream", (), {"is_dialled": True})())
    assert dialler(large, small.origin) == small.origin


async def test_a_peer_restarted_on_the_same_port_is_linked_again(make_node) -> None:
    a, b = await pair(make_node)
    port = b.port
    await b.links.close()
    await a.until(lambda: not a.linked)
    again = await make_node("b", listen=f"127.0.0.1:{port}", incarnation=2).start()
    await a.until(lambda: b.origin in a.linked)
    assert a.linked[again.origin].member.incarnation == 2


async def test_a_restarted_peer_replaces_its_half_dead_link(make_node) -> None:
    small, large = sorted((make_node("a"), make_node("b")), key=lambda node: node.origin)
    await asyncio.gather(small.start(), large.start())
    small.dial(large)
    await large.until(lambda: small.origin in large.linked)
    restarted = await make_node(large.member.name, incarnation=2).start(small)
    await restarted.until(lambda: small.origin in restarted.linked)
    assert small.linked[large.origin].member.incarnation == 2


async def test_an_older_incarnation_does_not_replace_a_link(make_node) -> None:
    b = await make_node("b").start()
    new = await make_node("a", incarnation=2).start(b)
    await b.until(lambda: new.origin in b.linked)
    old = await make_node("a", incarnation=1).start(b)
    with pytest.raises(PeerError, match="already"):
        b.links._admit(old.hello(), b.hello(), type("Stream", (), {"is_dialled": False})())
    assert b.linked[new.origin].member.incarnation == 2


async def test_an_older_incarnation_hears_of_the_newer_one_before_it_is_refused(make_node) -> None:
    """It may be the older of two processes with one key: only its core can tell."""
    b = await make_node("b").start()
    new = await make_node("a", incarnation=2).start(b)
    await b.until(lambda: new.origin in b.linked)
    old = await make_node("a", incarnation=1).start(b)
    await old.until(lambda: ("connected", b.origin) in [call[:2] for call in old.calls])
    await old.until(lambda: "disconnected" in [call[0] for call in old.calls])
    assert ("disconnected", b.origin, "already exists: there is a link with a already") in old.calls
    assert [call[:2] for call in b.calls] == [("connected", new.origin)]


async def test_whoever_was_dialled_and_is_replaced_by_a_newer_incarnation_is_dialled_once_more(make_node) -> None:
    old = await make_node("a", incarnation=1).start()
    b = await make_node("b").start(old)
    await b.until(lambda: b.linked)
    new = await make_node("a", incarnation=2).start(b)
    await b.until(lambda: b.linked.get(new.origin) and b.linked[new.origin].member.incarnation == 2)
    await old.until(lambda: [call[0] for call in old.calls].count("connected") == 2)
    assert [call[0] for call in b.calls] == ["connected", "disconnected", "connected"]


async def test_dialling_goes_on_until_the_peer_is_there(make_node) -> None:
    b = await make_node("b").start()
    port = b.port
    await b.links.close()
    sleeps: list[float] = []
    a = make_node("a")
    enough = asyncio.Event()

    async def sleep(seconds: float) -> None:
        sleeps.append(seconds)
        if len(sleeps) == 8:
            enough.set()
        await asyncio.sleep(0)

    a.links._sleep = sleep
    a.links._uniform = lambda low, high: high
    await a.start(f"127.0.0.1:{port}")
    await asyncio.wait_for(enough.wait(), 20)
    assert sleeps[:8] == [0.01, 0.02, 0.04, 0.08, 0.1, 0.1, 0.1, 0.1]
    again = await make_node("b", listen=f"127.0.0.1:{port}").start()
    await a.until(lambda: again.origin in a.linked)


@pytest.mark.parametrize(
    ("details", "told"),
    [
        (
            "errors resolving a:1: [field:hostname lookup error:address lookup failed for a:1: Domain name not found]",
            "Domain name not found",
        ),
        (
            "failed to connect to all addresses; last error: UNKNOWN: ipv6:%5B::1%5D:1: Connection refused",
            "Connection refused",
        ),
    ],
)
def test_why_an_address_cannot_be_reached_is_the_last_cause_alone(details: str, told: str) -> None:
    none = grpc.aio.Metadata()
    assert links._details(grpc.aio.AioRpcError(grpc.StatusCode.UNAVAILABLE, none, none, details)) == told


@pytest.mark.parametrize(
    ("code", "details", "told"),
    [
        (grpc.StatusCode.INTERNAL, "Internal error from Core", "the connection broke"),
        (grpc.StatusCode.UNAVAILABLE, "Connection reset by peer", "unavailable: Connection reset by peer"),
    ],
)
def test_a_link_ends_with_words_that_say_something(code: grpc.StatusCode, details: str, told: str) -> None:
    none = grpc.aio.Metadata()
    assert link._why(grpc.aio.AioRpcError(code, none, none, details)) == told


def test_why_a_link_ended_names_no_object() -> None:
    operation = 'Failed "execute_batch": (<grpc._cython.cygrpc.SendMessageOperation object at 0x7f1e>,)'
    assert link._why(grpc.aio.InternalError(operation)) == "the connection broke"


async def test_an_address_taken_out_of_the_list_loses_its_link(make_node) -> None:
    a, b = await pair(make_node)
    a.dial()
    await a.until(lambda: not a.linked)
    await b.until(lambda: not b.linked)


async def test_another_run_is_refused_and_both_sides_name_both_runs(make_node, caplog) -> None:
    b = await make_node("b", run="other").start()
    with caplog.at_level(logging.WARNING):
        a = await make_node("a").start(b)
        await a.until(lambda: len(a.refusals) >= 2)  # and it keeps trying
    error = a.refusals[0]
    assert isinstance(error, RunMismatchError)
    assert str(error).startswith(f"{b.address} belongs to another run")
    assert not b.calls
    ids = [node.run_id.hex()[:16] for node in (a, b)]
    assert all(run in str(error) for run in ids)
    (line,) = {line for line in caplog.messages if line.startswith("refused")}
    assert all(run in line for run in ids)


@pytest.mark.parametrize(
    ("attribute", "value", "sentence"),
    [
        ("base_digest", b"\1" * 32, "the base model or its tokenizer differs"),
        ("protocol_version", 1, "run the same release of seedflood"),
    ],
)
async def test_another_base_model_or_protocol_is_refused(
    make_node, attribute: str, value: object, sentence: str
) -> None:
    b = make_node("b")
    setattr(b, attribute, value)
    await b.start()
    a = await make_node("a").start(b)
    await a.until(lambda: a.refusals)
    assert isinstance(a.refusals[0], RunMismatchError)
    assert sentence in str(a.refusals[0])


async def test_a_peer_that_is_not_welcome_learns_why(make_node) -> None:
    def refuse(hello: Hello) -> None:
        raise PeerError("a is not in [[peers]] of b", reason="allow-list")

    b = make_node("b")
    b.on_welcome = refuse
    await b.start()
    a = await make_node("a").start(b)
    await a.until(lambda: a.refusals)
    assert isinstance(a.refusals[0], PeerError)
    assert a.refusals[0].reason == "allow-list"
    assert "not in [[peers]] of b" in str(a.refusals[0])


async def test_a_dialled_peer_that_is_not_welcome_is_refused_by_the_dialler(make_node) -> None:
    def refuse(hello: Hello) -> None:
        raise PeerError("unknown key", reason="allow-list")

    b = await make_node("b").start()
    a = make_node("a")
    a.on_welcome = refuse
    await a.start(b)
    await a.until(lambda: a.refusals)
    await b.until(lambda: ("connected", a.origin) in b.calls and not b.linked)
    assert not a.linked


async def test_streams_without_a_hello_take_each_others_places_and_keep_nobody_out(make_node) -> None:
    b = await make_node("b").start()
    async with contextlib.AsyncExitStack() as stack:
        calls = []
        for _ in range(2 * HALF_OPEN_MAX):
            channel = await stack.enter_async_context(grpc.aio.insecure_channel(b.address, options=CHANNEL_OPTIONS))
            calls.append(channel.stream_stream(LINK_PATH)())
            await calls[-1].wait_for_connection()
        ended = [asyncio.create_task(call.code()) for call in calls]
        await asyncio.wait(ended, return_when=asyncio.FIRST_COMPLETED)
        a = await make_node("a").start(b)
        await a.until(lambda: a.linked)
        assert len(b.links._door._half_open) <= HALF_OPEN_MAX
        for call in calls:
            call.cancel()
        await asyncio.gather(*ended, return_exceptions=True)


async def test_a_node_with_all_the_links_that_it_takes_refuses_more_and_is_dialled_again(make_node) -> None:
    hub = await make_node("hub", links_max=1).start()
    a = await make_node("a").start(hub)
    await a.until(lambda: a.linked)
    late = await make_node("late").start()
    dials = asyncio.Event()

    async def sleep(seconds: float) -> None:
        dials.set()
        await asyncio.sleep(0.01)

    late.links._sleep = sleep
    late.dial(hub)
    await asyncio.wait_for(dials.wait(), 20)
    assert not late.linked
    assert not late.refusals
    await a.links.close()
    await late.until(lambda: late.linked)


@pytest.mark.parametrize("late_dials", [True, False])
async def test_a_link_that_no_statement_has_room_for_is_refused_with_a_reason(
    make_node, monkeypatch, caplog, late_dials: bool
) -> None:
    monkeypatch.setattr(links, "NEIGHBOURS_MAX", 1)
    hub, a, late = await make_node("hub").start(), await make_node("a").start(), await make_node("late").start()
    hub.dial(a)
    await hub.until(lambda: hub.linked)
    tried = asyncio.Event()

    async def sleep(seconds: float) -> None:
        tried.set()
        await asyncio.sleep(0.01)

    (late if late_dials else hub).links._sleep = sleep
    with caplog.at_level(logging.WARNING):
        if late_dials:
            late.dial(hub)
        else:
            hub.dial(a, late)
        await asyncio.wait_for(tried.wait(), 20)
    assert "this node has 1 links already" in caplog.text
    assert not late.linked
    assert set(hub.linked) == {a.origin}


async def test_a_node_does_not_link_with_itself(make_node, caplog: pytest.LogCaptureFixture) -> None:
    a = await make_node("a").start()
    with caplog.at_level(logging.WARNING):
        a.dial(a)
        await a.until(lambda: a.refusals)
    assert isinstance(a.refusals[0], PeerError)
    assert a.refusals[0].reason == "self"
    assert "take the address out of [[peers]]" in caplog.text


async def test_a_message_that_the_core_refuses_ends_the_link(make_node) -> None:
    def refuse(peer: int, message: object) -> None:
        if isinstance(message, Updates):
            raise PeerError("forged", reason="signature")

    a, b = await pair(make_node)
    b.on_received = refuse
    a.links.send(b.origin, [Updates((bundle(1),))])
    await b.until(lambda: ("disconnected", a.origin, "refused (signature): forged") in b.calls)
    await a.until(lambda: ("disconnected", b.origin) in [call[:2] for call in a.calls])
    assert "forged" in next(call[2] for call in a.calls if call[0] == "disconnected")
    await a.until(lambda: b.origin in a.linked)  # linked again; to cut a peer off is the core's decision


async def test_a_peer_that_sends_what_is_of_no_use_is_muted_and_nothing_of_it_is_lost(make_node) -> None:
    a, b = await pair(make_node)
    b.use = lambda message: Use(in_vain=1500)
    for step in range(3):
        a.links.send(b.origin, [Updates((bundle(step),)), Goodbye("") if step == 2 else Members((a.member,))])
    await b.until(lambda: b.goodbyes)
    assert [one.step for one in b.bundles] == [0, 1, 2]
    assert b.links.totals.stats()["a"].muted_seconds > 0
    assert a.links.totals.stats()["b"].muted_seconds == 0


@pytest.mark.parametrize("message", [PullMore(1), PullEnd(1, is_complete=False)])
async def test_a_peer_that_goes_on_and_on_about_no_pull_is_muted(make_node, message, monkeypatch) -> None:
    monkeypatch.setitem(ALLOWANCES, "frames", Allowance(per_second=10, burst=100))  # however long frames take here
    b, other = await make_node("b").start(), make_node("other")
    hello, frame, goodbye = (codec.encode(one)[0] for one in (other.hello(), message, Goodbye("")))
    await rogue(b, hello, *[frame] * 130, goodbye)
    assert b.links.totals.stats()["other"].muted_seconds > 0


async def test_whoever_was_cut_off_for_a_fault_waits_unless_we_dial_it(make_node) -> None:
    def refuse(peer: int, message: object) -> None:
        if isinstance(message, Updates):
            raise PeerError("forged", reason="signature")

    a, b = await pair(make_node)
    for _ in range(2):
        b.on_received = refuse
        a.links.send(b.origin, [Updates((bundle(1),))])
        await a.until(lambda: not a.linked)
        b.on_received = lambda peer, message: None
        a.refusals.clear()
        await a.until(lambda: a.linked or a.refusals)
        assert not a.linked
        assert a.refusals[-1].reason == "budget"
        await a.until(lambda: a.linked)
        await b.until(lambda: b.linked)
    assert b.links.totals.faults["signature"] == 2
    assert b.links.totals.faults["budget"] > 0
    b.links._found["configured"] = a.origin
    b.on_received = refuse
    refusals = len(a.refusals)
    a.links.send(b.origin, [Updates((bundle(1),))])
    await a.until(lambda: not a.linked)
    await a.until(lambda: a.linked)
    assert len(a.refusals) == refusals


async def test_acknowledgements_that_nobody_asked_for_let_no_more_of_an_answer_go(make_node) -> None:
    a, b = await pair(make_node)
    taken = 0

    def journal(frontier):
        nonlocal taken
        for taken in range(1, 101):
            yield Updates((bundle(taken),))

    b.journal = journal
    link = b.links.open[a.origin]
    link._receive(codec.Pull(1, ()))
    for _ in range(50):
        link._receive(codec.PullMore(1))
    assert link._answering._allowed == PULL_PARTS


async def test_a_fault_of_our_own_is_reported_and_does_not_end_the_node(make_node) -> None:
    def fail(peer: int, message: object) -> None:
        raise OSError("disk full")

    a, b = await pair(make_node)
    b.on_received = fail
    a.links.send(b.origin, [Ping(1.0)])
    await b.until(lambda: b.failures)
    await b.until(lambda: ("disconnected", a.origin) in [call[:2] for call in b.calls])
    assert isinstance(b.failures[0], OSError)


async def test_goodbye_is_the_last_message_after_everything_queued(make_node) -> None:
    for leaver_dialled in (True, False):
        a, b = await pair(make_node)
        leaver, other = (a, b) if leaver_dialled else (b, a)
        leaver.links.send(other.origin, [Updates(tuple(map(bundle, range(9000))))])
        await leaver.links.drain(10)
        await other.until(lambda other=other: not other.linked)
        assert len(other.bundles) == 9000
        assert isinstance(other.received_messages[-1], Goodbye)
        assert any(call[0] == "disconnected" and call[2] == "goodbye: stopping" for call in other.calls)
        assert not any(one.links_lost for node in (a, b) for one in node.links.totals.stats().values())
        await a.links.close()
        await b.links.close()


async def test_drain_does_not_wait_for_a_peer_that_does_not_read(make_node) -> None:
    b = await make_node("b").start()
    async with channel_to(b.address) as channel:
        mute = make_node("mute")
        call = channel.stream_stream(LINK_PATH)()
        await call.write(frame_of(mute.hello()).SerializeToString())
        await b.until(lambda: b.linked)
        b.links.send(mute.origin, [Updates(tuple(bundle(k, updates=64) for k in range(20_000)))])
        await b.links.drain(0.1)
        await b.links.close()
    assert not b.linked


async def test_a_full_queue_drops_the_oldest_updates_and_keeps_the_newest_digest(make_node) -> None:
    b = await make_node("b", queue_bundles_max=10_000).start()
    async with channel_to(b.address) as channel:
        slow = make_node("slow")
        call = channel.stream_stream(LINK_PATH)()
        await call.write(frame_of(slow.hello()).SerializeToString())
        await b.until(lambda: b.linked)
        for k in range(300):
            b.links.send(slow.origin, [Updates(tuple(bundle(k * 100 + j, updates=64) for j in range(100)))])
            b.links.send(slow.origin, [FrontierDigest(bytes(32), before=k)])
        stats = b.links.totals.stats()["slow"]
        assert stats.updates_dropped >= 64 * 20_000
        digests, steps = [], []
        while digests[-1:] != [299]:
            frame = await call.read()
            message = codec.decode(frame)
            if isinstance(message, FrontierDigest):
                digests.append(message.before)
            elif isinstance(message, Updates):
                steps += [one.step for one in message.bundles]
        assert digests == sorted(digests)
        assert steps == sorted(steps)
        assert steps[-1] == 29_999
        assert len(steps) * 64 + b.links.totals.stats()["slow"].updates_dropped == 30_000 * 64
        call.cancel()
    await b.until(lambda: not b.linked)


async def test_messages_of_an_algorithm_arrive_in_order_on_both_sides(make_node) -> None:
    a, b = await pair(make_node)
    said = [Opaque(bytes([k]) * size) for k, size in enumerate((1, 1000, OPAQUE_BYTES_MAX))]
    a.links.send(b.origin, said)
    b.links.send(a.origin, said)
    for node in (a, b):
        await node.until(lambda node=node: len(node.received_messages) == 3)
        assert node.received_messages == said


async def test_a_peer_that_does_not_read_gets_the_newest_messages_of_an_algorithm(make_node) -> None:
    b = await make_node("b").start()
    count = 400  # 100 MB
    async with channel_to(b.address) as channel:
        slow = make_node("slow")
        call = channel.stream_stream(LINK_PATH)()
        await call.write(frame_of(slow.hello()).SerializeToString())
        await b.until(lambda: b.linked)
        for k in range(count):
            b.links.send(slow.origin, [Opaque(k.to_bytes(2, "big") + bytes(OPAQUE_BYTES_MAX - 2))])
        dropped = b.links.totals.stats()["slow"].updates_dropped
        assert dropped >= count - QUEUE_BYTES_MAX // OPAQUE_BYTES_MAX - 1
        heard: list[int] = []
        while heard[-1:] != [count - 1]:
            message = codec.decode(await call.read())
            if isinstance(message, Opaque):
                heard.append(int.from_bytes(message.data[:2], "big"))
        assert heard == sorted(heard)
        assert len(heard) + dropped == count
        call.cancel()
    await b.until(lambda: not b.linked)


@pytest.mark.long
async def test_a_stream_on_which_nothing_is_said_for_long_is_kept(monkeypatch) -> None:
    """gRPC's pings are all that there is on a connection for contents between two of them."""

    def hurried(options):  # a ping each second
        return [
            (name, value // 15 if "e_time_ms" in name or "ping_interval" in name else value) for name, value in options
        ]

    async def accept(_, context: grpc.aio.ServicerContext) -> None:
        await context.write(await context.read())
        await context.read()

    monkeypatch.setattr("seedflood.transport.server.SERVER_OPTIONS", hurried(SERVER_OPTIONS))
    server = make_server(accept, accept)
    port = bind(server, "127.0.0.1:0", plain_text())
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=hurried(CHANNEL_OPTIONS)) as channel:
        call = channel.stream_stream(LINK_PATH)()
        await call.write(b"here")
        assert await call.read() == b"here"
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(call.read(), 7)
    await server.stop(0)


async def test_a_port_in_use_is_named(make_node) -> None:
    a = await make_node("a").start()
    with pytest.raises(BindError, match="in use; stop the other process or choose another port"):
        await make_node("b", listen=a.address).start()


@pytest.mark.parametrize(
    ("address", "sentence"),
    [
        ("203.0.113.1:7777", "not an address of this machine"),
        ("no-such-host.invalid:7777", "not a host and port"),
        ("127.0.0.1:port", "not a host and port"),
        ("127.0.0.1:99999", "not a host and port"),
    ],
)
async def test_an_address_that_cannot_be_had_is_named(make_node, address: str, sentence: str) -> None:
    with pytest.raises(BindError, match=sentence) as caught:
        await make_node("a", listen=address).start()
    assert address in str(caught.value)


async def test_names_of_many_hosts_link_in_a_mesh(make_node) -> None:
    nodes = [make_node(f"n{k}") for k in range(5)]
    for node in nodes:
        await node.start()
    for node in nodes:
        node.dial(*(other for other in nodes if other is not node))
    for node in nodes:
        await node.until(lambda node=node: len(node.linked) == 4)


async def test_a_peer_that_asks_to_be_dialled_again_is_no_cause_for_alarm(make_node, caplog) -> None:
    """As a relay that has learned the run by our hello."""
    b = await make_node("b").start()
    answers = [PeerError("this relay has just learned the run", reason="stopping")]

    def welcome(hello: Hello) -> None:
        if answers:
            raise answers.pop()

    b.on_welcome = welcome
    with caplog.at_level(logging.INFO, logger="seedflood.transport.links"):
        a = await make_node("a").start(b)
        await a.until(lambda: b.origin in a.linked)
    told = [(one.levelno, one.getMessage()) for one in caplog.records if "just learned" in one.getMessage()]
    assert (logging.INFO, f"{b.address} says: this relay has just learned the run; it is dialled again") in told
    assert all(level == logging.INFO for level, _ in told)
