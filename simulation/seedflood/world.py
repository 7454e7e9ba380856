"""A world of hosts that train by SeedFlood."""

import hashlib
from collections.abc import Iterable, Sequence

from seedflood.protocol.origin import OriginId
from seedflood.protocol.seedflood.payload import PAIRS, Compression
from seedflood.protocol.seedflood.rules import Rules, WindowRule
from seedflood.protocol.swarm.rules import Patience
from simulation.network import Weather
from simulation.notary import make_keys
from simulation.seedflood.host import SeedfloodHost
from simulation.seedflood.ledger import EPOCH_BYTES, Chronicle
from simulation.seedflood.optimisers import COEFFICIENT_MAX, OptimizerName
from simulation.seedflood.traffic import TRAFFIC
from simulation.work import Pace
from simulation.world import World


class SeedfloodWorld(World[SeedfloodHost]):
    """chronicle: everything that was ever published in it."""

    def __init__(
        self,
        clients: int,
        edges: Iterable[tuple[int, int]],
        *,
        seed: int,
        steps: int,
        window: WindowRule = "strict",
        local_steps: int = 1,
        refresh_period: int = 8,
        compression: Compression = PAIRS,
        delay: int = 0,
        optimizer: OptimizerName = "sgd",
        weather: Weather | None = None,
        pace: Pace | Sequence[Pace] | None = None,
        patience: Patience | None = None,
        relays: int = 0,
        turn_rounds: int = 1,
        epoch_bytes: int = EPOCH_BYTES,
    ) -> None:
        """relays: the last hosts, which do not count as clients. epoch_bytes: of a sum, at least EPOCH_BYTES."""
        patience = patience or Patience()
        self.chronicle = Chronicle(refresh_period, compression, optimizer, epoch_bytes)
        self.rules = Rules(
            run_id=hashlib.sha256(b"run").digest(),
            base_digest=hashlib.sha256(b"base").digest(),
            clients=clients,
            steps=steps,
            window=window,
            local_steps=local_steps,
            refresh_period=refresh_period,
            epoch_bytes=epoch_bytes,
            compression=compression,
            delay=delay,
            step_reach=None if optimizer == "sgd" else COEFFICIENT_MAX,
            turn_rounds=turn_rounds,
        )
        relaying = make_keys(seed, clients + relays)[clients:]
        super().__init__(
            clients + relays,
            edges,
            lambda place: SeedfloodHost(
                place, self.rules, self.chronicle, patience, is_relay=place.public_key in relaying
            ),
            seed=seed,
            weather=weather,
            pace=pace,
            traffic=TRAFFIC,
        )

    @property
    def honest(self) -> list[SeedfloodHost]:
        """The hosts that are judged: also without those that lie."""
        return [host for host in super().honest if host.origin not in self.chronicle.liars]

    def cast_out(self, origin: OriginId) -> None:
        super().cast_out(origin)
        self.chronicle.liars.add(origin)

    def welcome(self, host: SeedfloodHost) -> None:
        super().welcome(host)
        self.chronicle.newcomers.add(host.origin)

    def copy_key(self, host: SeedfloodHost) -> SeedfloodHost:
        twin = super().copy_key(host)
        twin.is_key_fresh = False
        self.chronicle.doubles[host.origin] = {}
        return twin

    def _unite(self, host: SeedfloodHost) -> None:
        super()._unite(host)
        disks = [one.journal for one in self.honest]
        self.chronicle.unite(host.origin, host.index, lambda bundle: any(disk.is_durable(bundle) for disk in disks))
