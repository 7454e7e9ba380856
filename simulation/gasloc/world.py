"""A world of hosts that train by GASLoC."""

import hashlib
from collections.abc import Callable, Iterable, Sequence

from seedflood.protocol.gasloc.rules import GaslocRules
from simulation.gasloc.host import Chronicle, GaslocHost, Manner
from simulation.gasloc.traffic import TRAFFIC
from simulation.network import Weather
from simulation.work import Pace
from simulation.world import World

RUN_ID, BASE_DIGEST = (hashlib.sha256(word).digest() for word in (b"run", b"base"))


class GaslocWorld(World[GaslocHost]):
    """chronicle: what happened in it. manner: returns the manner of each host, by index."""

    def __init__(
        self,
        rules: GaslocRules,
        edges: Iterable[tuple[int, int]],
        *,
        seed: int,
        manner: Callable[[int], Manner],
        weather: Weather | None = None,
        pace: Pace | Sequence[Pace] | None = None,
    ) -> None:
        self.chronicle = Chronicle()
        self.rules = rules
        super().__init__(
            rules.clients,
            edges,
            lambda place: GaslocHost(place, rules, manner(place.index), self.chronicle),
            seed=seed,
            weather=weather,
            pace=pace,
            traffic=TRAFFIC,
        )

    @property
    def honest(self) -> list[GaslocHost]:
        """The hosts that are judged: also without those that lie."""
        return [host for host in super().honest if host.origin not in self.chronicle.liars]

    def copy_key(self, host: GaslocHost) -> GaslocHost:
        """The copy has no journal, so it has nothing of the rounds before."""
        twin = super().copy_key(host)
        twin.replaced_before = host.offered_round + 1
        return twin

    def _unite(self, host: GaslocHost) -> None:
        super()._unite(host)
        others = [one for one in self.hosts if one.origin == host.origin and one is not host]
        host.replaced_before = max(host.replaced_before, *(one.offered_round + 1 for one in others))
