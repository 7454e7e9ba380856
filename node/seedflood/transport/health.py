"""gRPC health (grpc.health.v1) on the node's own port, for probes that speak gRPC.

Every service is NOT_SERVING while the node loads, catches up or drains, though links are served all the time: the
status is for load balancers and orchestrators, not for neighbours. Anyone may ask, so requests come in by the door, and
watches have a limited number of places (`crowd`). grpcio's own servicer has none of that: it could take all streams of
the server, and a request that is garbage would be a traceback in the log.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import grpc.aio
from google.protobuf.message import DecodeError
from grpc_health.v1 import health_pb2
from grpc_health.v1.health import SERVICE_NAME as HEALTH_SERVICE

from seedflood.errors import PeerError
from seedflood.transport.crowd import Crowd, host_of
from seedflood.transport.door import Door
from seedflood.transport.server import SERVICE

SERVICES = ("", SERVICE)

WATCHES_MAX = 32

_STATUS = health_pb2.HealthCheckResponse


class Health:
    """`add_to` the server before it starts; `tell` whenever readiness changes."""

    def __init__(self) -> None:
        self._watches = Crowd(WATCHES_MAX)
        self._status = _STATUS.NOT_SERVING
        self._changed = asyncio.Event()
        """Set when the present status ends. The next status has another event."""

    @property
    def watches(self) -> int:
        return len(self._watches)

    async def add_to(self, server: grpc.aio.Server, door: Door) -> None:
        def by_door(answer: Callable[[str, Any], Awaitable[None]]) -> Any:
            async def handle(_: Any, context: Any) -> None:
                try:
                    request = _decode(await door.first_frame(context))
                    await answer(request.service, context)
                except PeerError as error:
                    await door.refuse(error, context)

            return grpc.stream_stream_rpc_method_handler(handle)

        handlers = {"Check": by_door(self._check), "Watch": by_door(self._watch)}
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(HEALTH_SERVICE, handlers),))

    def tell(self, *, is_serving: bool) -> None:
        status = _STATUS.SERVING if is_serving else _STATUS.NOT_SERVING
        if status != self._status:
            self._status = status
            self._changed.set()
            self._changed = asyncio.Event()

    async def _check(self, service: str, context: Any) -> None:
        if service not in SERVICES:
            await context.abort(grpc.StatusCode.NOT_FOUND)
        await context.write(_STATUS(status=self._status).SerializeToString())

    async def _watch(self, service: str, context: Any) -> None:
        """Sends the status whenever it changes. A slow reader gets the newest one, and may miss some in between."""
        said = None
        try:
            async with self._watches.enter(host_of(context.peer())):
                while True:
                    changed = self._changed
                    status = self._status if service in SERVICES else _STATUS.SERVICE_UNKNOWN
                    if status != said:
                        said = status
                        await context.write(_STATUS(status=status).SerializeToString())
                    await changed.wait()
        except TimeoutError:
            raise PeerError(f"there are more than {WATCHES_MAX} watches", reason="busy") from None


def _decode(frame: bytes) -> health_pb2.HealthCheckRequest:
    """Raises PeerError."""
    try:
        return health_pb2.HealthCheckRequest.FromString(frame)
    except DecodeError:
        raise PeerError("no HealthCheckRequest", reason="frame") from None
