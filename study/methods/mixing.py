"""The weighted mean with the neighbours, of all clients at once.

Shapes: N clients, F numbers.
"""

import torch
from torch import Tensor

from seedflood.protocol.gasloc.matching import weight
from seedflood.training.gasloc.encodings import ENCODINGS, payload_size
from study.methods.method import Graph


def mixing_matrix(graph: Graph) -> Tensor:
    """(N, N) float32: Metropolis' weights of the edges, and what is left of 1 for the client itself. Symmetric, and
    rows and columns sum to 1, so the mean over the clients stays as it is."""
    weights_NN = torch.zeros(graph.clients, graph.clients)
    for a, b in graph.edges:
        weights_NN[a, b] = weights_NN[b, a] = weight(max(len(graph.neighbours[a]), len(graph.neighbours[b])))
    return weights_NN + torch.diag(1 - weights_NN.sum(dim=1))


class Mixing:
    """Everyone sends its numbers in float32 to all neighbours, and takes the weighted mean."""

    def __init__(self, graph: Graph) -> None:
        self._weights_NN = mixing_matrix(graph)

    def mix(self, numbers_NF: Tensor) -> tuple[Tensor, float]:
        """The numbers of the next round, and bytes over an edge in one direction."""
        return self._weights_NN @ numbers_NF, float(payload_size(ENCODINGS["float32"], numbers_NF.shape[1]))
