"""gRPC health, asked by real clients on the node's own port."""

import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from linked import channel_to

from seedflood.transport.health import SERVICES

SERVING, NOT_SERVING = health_pb2.HealthCheckResponse.SERVING, health_pb2.HealthCheckResponse.NOT_SERVING


async def check(node, service: str) -> int:
    async with channel_to(node.address) as channel:
        request = health_pb2.HealthCheckRequest(service=service)
        return (await health_pb2_grpc.HealthStub(channel).Check(request)).status


@pytest.mark.parametrize("service", SERVICES)
async def test_a_service_is_serving_exactly_while_the_node_is_ready(make_node, service):
    node = await make_node("a").start()
    heard = [await check(node, service)]
    for is_serving in (True, False):
        node.links.health.is_serving = is_serving
        heard.append(await check(node, service))
    assert heard == [NOT_SERVING, SERVING, NOT_SERVING]


async def test_an_unknown_service_is_not_found(make_node):
    node = await make_node("a").start()
    with pytest.raises(grpc.aio.AioRpcError) as fault:
        await check(node, "nothing")
    assert fault.value.code() is grpc.StatusCode.NOT_FOUND
