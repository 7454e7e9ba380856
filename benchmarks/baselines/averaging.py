"""Hivemind's averaging of as many parameters as an exchange moves, between two of its peers.

Runs with an environment of its own (`environments`), so it imports nothing of the project. Each peer is a DHT and an
averager, both processes of their own, as for hivemind's users; no compression, float32. Each sends half of its tensor
to the other, averages the other half and sends that back: as many bytes in each direction as the tensor has. What
counts is the all-reduce alone, from the moment when both have found each other until the later one has its average:
finding each other (`min_matchmaking_time`, seconds by default) is measured apart. Prints one JSON object: bytes, and
seconds of each round, of the all-reduce and of all.

    python averaging.py BYTES
"""

import json
import sys
import time
from typing import Any

import hivemind
import torch

ROUNDS = 5
WARM_UP_ROUNDS = 1
MATCHMAKING_SECONDS = 2.0
WAIT_SECONDS_MAX = 60.0


class Timed(hivemind.DecentralizedAverager):  # type: ignore[misc]  # hivemind is not where this is checked
    """Says when its all-reduce began and ended, by the clock of the machine."""

    async def _aggregate_with_group(self, *args: Any, **kwargs: Any) -> Any:
        began = time.monotonic()
        await super()._aggregate_with_group(*args, **kwargs)
        return began, time.monotonic()


def measure(size: int) -> None:
    first = hivemind.DHT(start=True)
    second = hivemind.DHT(initial_peers=first.get_visible_maddrs(), start=True)
    averagers = [
        Timed(
            [torch.full((size // 4,), float(k))],
            dht,
            start=True,
            prefix="parameters",
            target_group_size=2,
            min_matchmaking_time=MATCHMAKING_SECONDS,
            request_timeout=MATCHMAKING_SECONDS / 2,
        )
        for k, dht in enumerate((first, second))
    ]
    seconds, all_seconds = [], []
    try:
        for k in range(WARM_UP_ROUNDS + ROUNDS):
            began = time.monotonic()
            steps = [one.step(wait=False, timeout=WAIT_SECONDS_MAX) for one in averagers]
            times = [step.result(timeout=WAIT_SECONDS_MAX) for step in steps]
            if k >= WARM_UP_ROUNDS:
                seconds.append(max(end for _, end in times) - max(start for start, _ in times))
                all_seconds.append(time.monotonic() - began)
        for one in averagers:
            with one.get_tensors() as tensors:
                assert torch.all(tensors[0] == 0.5), "it is not the mean"
    finally:
        for one in (*averagers, second, first):
            one.shutdown()
    print(json.dumps({"bytes": size, "seconds": seconds, "all_seconds": all_seconds}))


if __name__ == "__main__":
    measure(int(sys.argv[1]))
