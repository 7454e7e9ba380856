"""gRPC health, asked by real clients on the node's own port."""

import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from seedflood.transport.door import Door
from seedflood.transport.health import SERVICES, WATCHES_MAX, Health

SERVING, NOT_SERVING = health_pb2.HealthCheckResponse.SERVING, health_pb2.HealthCheckResponse.NOT_SERVING


@pytest.fixture
async def make_server(make_node):
    servers = []

    async def make(health):
        server = grpc.aio.server()
        await health.add_to(server, Door(make_node("a").hello, lambda reason: None))
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        servers.append(server)
        return f"127.0.0.1:{port}"

    yield make
    for server in servers:
        await server.stop(None)


@pytest.mark.parametrize("service", SERVICES)
async def test_a_service_is_serving_exactly_while_the_node_is_ready(make_server, service):
    health = Health()
    async with grpc.aio.insecure_channel(await make_server(health)) as channel:
        watch = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest(service=service))
        heard = [(await watch.read()).status]
        for is_serving in (True, False):
            health.tell(is_serving=is_serving)
            heard.append((await watch.read()).status)
        watch.cancel()
    assert heard == [NOT_SERVING, SERVING, NOT_SERVING]


async def test_what_was_told_last_is_what_is_said(make_server):
    health = Health()
    address = await make_server(health)
    for is_serving in (True, False, True, False):
        health.tell(is_serving=is_serving)
    async with grpc.aio.insecure_channel(address) as channel:
        answer = await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest())
    assert answer.status == NOT_SERVING


async def test_an_unknown_service_is_not_found(make_server):
    async with grpc.aio.insecure_channel(await make_server(Health())) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as fault:
            await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(service="nothing"))
    assert fault.value.code() is grpc.StatusCode.NOT_FOUND


async def test_watches_of_strangers_take_each_others_places_and_no_others(make_server):
    health = Health()
    address = await make_server(health)
    async with grpc.aio.insecure_channel(address) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        watches = []
        for _ in range(2 * WATCHES_MAX):
            watches.append(stub.Watch(health_pb2.HealthCheckRequest()))
            await watches[-1].read()
        assert health.watches == WATCHES_MAX
        for watch in watches[:WATCHES_MAX]:
            assert await watch.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        health.tell(is_serving=True)
        assert [(await watch.read()).status for watch in watches[WATCHES_MAX:]] == [SERVING] * WATCHES_MAX
        assert (await stub.Check(health_pb2.HealthCheckRequest())).status == SERVING


async def test_a_watch_that_ends_gives_its_place_back(make_server):
    health = Health()
    async with grpc.aio.insecure_channel(await make_server(health)) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        watch = stub.Watch(health_pb2.HealthCheckRequest())
        await watch.read()
        assert health.watches == 1
        watch.cancel()
        for _ in range(100):  # a round trip each
            if health.watches:
                await stub.Check(health_pb2.HealthCheckRequest())
    assert not health.watches
