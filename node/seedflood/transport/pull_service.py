"""Flood.Pull: answers pulls of those who have no link.

On a secured port only origins that may link are answered. On a plain one nobody has a name, so there the run must be
open, and who asks must know its id.
"""

import asyncio
from typing import Any

import grpc
import grpc.aio

from seedflood.errors import JournalError, PeerError
from seedflood.protocol.frontier import Held
from seedflood.transport.answer import cut
from seedflood.transport.budget import Budgets
from seedflood.transport.codec import decode_pull_request, encode
from seedflood.transport.credentials import Credentials
from seedflood.transport.crowd import Crowd, host_of
from seedflood.transport.door import Door
from seedflood.transport.owner import Owner

PULLS_MAX = 4
"""The most answers at the same time."""


REQUEST_BYTES = 4096
"""Each this many bytes of a request cost as much as one more request."""


class PullService:
    """donor: the node that has the journal."""

    def __init__(self, donor: Owner, credentials: Credentials, door: Door) -> None:
        self._donor = donor
        self._credentials = credentials
        self._door = door
        self._answers = Crowd(PULLS_MAX)
        self._budgets = Budgets()

    async def answer(self, _: Any, context: grpc.aio.ServicerContext) -> None:
        """Sends the answer one part at a time, and reads the journal only as fast as the asker takes them."""
        donor, source = self._donor, host_of(context.peer())
        try:
            request = await self._door.first_frame(context)
            self._charge(source, len(request))
            donor.may_pull(self._credentials.caller(context))
            run_id, frontier = decode_pull_request(request)
            if run_id != donor.hello().run_id:
                raise PeerError("the request names another run", reason="run")
            try:
                async with self._answers.enter(source):
                    await self._tell(frontier, context)
            except TimeoutError:
                raise PeerError(f"more than {PULLS_MAX} answers at a time", reason="busy") from None
        except PeerError as error:
            await self._door.refuse(error, context)
        except JournalError as error:
            donor.failed(error)
            await context.abort(grpc.StatusCode.UNAVAILABLE, "the journal cannot be read")

    def _charge(self, source: str, size: int) -> None:
        """Raises PeerError if an address sends too many requests. Called before a request is decoded, for it may be
        long."""
        now = asyncio.get_running_loop().time()
        conduct = self._budgets.of(source, 0, now)
        if conduct.take({"pulls": 1 + size / REQUEST_BYTES}, 0, now):
            raise PeerError("too many pulls from this address; later", reason="busy")

    async def _tell(self, frontier: tuple[Held, ...], context: Any) -> None:
        for part in cut(self._donor.pull_answer(frontier)):
            for frame in encode(part) if part is not None else ():
                await context.write(frame)
            await asyncio.sleep(0)
