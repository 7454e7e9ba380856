"""A TCP proxy that makes links long or narrow: in both directions every byte leaves so many seconds after it came, and
no more bytes a second leave than the link carries.

In a process of its own, so that it does not wait for anyone's model. What is read stays in order, and an end that is
closed is passed on. What does not fit waits in a queue without an end, as in a router with too much memory: whoever
sends too much delays all else on that link.
"""

import asyncio
import os
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Self

from benchmarks.workers import Worker, next_question

READ_BYTES = 1 << 16
PIECE_SECONDS = 0.001
"""Of a narrow link so much is passed on at once."""


@dataclass(frozen=True, slots=True)
class Line:
    """seconds: of one way. bytes_per_second: None without a limit."""

    seconds: float
    bytes_per_second: float | None

    @property
    def read_bytes(self) -> int:
        if self.bytes_per_second is None:
            return READ_BYTES
        return max(1, min(READ_BYTES, int(self.bytes_per_second * PIECE_SECONDS)))

    def passing_seconds(self, size: int) -> float:
        return size / self.bytes_per_second if self.bytes_per_second is not None else 0.0


class DelayedLinks:
    """Listens on ports of loopback for others there; ends with its context."""

    def __init__(self, targets: Mapping[int, int], seconds: float, bytes_per_second: float | None = None) -> None:
        """targets: port to listen on -> port to pass on to. seconds: of one way. bytes_per_second: of each connection
        and direction; None: no limit."""
        self._open = ExitStack()
        self._arguments = dict(targets), Line(seconds, bytes_per_second)

    def __enter__(self) -> Self:
        self._open.enter_context(Worker(_serve, *self._arguments)).receive()
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()


def _serve(pipe: Connection, targets: dict[int, int], line: Line) -> None:
    asyncio.run(_listen(pipe, targets, line))


async def _listen(pipe: Connection, targets: dict[int, int], line: Line) -> None:
    for port, target in targets.items():

        async def join(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, target: int = target) -> None:
            try:
                far_reader, far_writer = await asyncio.open_connection("127.0.0.1", target)
            except OSError:  # it does not listen yet, or any more: the dialling side tries again
                writer.close()
                return
            await asyncio.gather(_pass_on(reader, far_writer, line), _pass_on(far_reader, writer, line))

        await asyncio.start_server(join, "127.0.0.1", port)
    pipe.send(True)
    await asyncio.to_thread(next_question, pipe)
    os._exit(0)  # connections end with the process


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, line: Line) -> None:
    """Until the reader ends; then the writer ends, too, so much later."""
    loop = asyncio.get_running_loop()
    free_at = loop.time()
    on_the_way: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()

    async def deliver() -> None:
        while True:
            due, data = await on_the_way.get()
            await asyncio.sleep(due - loop.time())
            if not data:
                break
            writer.write(data)
            await writer.drain()

    delivering = asyncio.create_task(deliver())
    try:
        data = b"first"
        while data and not delivering.done():
            data = await reader.read(line.read_bytes)
            free_at = max(free_at, loop.time()) + line.passing_seconds(len(data))
            on_the_way.put_nowait((free_at + line.seconds, data))
        await delivering
    except OSError:  # a node was killed, or has ended
        delivering.cancel()
    finally:
        writer.close()
