"""How long until everybody holds an update: sixteen processes on a ring, against unary echoes between two of them.

Every process runs a real node without a model (`relay`): driver, journal, links on uvloop. The clock starts when the
origin's bundle, durable by then, is handed to its links: earlier nobody may hear of it. It stops when the last of the
other fifteen has decoded and verified it, put it into its journal and passed it on. That is eight hops in either
direction. What comes before, signing and forcing the journal onto the disk, is the price of never contradicting
oneself after a crash, is paid once per step and not per hop, and is measured apart (`latency.publish_seconds`).

The yardstick is one unary call of grpc.aio that echoes as many bytes as the frame has, from the same process to its
neighbour, over a channel with the same options that is open already. Update and echo take turns, after a pause that
lets everything come to rest, so that neither finds warmer caches.

Then the same over mutual TLS, by other processes. Turn by turn the update crosses the same links.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import grpc
import grpc.aio
import uvloop

from benchmarks.measure import Metric, make_metric
from benchmarks.origins import SCALAR_SEEN_MAX
from benchmarks.relay import Relay, make_rules
from benchmarks.workers import Worker, next_question
from seedflood.identity import Identity
from seedflood.protocol.seedflood.bundles import LOSS_MAX
from seedflood.transport.credentials import Credentials, plain_text
from seedflood.transport.server import CHANNEL_OPTIONS, SERVER_OPTIONS

NODES = 16
HOPS = NODES // 2
TURNS = 48
WARM_UP_TURNS = 4
STEPS = 1 << 20
PAUSE_SECONDS = 0.1
FRAME_BYTES = 94
ECHO = "/benchmarks.Echo/Echo"


Sent = tuple[int, int, int, float, float]
"""(number of the node, its origin, step, when it began to publish, when the links had it)."""


def run() -> dict[str, Metric]:
    floods, echoes, publishing = measure()
    secured, secured_echoes, _ = measure(is_secured=True)
    return {
        "latency.to_echo": make_metric(_ratios(floods, echoes, HOPS), 1.5),
        "latency.flood_milliseconds": make_metric([1000 * one for one in floods]),
        "latency.echo_milliseconds": make_metric([1000 * one for one in echoes]),
        "latency.publish_milliseconds": make_metric([1000 * one for one in publishing]),
        "latency.tls_to_plain": make_metric(_ratios(secured, floods)),
        "latency.flood_tls_milliseconds": make_metric([1000 * one for one in secured]),
        "latency.echo_tls_milliseconds": make_metric([1000 * one for one in secured_echoes]),
    }


def _ratios(numerators: Sequence[float], denominators: Sequence[float], times: int = 1) -> list[float]:
    return [one / (times * other) for one, other in zip(numerators, denominators, strict=True)]


def measure(*, is_secured: bool = False) -> tuple[list[float], list[float], list[float]]:
    """Of each turn the seconds until all hold the update, those of an echo, and those before anyone may hear of it.
    is_secured: over mutual TLS."""
    with TemporaryDirectory(prefix="seedflood-latency-") as home, contextlib.ExitStack() as stack:
        workers = [stack.enter_context(Worker(serve_node, home, number, is_secured)) for number in range(NODES)]
        sent, echoes = take_turns(workers)
        held = [worker.ask("times") for worker in workers]
    floods = []
    for number, origin, step, _, sent_at in sent:
        others = [times for k, times in enumerate(held) if k != number]
        if not all((origin, step) in times for times in others):
            raise RuntimeError(f"the update of node {number} did not reach everybody")
        floods.append(max(times[origin, step] for times in others) - sent_at)
    return floods, echoes, [sent_at - began for *_, began, sent_at in sent]


def take_turns(workers: Sequence[Worker]) -> tuple[list[Sent], list[float]]:
    """Every node in turn publishes, then echoes; the first turns do not count."""
    ports, echo_ports = zip(*[worker.receive() for worker in workers], strict=True)
    addresses = [f"127.0.0.1:{port}" for port in ports]
    for number, worker in enumerate(workers):
        worker.tell("dial", addresses[(number + 1) % NODES])
    for worker in workers:
        worker.receive()
    sent: list[Sent] = []
    echoes: list[float] = []
    for turn in range(WARM_UP_TURNS + TURNS):
        number = turn % NODES
        time.sleep(PAUSE_SECONDS)
        origin, step, began, sent_at = workers[number].ask("publish")
        time.sleep(PAUSE_SECONDS)
        seconds = workers[0].ask("echo", f"127.0.0.1:{echo_ports[1]}")
        if turn >= WARM_UP_TURNS:
            sent.append((number, origin, step, began, sent_at))
            echoes.append(seconds)
    return sent, echoes


def serve_node(pipe: Connection, home: str, number: int, is_secured: bool) -> None:
    logging.disable(logging.WARNING)  # at the end each misses its neighbours
    folder = Path(home, f"node-{number + 1}")
    folder.mkdir()
    uvloop.run(_serve_node(pipe, folder, number, is_secured))


async def _serve_node(pipe: Connection, folder: Path, number: int, is_secured: bool) -> None:
    identity = Identity.generate()
    credentials: Credentials = Credentials(identity) if is_secured else plain_text()
    node = Relay(
        folder,
        identity,
        make_rules(NODES, STEPS),
        name=folder.name,
        notes_times=True,
        credentials=credentials,
    )
    echoes, echo_port = await _serve_echoes(credentials)
    channels: dict[str, grpc.aio.Channel] = {}
    random = Random(number)
    try:
        pipe.send((await node.start(), echo_port))
        while (question := await asyncio.to_thread(next_question, pipe)) is not None:
            match question:
                case ("dial", address):
                    node.links.dial([address])
                    await node.until(lambda: node.is_measuring and len(node.links.open) == 2)
                    pipe.send(True)
                case ("publish",):
                    await node.until(lambda: node.is_measuring)  # its last window may still be open
                    began = time.perf_counter()
                    value = random.randint(0, LOSS_MAX), random.randint(-SCALAR_SEEN_MAX, SCALAR_SEEN_MAX)
                    step = node.publish([value])
                    pipe.send((node.identity.origin, step, began, node.sent_at[step]))
                case ("echo", address):
                    if address not in channels:
                        channels[address] = credentials.open(address, CHANNEL_OPTIONS).channel
                        await channels[address].channel_ready()
                    pipe.send(await _echo(channels[address]))
                case ("times",):
                    pipe.send(node.received_at)
    finally:
        for channel in channels.values():
            await channel.close()
        await echoes.stop(None)
        await node.close()


async def _echo(channel: grpc.aio.Channel) -> float:
    """Seconds of one call."""
    call = channel.unary_unary(ECHO)
    began = time.perf_counter()
    await call(bytes(FRAME_BYTES))
    return time.perf_counter() - began


async def _serve_echoes(credentials: Credentials) -> tuple[grpc.aio.Server, int]:
    """A server of the same options that sends every request back, and its port."""

    async def echo(request: bytes, _: grpc.aio.ServicerContext) -> bytes:
        return request

    server = grpc.aio.server(options=SERVER_OPTIONS)
    service, _, method = ECHO.strip("/").partition("/")
    handlers = {method: grpc.unary_unary_rpc_method_handler(echo)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, handlers),))
    port = credentials.add_port(server, "127.0.0.1:0")
    await server.start()
    return server, port
