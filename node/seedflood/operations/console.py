"""The console: the hub and all that lets people watch a node. It opens before the node is loaded, and closes last."""

import asyncio
from contextlib import AsyncExitStack

from seedflood.config import Settings
from seedflood.listening import connections
from seedflood.operations.crowding import Crowding
from seedflood.operations.hub import TelemetryHub
from seedflood.operations.lag import LoopLag
from seedflood.operations.server import OperationsServer
from seedflood.protocol.origin import OriginId

LOOK_SECONDS = 5.0
"""Time between two looks at how crowded the ports are."""


class Console:
    """`Console.open`, then feed the hub. address: of the HTTP server; None if there is none."""

    def __init__(self, hub: TelemetryHub, address: str | None, open_parts: AsyncExitStack) -> None:
        self.hub = hub
        self.address = address
        self._open_parts = open_parts

    @classmethod
    async def open(cls, settings: Settings, origin: OriginId) -> "Console":
        """Opens all parts that the settings ask for. Raises SeedfloodError, and leaves nothing open then."""
        async with AsyncExitStack() as undo:
            hub = TelemetryHub(settings, origin)
            undo.push_async_callback(asyncio.to_thread, hub.close)
            lag = LoopLag(hub.tally.registry)
            lag.start(asyncio.get_running_loop())
            undo.callback(lag.stop)
            await asyncio.to_thread(hub.recall)
            address = None
            if settings.node.http:
                server = OperationsServer(hub)
                undo.push_async_callback(server.close)
                await server.start()
                address = server.address
            undo.callback(asyncio.create_task(_look_at_ports(hub, address)).cancel)
            return cls(hub, address, undo.pop_all())

    async def close(self) -> None:
        """Idempotent."""
        await self._open_parts.aclose()


async def _look_at_ports(hub: TelemetryHub, address: str | None) -> None:
    crowding = Crowding(int(address.rpartition(":")[2]) if address is not None else 0, hub.log)
    while True:
        await asyncio.sleep(LOOK_SECONDS)
        crowding.look(await asyncio.to_thread(connections))
