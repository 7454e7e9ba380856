"""gRPC health (grpc.health.v1) and reflection on the node's own port, for probes that speak gRPC.

Every service is NOT_SERVING while the node loads, catches up or drains, though links are served all the time: the
status is for load balancers and orchestrators, not for neighbours. Anyone may ask, so long streams (watches,
reflection) have a limited number of places (`crowd`). With grpcio's own servicer they could take all streams of the
server, and one that does not read would delay the others.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
import grpc.aio
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1.health import SERVICE_NAME as HEALTH_SERVICE
from grpc_reflection.v1alpha import reflection, reflection_pb2_grpc

from seedflood.transport.crowd import Crowd, host_of
from seedflood.transport.server import SERVICE
from seedflood.wire import flood_pb2

SERVICES = ("", SERVICE)

WATCHES_MAX = 32
REFLECTIONS_MAX = 8
REFLECTION_SECONDS = 10.0

_STATUS = health_pb2.HealthCheckResponse


class Health:
    """`add_to` the server before it starts; `tell` whenever readiness changes."""

    def __init__(self, *, has_reflection: bool) -> None:
        self._has_reflection = has_reflection
        self._servicer = _HealthServicer()

    @property
    def watches(self) -> int:
        return len(self._servicer.watches)

    async def add_to(self, server: grpc.aio.Server) -> None:
        health_pb2_grpc.add_HealthServicer_to_server(self._servicer, server)
        if self._has_reflection:
            assert flood_pb2.DESCRIPTOR.services_by_name["Flood"].full_name == SERVICE
            services = (SERVICE, HEALTH_SERVICE, reflection.SERVICE_NAME)
            reflection_pb2_grpc.add_ServerReflectionServicer_to_server(_Reflection(services), server)

    def tell(self, *, is_serving: bool) -> None:
        self._servicer.tell(_STATUS.SERVING if is_serving else _STATUS.NOT_SERVING)


class _HealthServicer(health_pb2_grpc.HealthServicer):  # type: ignore[misc]
    def __init__(self) -> None:
        self.watches = Crowd(WATCHES_MAX)
        self._status = _STATUS.NOT_SERVING
        self._changed = asyncio.Event()
        """Set when the present status ends. The next status has another event."""

    def tell(self, status: int) -> None:
        if status != self._status:
            self._status = status
            self._changed.set()
            self._changed = asyncio.Event()

    async def Check(self, request: Any, context: Any) -> Any:  # noqa: N802 -- gRPC's name
        if request.service not in SERVICES:
            await context.abort(grpc.StatusCode.NOT_FOUND)
        return _STATUS(status=self._status)

    async def Watch(self, request: Any, context: Any) -> None:  # noqa: N802
        """Sends the status whenever it changes. A slow reader gets the newest one, and may miss some in between."""
        is_known = request.service in SERVICES
        said = None
        try:
            async with self.watches.enter(host_of(context.peer())):
                while True:
                    changed = self._changed
                    status = self._status if is_known else _STATUS.SERVICE_UNKNOWN
                    if status != said:
                        said = status
                        await context.write(_STATUS(status=status))
                    await changed.wait()
        except TimeoutError:
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, f"there are more than {WATCHES_MAX} watches")


class _Reflection(reflection.aio.ReflectionServicer):  # type: ignore[misc]
    def __init__(self, services: tuple[str, ...]) -> None:
        super().__init__(services)
        self._streams = Crowd(REFLECTIONS_MAX)

    async def ServerReflectionInfo(self, requests: Any, context: Any) -> AsyncIterator[Any]:  # noqa: N802
        try:
            async with self._streams.enter(host_of(context.peer()), REFLECTION_SECONDS):
                async for answer in super().ServerReflectionInfo(requests, context):
                    yield answer
        except TimeoutError:
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "the stream was open for too long")
