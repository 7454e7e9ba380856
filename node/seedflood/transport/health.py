"""gRPC health (grpc.health.v1) and reflection on the node's own port, for probes that speak gRPC.

Every service is NOT_SERVING while the node loads, catches up or drains, though links are served all the time: it is
said to balancers and orchestrators, not to neighbours.
"""

import asyncio

import grpc.aio
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1.health import SERVICE_NAME as HEALTH_SERVICE
from grpc_health.v1.health import aio
from grpc_reflection.v1alpha import reflection

from seedflood.transport.server import SERVICE
from seedflood.wire import flood_pb2

SERVICES = ("", SERVICE)

_STATUS = health_pb2.HealthCheckResponse


class Health:
    """`add_to` the server before it starts; `tell` whenever readiness changes."""

    def __init__(self, *, has_reflection: bool) -> None:
        self._has_reflection = has_reflection
        self._servicer = aio.HealthServicer()
        self._telling: asyncio.Task[None] | None = None
        self._is_serving = False

    async def add_to(self, server: grpc.aio.Server) -> None:
        await self._set()
        health_pb2_grpc.add_HealthServicer_to_server(self._servicer, server)
        if self._has_reflection:
            assert flood_pb2.DESCRIPTOR.services_by_name["Flood"].full_name == SERVICE
            reflection.enable_server_reflection((SERVICE, HEALTH_SERVICE, reflection.SERVICE_NAME), server)

    def tell(self, *, is_serving: bool) -> None:
        """Returns at once."""
        self._is_serving = is_serving
        if self._telling is None or self._telling.done():
            self._telling = asyncio.create_task(self._tell(), name="health")

    async def close(self) -> None:
        if self._telling is not None:
            await self._telling

    async def _tell(self) -> None:
        """Until what was told last is what is said."""
        said = not self._is_serving
        while said != self._is_serving:
            said = self._is_serving
            await self._set()

    async def _set(self) -> None:
        status = _STATUS.SERVING if self._is_serving else _STATUS.NOT_SERVING
        for service in SERVICES:
            await self._servicer.set(service, status)
