"""Several workers in one process, who exchange parameters as bytes, and the mathematics in dense NumPy."""

from collections.abc import Callable, Sequence

import numpy
import torch

from seedflood.cluster.topology import make_topology
from seedflood.protocol.gasloc.matching import weight
from seedflood.training.gasloc.exchange import Arrival, Difference, Outgoing
from seedflood.training.gasloc.outer import Mixed, Outer, Term

READ_BYTES = 100_003
"""Of an offer at once: no multiple of anything."""


def weights_of(name: str, workers: int) -> numpy.ndarray:
    """(workers, workers), symmetric: w_ij of the edges of a graph, 0 elsewhere."""
    edges = make_topology(name, workers)
    degrees = [sum(worker in edge for edge in edges) for worker in range(workers)]
    weights = numpy.zeros((workers, workers))
    for one, other in edges:
        weights[one, other] = weights[other, one] = weight(max(degrees[one], degrees[other]))
    return weights


def laplacian(weights: numpy.ndarray) -> numpy.ndarray:
    return numpy.diag(weights.sum(axis=1)) - weights


def sent(offer: Outgoing) -> numpy.ndarray:
    """All bytes of an offer, read in parts: uint8."""
    parts = (offer.read(start, READ_BYTES) for start in range(0, offer.size, READ_BYTES))
    return numpy.frombuffer(bytearray().join(parts), dtype=numpy.uint8)


def arrived(offer: Outgoing, **options) -> Arrival:
    """What comes of an offer at the other end."""
    arrival = Arrival(offer.numbers, offer.encoding.name, sent(offer), offer.digest, **options)
    arrival.check()
    return arrival


def exchange(outers: Sequence[Outer], weights: numpy.ndarray) -> list[Mixed]:
    """A round: everyone proposes, everyone gets what its neighbours offer, everyone mixes."""
    for outer in outers:
        outer.propose()
    return mix(outers, weights)


def mix(outers: Sequence[Outer], weights: numpy.ndarray) -> list[Mixed]:
    """Of open offers."""
    arrivals = [arrived(outer.offer) for outer in outers]
    pulls = [
        [Term(float(weights[i, j]), Difference(outer.offer, arrivals[j])) for j in range(len(outers)) if weights[i, j]]
        for i, outer in enumerate(outers)
    ]
    return [outer.mix(its) for outer, its in zip(outers, pulls, strict=True)]


def dense_rounds(
    start_WF: numpy.ndarray,
    progress: Callable[[int, numpy.ndarray], numpy.ndarray],
    weights: numpy.ndarray,
    rounds: int,
    *,
    eta: float,
    gamma: float,
) -> list[numpy.ndarray]:
    """theta of all workers after every round, float64. progress: of a round and where it began, (W, F) each."""
    theta_WF = previous_WF = start_WF.astype(numpy.float64)
    found = []
    for number in range(rounds):
        phi_WF = theta_WF + eta * progress(number, theta_WF)
        theta_WF = phi_WF - laplacian(weights) @ phi_WF + gamma * (phi_WF - previous_WF)
        previous_WF = phi_WF
        found.append(theta_WF)
    return found


def random_WF(workers: int, numbers: int, *seed: int) -> numpy.ndarray:
    return numpy.random.default_rng(seed).standard_normal((workers, numbers)).astype(numpy.float32)


def tensors(rows_WF: numpy.ndarray) -> list[torch.Tensor]:
    return [torch.tensor(row, dtype=torch.float32) for row in rows_WF]
