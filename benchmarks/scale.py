"""What a step costs each client, and what it sends over each link, as the run grows: in simulation, on a mesh grid.

The production core and driver run under the virtual clock, `strict` windows, nothing fails. Every client takes in the
updates of all others at every step, so what is linear in the clients for one of them is quadratic for the machine that
simulates them all. Cost is processor time of the whole simulation per client and step, in the middle of a run: joining
is not in it, and is measured apart. Bytes are those of frames as the codec encodes them, each message a frame of its
own.

1,024 clients take some twenty minutes, most of it for their joining, and are run by name only (`--clients-max 1024`).
"""

import math
import time
from collections.abc import Iterable
from statistics import mean

from benchmarks.measure import Metric, make_metric
from benchmarks.soak import fit
from seedflood.cluster.topology import make_topology
from seedflood.protocol.seedflood.messages import ClosedEpoch
from seedflood.protocol.swarm.messages import Message
from seedflood.transport.codec import encode
from simulation.endpoint import Endpoint
from simulation.seedflood.world import SeedfloodWorld

CLIENTS_MIN = 16
CLIENTS_MAX = 256
GROWTH = 4
FIRST_STEP = 4
"""Joining is over, and what nodes say of their delays has settled."""
CLIENT_STEPS = 1024
"""Small runs are measured over more steps than large ones: so many of all clients together."""
STEPS_MIN = 2
EXPONENT_MAX = 1.1
VIRTUAL_SECONDS_MAX = 3600.0


def run(clients_max: int = CLIENTS_MAX) -> dict[str, Metric]:
    sizes = [CLIENTS_MIN]
    while sizes[-1] * GROWTH <= clients_max:
        sizes.append(sizes[-1] * GROWTH)
    seconds: dict[int, list[float]] = {}
    sent: dict[int, float] = {}
    joining: dict[int, float] = {}
    for clients in sizes:
        joining[clients], seconds[clients], sent[clients] = measure(clients)
    exponent, error = _exponent((clients, mean(values)) for clients, values in seconds.items())
    bytes_exponent, _ = _exponent(sent.items())
    join_exponent, _ = _exponent(joining.items())
    metrics = {
        "scale.exponent": make_metric([exponent], EXPONENT_MAX),
        "scale.exponent_error": make_metric([error]),
        "scale.bytes_exponent": make_metric([bytes_exponent], EXPONENT_MAX),
        "scale.join_exponent": make_metric([join_exponent]),
    }
    for clients in sizes:
        metrics[f"scale.step_milliseconds_{clients}"] = make_metric([1000 * one for one in seconds[clients]])
        metrics[f"scale.link_bytes_per_update_{clients}"] = make_metric([sent[clients] / clients])
    return metrics


def measure(clients: int) -> tuple[float, list[float], float]:
    """Seconds of processor time per client to join, and per client and step; bytes per link and step."""
    edges = make_topology("grid", clients)
    steps = max(STEPS_MIN, CLIENT_STEPS // clients)
    world = SeedfloodWorld(
        clients, edges, seed=1, steps=10 * (FIRST_STEP + steps), refresh_period=10 * (FIRST_STEP + steps)
    )
    began = time.process_time()
    world.start()
    _run_until(world, FIRST_STEP)
    joined = (time.process_time() - began) / clients
    seconds = []
    for step in range(FIRST_STEP, FIRST_STEP + steps):
        began = time.process_time()
        _run_until(world, step + 1)
        seconds.append((time.process_time() - began) / clients)
    counted = _count_bytes(world)
    _run_until(world, FIRST_STEP + steps + 1)
    return joined, seconds, counted[0] / len(edges)


def _run_until(world: SeedfloodWorld, step: int) -> None:
    """The others are at most one round away: windows are strict."""
    first = world.hosts[0]
    if not world.clock.run(lambda: first.is_up and first.node.step >= step, VIRTUAL_SECONDS_MAX):
        raise RuntimeError(f"{len(world.hosts)} clients did not reach step {step}")


def _count_bytes(world: SeedfloodWorld) -> list[int]:
    """From now on: of everything that any host sends."""
    counted, send = [0], world.network.send

    def count(sender: Endpoint, peer: int, message: Message) -> None:
        if not isinstance(message, ClosedEpoch):
            counted[0] += sum(map(len, encode(message)))
        send(sender, peer, message)

    world.network.send = count  # type: ignore[method-assign]
    return counted


def _exponent(points: Iterable[tuple[int, float]]) -> tuple[float, float]:
    """Of clients in the cost: the slope of a line through the logarithms, and its standard error."""
    return fit([(math.log(clients), math.log(cost)) for clients, cost in points])
