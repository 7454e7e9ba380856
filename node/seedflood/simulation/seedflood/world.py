"""A world: hosts on the vertices of a graph, links on its edges, everything that happens from one seed."""

import hashlib
import random
from collections.abc import Iterable, Sequence

from seedflood.protocol.origin import OriginId
from seedflood.protocol.seedflood.messages import SEED_MAX
from seedflood.protocol.seedflood.payload import PAIRS, Telling
from seedflood.protocol.seedflood.rules import Rules
from seedflood.protocol.seedflood.window import WindowRule
from seedflood.protocol.swarm.rules import Patience
from seedflood.simulation.clock import Clock
from seedflood.simulation.network import Network, Weather
from seedflood.simulation.seedflood.host import Host
from seedflood.simulation.seedflood.ledger import EPOCH_BYTES, Chronicle
from seedflood.simulation.seedflood.optimisers import COEFFICIENT_MAX, OptimizerName
from seedflood.simulation.seedflood.traffic import TRAFFIC
from seedflood.simulation.work import Pace

RESTART_SECONDS = 1.0
"""A supervisor starts a process again that ended by itself."""


class World:
    """Builds the hosts of a run; `start` and `run` it, crash and restart hosts, then ask `checks`."""

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
        telling: Telling = PAIRS,
        delay: int = 0,
        optimizer: OptimizerName = "sgd",
        weather: Weather | None = None,
        pace: Pace | Sequence[Pace] | None = None,
        patience: Patience | None = None,
    ) -> None:
        self.seed = seed
        self.rng = random.Random(seed)
        self.clock = Clock()
        self.network = Network(edges, self.clock, self.rng, weather or Weather(), TRAFFIC)
        self.chronicle = Chronicle(refresh_period, telling, optimizer)
        self.rules = Rules(
            run_id=hashlib.sha256(b"run").digest(),
            base_digest=hashlib.sha256(b"base").digest(),
            clients=clients,
            steps=steps,
            window=window,
            local_steps=local_steps,
            refresh_period=refresh_period,
            epoch_bytes=EPOCH_BYTES,
            telling=telling,
            delay=delay,
            step_reach=None if optimizer == "sgd" else COEFFICIENT_MAX,
            run_seed=seed & SEED_MAX,
        )
        self._ended: set[int] = set()
        """Processes of whose key another one is left."""
        self.notary = Notary()
        self._patience = patience or Patience()
        paces = pace if isinstance(pace, Sequence) else [pace or Pace()] * clients
        self.hosts: list[Host] = []
        for key, one in zip(_keys(seed, clients), paces, strict=True):
            self._add_host(key, one)

    def _add_host(self, key: bytes, pace: Pace, name: str = "") -> Host:
        host = Host(
            len(self.hosts),
            self.rules,
            self.clock,
            self.network,
            self.chronicle,
            self.rng,
            verify=self.notary.verify,
            sign=self.notary.signer(key),
            public_key=key,
            pace=pace,
            patience=self._patience,
            died=lambda host: self.start_later(host, RESTART_SECONDS),
            replaced=self._replaced,
            name=name,
        )
        self.hosts.append(host)
        return host

    @property
    def honest(self) -> list[Host]:
        """Who is judged: all but those that lie, or that a newer process with their key has ended."""
        return [h for h in self.hosts if h.origin not in self.chronicle.liars and h.index not in self._ended]

    def start(self) -> None:
        """Starts every host, within the first second."""
        for host in self.hosts:
            self.start_later(host, self.rng.random())

    def start_later(self, host: Host, seconds: float, *, is_journal_damaged: bool = False) -> None:
        """Starts the host then, unless it is up already."""
        self.clock.after(seconds, _start, host, is_journal_damaged)

    def run(self, seconds_max: float = 3600.0) -> bool:
        """Until every honest host is done; False if virtual time runs out before."""
        judged = self.honest
        return self.clock.run(lambda: all(host.is_done for host in judged), seconds_max)

    def run_until_step(self, step: int, seconds_max: float = 3600.0) -> bool:
        """Until some host has reached the step."""
        return self.clock.run(lambda: any(h.is_up and h.node.step >= step for h in self.hosts), seconds_max)

    def run_for(self, seconds: float) -> None:
        self.clock.run(lambda: False, seconds)

    def crash(self, index: int, *, down_seconds: float) -> None:
        """Kills a host and starts it again some time later."""
        self.hosts[index].crash()
        self.start_later(self.hosts[index], down_seconds)

    def copy_key(self, host: Host) -> Host:
        """A second process with the key of a host, on another machine that has the addresses of its neighbours. The
        journal was not copied. It is to be started yet."""
        twin = self._add_host(host.public_key, host.pace, host.name)
        twin.journal.incarnation, twin.is_key_fresh = host.journal.incarnation + 1, False
        for index in self.network.neighbours(host.index):
            if index not in self._ended:
                self.network.add((index, twin.index), dialler=twin.index)
        self.chronicle.doubles[host.origin] = {}
        return twin

    def is_doubled(self, origin: OriginId) -> bool:
        """Are there two processes with this key?"""
        return origin in self.chronicle.doubles

    def _replaced(self, host: Host) -> None:
        """A process has ended because a newer one has its key: that one answers for both. If there is none, it was its
        own past life that it heard of, whose count of starts it had lost with its disk: its operator starts it again,
        and it has the last word."""
        if not self.is_doubled(host.origin):
            host.is_retired = False
            self.start_later(host, RESTART_SECONDS)
            return
        left = [one for one in self.hosts if one.origin == host.origin and not one.is_retired]
        for one in left:
            one.mistakes += host.mistakes
            self._ended.add(host.index)
            self.chronicle.unite(host.origin, one.index)


def _start(host: Host, is_journal_damaged: bool) -> None:
    if not host.is_up and not host.is_retired:
        host.start(is_journal_damaged=is_journal_damaged)


class Notary:
    """Signatures for simulations: a keyed hash under secrets that only this object holds. As binding here as
    Ed25519 is outside, and a hundred times faster; what it does not test is the signature scheme itself."""

    def __init__(self) -> None:
        self._secret = b"notary"

    def signer(self, public_key: bytes) -> "Signer":
        return Signer(self, public_key)

    def signature(self, public_key: bytes, message: bytes) -> bytes:
        return hashlib.sha512(self._secret + public_key + message).digest()

    def verify(self, public_key: bytes, message: bytes, signature: bytes) -> bool:
        return signature == self.signature(public_key, message)


class Signer:
    def __init__(self, notary: Notary, public_key: bytes) -> None:
        self._notary = notary
        self._public_key = public_key

    def __call__(self, message: bytes) -> bytes:
        return self._notary.signature(self._public_key, message)


def _keys(seed: int, clients: int) -> list[bytes]:
    return [hashlib.sha256(f"key {seed} {index}".encode()).digest() for index in range(clients)]
