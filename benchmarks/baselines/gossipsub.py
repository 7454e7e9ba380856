"""Updates through one libp2p relay: a source, the relay and two sinks, each a process, gossipsub with strict signing.

Runs with an environment of its own (`environments`), so it imports nothing of the project. Every update is one
message, for each has another origin and gossipsub signs messages, not batches; the relay verifies every signature and
forwards to two sinks, as gossipsub does for its users. Limits that would drop messages at full speed are off. Prints
one JSON object: updates, seconds of wall clock, and seconds of the relay's processor, which is what is compared.

    python gossipsub.py UPDATES
"""

import json
import logging
import os
import resource
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import multiaddr
import trio
from libp2p import new_host
from libp2p.crypto.ed25519 import create_new_key_pair
from libp2p.peer.peerinfo import info_from_p2p_addr
from libp2p.pubsub import pubsub as pubsub_module
from libp2p.pubsub.gossipsub import PROTOCOL_ID, GossipSub
from libp2p.pubsub.pubsub import Pubsub
from libp2p.pubsub.rpc_queue import RpcQueue
from libp2p.tools.anyio_service import background_trio_service

TOPIC = "updates"
SINKS = 2
UPDATE_BYTES = 24
"""Origin 8, step 4, seed 4, scalar 8: what one of our bundles says beside its signature."""
WAITING_MAX = 1 << 20
"""A neighbour or subscriber that lags by 32 messages, the default of both queues, loses those that follow."""

MESH_SECONDS = 3.0
"""For subscriptions and grafts to settle."""
ANSWER_SECONDS_MAX = 240.0


@asynccontextmanager
async def node(core: int) -> AsyncIterator[tuple[Pubsub, str]]:
    """A host with pubsub on loopback: (pubsub, its address)."""
    logging.disable(logging.CRITICAL)
    pubsub_module.SUBSCRIPTION_CHANNEL_SIZE = WAITING_MAX
    pubsub_module.RpcQueue = partial(RpcQueue, max_size=WAITING_MAX)
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[core % len(cores)]})
    host = new_host(key_pair=create_new_key_pair())
    router = GossipSub(
        protocols=[PROTOCOL_ID],
        degree=3,
        degree_low=2,
        degree_high=4,
        heartbeat_interval=1,
        spam_protection_enabled=False,
        eclipse_protection_enabled=False,
    )
    pubsub = Pubsub(host, router, strict_signing=True)
    async with (
        host.run(listen_addrs=[multiaddr.Multiaddr("/ip4/127.0.0.1/tcp/0")]),
        background_trio_service(pubsub),
        background_trio_service(router),
    ):
        await pubsub.wait_until_ready()
        yield pubsub, str(host.get_addrs()[0])


async def relay() -> None:
    async with node(0) as (pubsub, address):
        subscription = await pubsub.subscribe(TOPIC)
        say(address=address)

        async def consume() -> None:
            async for _ in subscription:
                pass

        async with trio.open_nursery() as nursery:
            nursery.start_soon(consume)
            while await trio.to_thread.run_sync(sys.stdin.readline):
                used = resource.getrusage(resource.RUSAGE_SELF)
                say(cpu=used.ru_utime + used.ru_stime)
            nursery.cancel_scope.cancel()


async def source(address: str, updates: int) -> None:
    async with node(1) as (pubsub, _):
        await pubsub.subscribe(TOPIC)
        await pubsub.host.connect(info_from_p2p_addr(multiaddr.Multiaddr(address)))
        await trio.sleep(MESH_SECONDS)
        say(ready=True)
        await trio.to_thread.run_sync(sys.stdin.readline)
        for number in range(updates):
            await pubsub.publish(TOPIC, number.to_bytes(UPDATE_BYTES, "big"))
        await trio.to_thread.run_sync(sys.stdin.readline)


async def sink(address: str, updates: int) -> None:
    async with node(1) as (pubsub, _):
        subscription = await pubsub.subscribe(TOPIC)
        await pubsub.host.connect(info_from_p2p_addr(multiaddr.Multiaddr(address)))
        await trio.sleep(MESH_SECONDS)
        say(ready=True)
        seen: set[bytes] = set()
        with trio.move_on_after(ANSWER_SECONDS_MAX):
            while len(seen) < updates:
                seen.add((await subscription.get()).data)
        say(seen=len(seen), at=time.perf_counter())
        await trio.to_thread.run_sync(sys.stdin.readline)


def say(**facts: object) -> None:
    print(json.dumps(facts), flush=True)


class Role:
    """A process of this file."""

    def __init__(self, *words: object) -> None:
        command = [sys.executable, __file__, *map(str, words)]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )

    def tell(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def hear(self) -> dict[str, float]:
        assert self.process.stdout is not None
        received: dict[str, float] = json.loads(self.process.stdout.readline())
        return received


def measure(updates: int) -> None:
    middle = Role("relay")
    roles = [middle]
    try:
        address = middle.hear()["address"]
        sinks = [Role("sink", address, updates) for _ in range(SINKS)]
        origin = Role("source", address, updates)
        roles += [*sinks, origin]
        for role in (*sinks, origin):
            role.hear()
        middle.tell()
        cpu_before = middle.hear()["cpu"]
        began = time.perf_counter()
        origin.tell()
        seen = [role.hear() for role in sinks]
        middle.tell()
        cpu = middle.hear()["cpu"] - cpu_before
    finally:
        for role in roles:
            role.process.kill()
    say(
        updates=min(one["seen"] for one in seen),
        wanted=updates,
        seconds=max(one["at"] for one in seen) - began,
        relay_cpu_seconds=cpu,
    )


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["relay"]:
            trio.run(relay)
        case ["source", where, count]:
            trio.run(source, where, int(count))
        case ["sink", where, count]:
            trio.run(sink, where, int(count))
        case [count]:
            measure(int(count))
