"""Graphs of links between hosts, for local clusters and simulations."""

from typing import TYPE_CHECKING, Literal, get_args

from seedflood.errors import ConfigError

if TYPE_CHECKING:
    import networkx

TopologyName = Literal["ring", "grid", "complete", "random-regular", "tree", "path", "star", "bridge"]
TOPOLOGIES: tuple[str, ...] = get_args(TopologyName)


def make_topology(name: str, nodes: int, *, seed: int = 0) -> list[tuple[int, int]]:
    """The edges (a, b), a < b, of a connected graph over vertices 0..nodes - 1.

    grid: as square as `nodes` allows. random-regular: of degree 4; complete below six nodes. tree: binary. bridge: two
    complete halves that share one link. Raises ConfigError for an unknown name, or if there is no such graph.
    """
    if nodes < 1:
        raise ConfigError(f"a cluster needs --nodes 1 or more, not {nodes}.")
    if name not in TOPOLOGIES:
        raise ConfigError(f'unknown topology "{name}"; choose one of {", ".join(TOPOLOGIES)}.')

    import networkx  # here, because it takes a while, and most commands only need the names

    match name:
        case "ring":
            graph = networkx.cycle_graph(nodes) if nodes > 2 else networkx.path_graph(nodes)
        case "grid":
            rows = max(r for r in range(1, int(nodes**0.5) + 1) if nodes % r == 0)
            graph = networkx.convert_node_labels_to_integers(networkx.grid_2d_graph(rows, nodes // rows))
        case "complete":
            graph = networkx.complete_graph(nodes)
        case "path":
            graph = networkx.path_graph(nodes)
        case "star":
            graph = networkx.star_graph(nodes - 1)
        case "bridge":
            graph = networkx.disjoint_union(
                networkx.complete_graph(nodes // 2), networkx.complete_graph(-(-nodes // 2))
            )
            graph.add_edges_from([(nodes // 2 - 1, nodes // 2)] if nodes > 1 else [])
        case "tree":
            graph = networkx.full_rary_tree(2, nodes)
        case _:
            graph = _random_regular(nodes, seed)
    return sorted((min(a, b), max(a, b)) for a, b in graph.edges if a != b)


def _random_regular(nodes: int, seed: int) -> "networkx.Graph[int]":
    import networkx

    if nodes < 6:
        return networkx.complete_graph(nodes)
    degree = 4
    for attempt in range(1000):
        graph = networkx.random_regular_graph(degree, nodes, seed=seed + attempt)
        if networkx.is_connected(graph):
            return graph
    raise ConfigError(f"found no connected graph of degree {degree} over {nodes} nodes; choose another topology.")
