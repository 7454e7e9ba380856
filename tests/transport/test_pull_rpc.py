"""Flood.Pull: the whole run, or what a frontier lacks, for those who have no link."""

import hashlib
import random

import grpc
import grpc.aio
import pytest

from seedflood.protocol.frontier import Held
from seedflood.protocol.seedflood.messages import Bundle, ClosedEpoch, Standing, Updates
from seedflood.protocol.swarm.messages import Members
from seedflood.transport.answer import Assembly
from seedflood.transport.budget import ALLOWANCES
from seedflood.transport.codec import decode
from seedflood.transport.server import SERVICE
from seedflood.wire import flood_pb2 as pb
from seedflood.wire.columns import frontier_to_wire

BUNDLES = tuple(Bundle(5, step, ((step, -step),), signature=bytes(64)) for step in range(1000))


def _journal(member):
    def missing(frontier: tuple[Held, ...]):
        mark = frontier[0].mark if frontier else 0
        yield Members((member,))
        for k in range(mark, len(BUNDLES), 400):
            yield Updates(BUNDLES[k : k + 400])

    return missing


def _request(run_id: bytes, *frontier: Held) -> bytes:
    return pb.PullRequest(run_id=run_id, frontier=frontier_to_wire(frontier)).SerializeToString()


async def _pull(address: str, request: bytes):
    async with grpc.aio.insecure_channel(address) as channel:
        frames = [frame async for frame in channel.unary_stream(f"/{SERVICE}/Pull")(request)]
    return [decode(frame) for frame in frames]


async def test_an_empty_frontier_gets_members_and_everything(make_node):
    node = make_node("a")
    node.journal = _journal(node.member)
    await node.start()
    messages = await _pull(node.address, _request(node.run_id))
    assert messages[0] == Members((node.member,))
    assert tuple(one for m in messages if isinstance(m, Updates) for one in m.bundles) == BUNDLES


async def test_a_frontier_gets_only_what_it_lacks(make_node):
    node = make_node("a")
    node.journal = _journal(node.member)
    await node.start()
    messages = await _pull(node.address, _request(node.run_id, Held(5, 990)))
    assert [one.step for m in messages if isinstance(m, Updates) for one in m.bundles] == list(range(990, 1000))


async def test_closed_epochs_and_the_standing_come_as_on_a_link(make_node):
    frontier = (Held(5, 0, ((3000, 3999),)),)
    answer = [ClosedEpoch(3, frontier, random.Random(0).randbytes(300_000)), Standing(frontier, bytes(32))]
    node = make_node("a")
    node.journal = lambda frontier: iter(answer)
    await node.start()
    parts = await _pull(node.address, _request(node.run_id))
    assembly = Assembly()
    assert [item for part in parts if (item := assembly.join(part)) is not None] == answer


async def test_whoever_asks_without_end_is_told_to_come_back(make_node):
    node = await make_node("a").start()
    request = _request(node.run_id)
    codes = []
    for _ in range(3 * int(ALLOWANCES["pulls"].burst)):
        try:
            await _pull(node.address, request)
        except grpc.aio.AioRpcError as refused:
            codes.append(refused.code())
    assert codes
    assert set(codes) == {grpc.StatusCode.RESOURCE_EXHAUSTED}


@pytest.mark.parametrize("request_bytes", [b"\xff\xff", _request(hashlib.sha256(b"other").digest())])
async def test_garbage_and_foreign_runs_are_refused(make_node, request_bytes):
    node = await make_node("a").start()
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await _pull(node.address, request_bytes)
    assert refused.value.code() in (grpc.StatusCode.FAILED_PRECONDITION, grpc.StatusCode.PERMISSION_DENIED)
