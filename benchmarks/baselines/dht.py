"""Updates through hivemind's DHT: a source stores records, a relay in the middle holds them, two sinks get them.

Runs with an environment of its own (`environments`), so it imports nothing of the project. Hivemind spreads tensors by
all-reduce, which needs the same tensor of everyone at the same moment; what its users have for small records that
every peer shall see is its DHT (progress reports and metrics go through it). A record needs a key, a value and a time
at which it expires; one with a signature needs a validator (`RSASignatureValidator`, hivemind's own, as its users set
it up). Source and sinks know the relay alone. Stores and gets of a batch run concurrently. Prints one JSON object:
updates, and seconds of wall clock until both sinks hold all of them.

    python dht.py UPDATES
"""

import json
import sys
import time
from functools import partial
from typing import Any

import hivemind
from hivemind.dht.crypto import RSASignatureValidator
from hivemind.utils.timed_storage import get_dht_time

SINKS = 2
UPDATE_BYTES = 24
CONCURRENT = 64
"""Stores or gets that are under way at once, of each process: more gained nothing."""
EXPIRES_SECONDS = 600.0


def name(number: int, owner: str) -> str:
    """A key that only its owner may store under."""
    return f"update-{number}-{owner}"


async def store_all(_: hivemind.DHT, node: Any, updates: int, owner: str) -> int:
    """How many were stored."""
    stored = 0
    for first in range(0, updates, CONCURRENT):
        keys = [name(number, owner) for number in range(first, min(first + CONCURRENT, updates))]
        done = await node.store_many(keys, [bytes(UPDATE_BYTES)] * len(keys), get_dht_time() + EXPIRES_SECONDS)
        stored += sum(done.values())
    return stored


async def get_all(_: hivemind.DHT, node: Any, updates: int, owner: str) -> int:
    """How many were found."""
    found = 0
    for first in range(0, updates, CONCURRENT):
        keys = [name(number, owner) for number in range(first, min(first + CONCURRENT, updates))]
        values = await node.get_many(keys)
        found += sum(value is not None for value in values.values())
    return found


def measure(updates: int) -> None:
    relay = hivemind.DHT(start=True, record_validators=[RSASignatureValidator()])
    peers = []
    try:
        where = relay.get_visible_maddrs()
        signer = RSASignatureValidator()
        peers.append(hivemind.DHT(initial_peers=where, start=True, record_validators=[signer]))
        for _ in range(SINKS):
            validator = RSASignatureValidator()
            peers.append(hivemind.DHT(initial_peers=where, start=True, record_validators=[validator]))
        source, *sinks = peers
        owner = signer.local_public_key.decode()
        began = time.perf_counter()
        stored = source.run_coroutine(partial(store_all, updates=updates, owner=owner))
        wanted = partial(get_all, updates=updates, owner=owner)
        waiting = [sink.run_coroutine(wanted, return_future=True) for sink in sinks]
        found = [future.result() for future in waiting]
        seconds = time.perf_counter() - began
    finally:
        for peer in (*peers, relay):
            peer.shutdown()
    print(json.dumps({"updates": min(stored, *found), "wanted": updates, "seconds": seconds}))


if __name__ == "__main__":
    measure(int(sys.argv[1]))
