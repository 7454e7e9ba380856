"""gRPC health (grpc.health.v1, Check alone) on the node's own port, for probes that speak gRPC.

Every service is NOT_SERVING while the node loads, catches up or drains, though links are served all the time: the
status is for orchestrators, not for neighbours. Anyone may ask, so requests come in by the door. grpcio's own servicer
has no such limit, and a request that is garbage would be a traceback in the log. Its Watch is not served: it would hold
a stream of a stranger for ever, and probes do not use it.
"""

from typing import Any

import grpc
import grpc.aio
from google.protobuf.message import DecodeError
from grpc_health.v1 import health_pb2
from grpc_health.v1.health import SERVICE_NAME

from seedflood.errors import PeerError
from seedflood.transport.door import Door
from seedflood.transport.server import SERVICE

SERVICES = ("", SERVICE)

_STATUS = health_pb2.HealthCheckResponse


class Health:
    """is_serving: what is answered; changed whenever readiness changes."""

    def __init__(self, door: Door) -> None:
        self.is_serving = False
        self._door = door

    def add_to(self, server: grpc.aio.Server) -> None:
        """Before the server starts."""
        handlers = {"Check": grpc.stream_stream_rpc_method_handler(self._check)}
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE_NAME, handlers),))

    async def _check(self, _: Any, context: Any) -> None:
        async with self._door.attend(context):
            try:
                asked = health_pb2.HealthCheckRequest.FromString(await self._door.first_frame(context))
            except DecodeError:
                raise PeerError("no HealthCheckRequest", reason="frame") from None
            if asked.service not in SERVICES:
                await context.abort(grpc.StatusCode.NOT_FOUND)
            status = _STATUS.SERVING if self.is_serving else _STATUS.NOT_SERVING
            await context.write(_STATUS(status=status).SerializeToString())
