"""A TCP proxy that delays: every byte leaves so many seconds after it came, in both directions, as over a long line.

In a process of its own, so that it does not wait for anyone's model. Bandwidth is not limited; what is read stays in
order, and an end that is closed is passed on.
"""

import asyncio
import multiprocessing
from collections.abc import Mapping
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Self

READ_BYTES = 1 << 16
START_SECONDS_MAX = 60.0


class DelayedLinks:
    """Listens on ports of loopback for others there; ends with its context."""

    def __init__(self, targets: Mapping[int, int], seconds: float) -> None:
        """targets: port to listen on -> port to pass on to. seconds: of one way."""
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, dict(targets), seconds), daemon=True)

    def __enter__(self) -> Self:
        self._process.start()
        if not self._pipe.poll(START_SECONDS_MAX):
            raise RuntimeError("the delaying proxy did not start")
        self._pipe.recv()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.terminate()
        self._process.join()


def _serve(pipe: Connection, targets: dict[int, int], seconds: float) -> None:
    asyncio.run(_listen(pipe, targets, seconds))


async def _listen(pipe: Connection, targets: dict[int, int], seconds: float) -> None:
    for port, target in targets.items():

        async def join(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, target: int = target) -> None:
            try:
                far_reader, far_writer = await asyncio.open_connection("127.0.0.1", target)
            except OSError:  # it does not listen yet, or any more: the dialling side tries again
                writer.close()
                return
            await asyncio.gather(_pass_on(reader, far_writer, seconds), _pass_on(far_reader, writer, seconds))

        await asyncio.start_server(join, "127.0.0.1", port)
    pipe.send(True)
    await asyncio.Event().wait()


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, seconds: float) -> None:
    """Until the reader ends; then the writer ends, too, so much later."""
    loop = asyncio.get_running_loop()
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
            data = await reader.read(READ_BYTES)
            on_the_way.put_nowait((loop.time() + seconds, data))
        await delivering
    except OSError:  # a node was killed, or has ended
        delivering.cancel()
    finally:
        writer.close()
