"""Chooses the liars of a world, for any algorithm."""

import random
from collections.abc import Collection, Iterable, Mapping


def choose_liars(
    clients: int, edges: Iterable[tuple[int, int]], share: float, rng: random.Random, *, relays: int = 0
) -> set[int]:
    """Chooses up to this share of the clients, at least one if the share allows it. All others stay connected, the
    relays among them, whose numbers follow those of the clients."""
    links: dict[int, set[int]] = {index: set() for index in range(clients + relays)}
    for one, other in edges:
        links[one].add(other)
        links[other].add(one)
    most = int(clients * share)
    wanted = rng.randint(1, most) if most else 0
    liars: set[int] = set()
    for index in rng.sample(range(clients), clients):
        if len(liars) < wanted and is_connected(links, links.keys() - liars - {index}):
            liars.add(index)
    return liars


def is_connected(links: Mapping[int, Collection[int]], left: set[int]) -> bool:
    """Are these hosts connected among themselves? links: the neighbours of each."""
    reached = {min(left)}
    edge = list(reached)
    while edge:
        found = (left & {*links[edge.pop()]}) - reached
        reached |= found
        edge += found
    return reached == left
