"""What a swarm costs each host while it learns, when nothing is new any more: not joining, and not the end.

A simulated run on a random graph of four links per host, gradients of a small form, `strict` windows, no faults. A step
takes some seconds, as steps of real models do, so that what hosts state of themselves has settled by `FIRST_STEP`. What
is counted comes from there up to `LAST_STEP`, which is two epochs' votes: bytes that reach a host per step, by kind of
message, signatures that it verifies, and processor time of the simulation. `Frames` is what each frame costs besides,
if it is a record of TLS of its own (`simulation.network`). Votes are counted per epoch as well, since epochs are long
where models are real.
"""

import math
import resource
import time
from collections import Counter
from dataclasses import dataclass

from benchmarks.measure import Metric, make_metric
from benchmarks.soak import fit
from seedflood.cluster.topology import make_topology
from seedflood.protocol.seedflood.bundles import Updates
from seedflood.protocol.seedflood.payload import Coefficients
from seedflood.protocol.swarm.messages import Message, Verify
from simulation.endpoint import Endpoint
from simulation.seedflood.world import SeedfloodWorld
from simulation.work import Pace

CLIENTS_MIN = 64
PARTICIPANTS = 16
EPOCH_STEPS = 4
FIRST_STEP, LAST_STEP = 12, 20
"""Votes on an epoch come `CLOSING_ROUNDS` after its end, so here each epoch has those of an earlier one."""
PACE = Pace(2.0, 3.0)
VIRTUAL_SECONDS_MAX = 3600.0
KINDS = ("Updates", "Members", "Votes", "PullPart", "Frames")


@dataclass(frozen=True, slots=True)
class Cost:
    """Of a host and step, in bytes by kind of message; all else follows from its name. copies: how often a host is sent
    each update. megabytes: the peak of the whole simulation."""

    bytes: dict[str, float]
    copies: float
    signatures: float
    milliseconds: float
    virtual_seconds: float
    megabytes: float


def run(clients_max: int) -> dict[str, Metric]:
    costs = {}
    clients = CLIENTS_MIN
    while clients <= clients_max:
        costs[clients] = measure(clients)
        print(clients, costs[clients], flush=True)
        clients *= 2
    metrics = {}
    for kind in (*KINDS, "all"):
        points = {clients: cost.bytes.get(kind, 0.0) for clients, cost in costs.items()}
        for clients, value in points.items():
            metrics[f"steady.{kind.lower()}_bytes_{clients}"] = make_metric([value])
        if len(points) > 1 and all(points.values()):
            metrics[f"steady.{kind.lower()}_exponent"] = make_metric([_exponent(points)])
    for clients, cost in costs.items():
        metrics[f"steady.votes_bytes_per_epoch_{clients}"] = make_metric([cost.bytes.get("Votes", 0.0) * EPOCH_STEPS])
        metrics[f"steady.copies_{clients}"] = make_metric([cost.copies])
        metrics[f"steady.signatures_{clients}"] = make_metric([cost.signatures])
        metrics[f"steady.step_milliseconds_{clients}"] = make_metric([cost.milliseconds])
        metrics[f"steady.megabytes_{clients}"] = make_metric([cost.megabytes])
    return metrics


def measure(clients: int, participants: int = PARTICIPANTS) -> Cost:
    world = SeedfloodWorld(
        clients,
        make_topology("random-regular", clients, seed=1),
        seed=1,
        steps=10 * LAST_STEP,
        refresh_period=EPOCH_STEPS,
        compression=Coefficients((8,)),
        pace=PACE,
        turn_rounds=-(-clients // participants),
    )
    verified, received = [0], [0]
    for host in world.hosts:
        host.verify = _counted(host.verify, verified)  # type: ignore[assignment]
    world.start()
    _run_until(world, FIRST_STEP)
    _count_updates(world, received)
    before, verified[0], began, seconds = Counter(world.network.carried), 0, world.clock.now, time.process_time()
    _run_until(world, LAST_STEP)
    seconds = time.process_time() - seconds
    published = sum(FIRST_STEP <= step < LAST_STEP for _, step in world.chronicle.bundles)
    each = clients * (LAST_STEP - FIRST_STEP)
    found = {kind: count / each for kind, count in (Counter(world.network.carried) - before).items()}
    return Cost(
        found | {"all": sum(found.values())},
        received[0] / (published * clients),
        verified[0] / each,
        1000 * seconds / each,
        (world.clock.now - began) / (LAST_STEP - FIRST_STEP),
        resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    )


def _exponent(points: dict[int, float]) -> float:
    """Of the hosts in the cost."""
    return fit([(math.log(clients), math.log(cost)) for clients, cost in points.items()])[0]


def _run_until(world: SeedfloodWorld, step: int) -> None:
    """The others are at most one round away: windows are strict."""
    first = world.hosts[0]
    if not world.clock.run(lambda: first.is_up and first.node.step >= step, VIRTUAL_SECONDS_MAX):
        raise RuntimeError(f"{len(world.hosts)} clients did not reach step {step}")


def _counted(verify: Verify, count: list[int]) -> Verify:
    def counted(*facts: bytes) -> bool:
        count[0] += 1
        return verify(*facts)

    return counted


def _count_updates(world: SeedfloodWorld, count: list[int]) -> None:
    """From now on: of everything that any host sends."""
    send = world.network.send

    def counted(sender: Endpoint, peer: int, message: Message) -> None:
        if isinstance(message, Updates):
            count[0] += len(message.bundles)
        send(sender, peer, message)

    world.network.send = counted  # type: ignore[method-assign]
