"""Simulated links: streams in order, each with its own delay, that lose what is on its way when they break.

A link never drops a single message: TCP does not. It breaks, with everything in flight, and is made again some time
later by a redial. Duplicates are made on purpose, to be suppressed by the core.
"""

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from seedflood.driver import Driver
from seedflood.errors import PeerError
from seedflood.protocol.messages import Held, Hello, Message, OriginId, Updates
from seedflood.protocol.node import Node
from seedflood.simulation.clock import Clock


class Endpoint(Protocol):
    """What the network needs of a host."""

    index: int
    is_up: bool
    node: Node
    driver: Driver
    origin: OriginId

    def receive(self, peer: OriginId, message: Message) -> None: ...

    def missing(self, frontier: tuple[Held, ...]) -> list[Updates]: ...


@dataclass(frozen=True, slots=True)
class Weather:
    """What links do, from the seed. Delays in seconds; the rest are probabilities per message or per second."""

    delay_min: float = 0.001
    delay_max: float = 0.02
    duplicate: float = 0.0
    break_per_second: float = 0.0
    redial_min: float = 0.05
    redial_max: float = 1.0


class Network:
    """Links between hosts along the edges of a graph."""

    def __init__(self, edges: Iterable[tuple[int, int]], clock: Clock, rng: random.Random, weather: Weather) -> None:
        self.weather = weather
        self.faults: dict[str, int] = {"broken links": 0, "duplicates": 0}
        self._edges = [frozenset(edge) for edge in edges]
        self._hosts: dict[int, Endpoint] = {}
        self._origins: dict[OriginId, Endpoint] = {}
        self._generation: dict[frozenset[int], int] = {}
        """Counts the lives of a link: odd while it is up. What was sent in another life never arrives."""
        self._arrival: dict[tuple[int, int], float] = {}
        self._blocked: set[frozenset[int]] = set()
        self._clock = clock
        self._rng = rng

    def joined(self, host: Endpoint) -> None:
        """A host came up: its links are dialled."""
        self._hosts[host.index] = self._origins[host.origin] = host
        for edge in self._edges_of(host.index):
            self._redial(edge)

    def vanished(self, host: Endpoint) -> None:
        """A host is gone: its neighbours see their streams end a little later."""
        for edge in self._edges_of(host.index):
            self._break(edge)

    def partition(self, group: set[int]) -> None:
        """Cuts every link between the group and the rest until `heal`."""
        self._blocked = {edge for edge in self._edges if len(edge & group) == 1}
        for edge in self._blocked:
            self._break(edge)

    def heal(self) -> None:
        self._blocked = set()

    def cut(self, host: Endpoint, peer: OriginId) -> None:
        """The host closes its link with the peer."""
        self._break(frozenset((host.index, self._by_origin(peer).index)))

    def carry(self, sender: Endpoint, peer: OriginId, message: Message) -> None:
        self._deliver(sender, self._by_origin(peer), message)

    def pull(self, puller: Endpoint, peer: OriginId, frontier: tuple[Held, ...]) -> None:
        """A request one way, batches back, then the end; a link that breaks meanwhile ends it at once."""
        donor = self._by_origin(peer)
        edge = frozenset((puller.index, donor.index))
        generation = self._generation.get(edge, 0)

        def answer() -> None:
            for batch in donor.missing(frontier):
                self._deliver(donor, puller, batch)
            self._on_arrival(donor, puller, lambda: puller.driver.pulled(peer))

        if generation % 2:
            self._on_arrival(puller, donor, answer)

    def _deliver(self, sender: Endpoint, receiver: Endpoint, message: Message) -> None:
        copies = 1
        if isinstance(message, Updates) and self._rng.random() < self.weather.duplicate:
            self.faults["duplicates"] += 1
            copies = 2
        origin = sender.origin
        for _ in range(copies):
            self._on_arrival(sender, receiver, lambda: receiver.receive(origin, message))

    def _on_arrival(self, sender: Endpoint, receiver: Endpoint, action: Callable[[], None]) -> None:
        """Runs the action when what the sender says now arrives, in order, if the link lives that long."""
        edge = frozenset((sender.index, receiver.index))
        generation = self._generation.get(edge, 0)
        if generation % 2 == 0:
            return
        way = (sender.index, receiver.index)
        moment = self._clock.now + self._rng.uniform(self.weather.delay_min, self.weather.delay_max)
        moment = max(moment, self._arrival.get(way, 0.0))
        self._arrival[way] = moment
        self._clock.after(moment - self._clock.now, lambda: action() if self._generation[edge] == generation else None)

    def _redial(self, edge: frozenset[int]) -> None:
        self._clock.after(self._rng.uniform(self.weather.redial_min, self.weather.redial_max), lambda: self._dial(edge))

    def _dial(self, edge: frozenset[int]) -> None:
        if self._generation.get(edge, 0) % 2:
            return
        ends = [self._hosts[k] for k in sorted(edge) if k in self._hosts and self._hosts[k].is_up]
        if len(ends) < 2 or edge in self._blocked:
            if len(ends) == 2:
                self._redial(edge)
            return
        self._generation[edge] = self._generation.get(edge, 0) + 1
        a, b = ends
        hello_a, hello_b = a.node.hello(), b.node.hello()
        self._greet(a, b, hello_b)
        self._greet(b, a, hello_a)
        if self.weather.break_per_second:
            generation = self._generation[edge]
            lifetime = self._rng.expovariate(self.weather.break_per_second)
            self._clock.after(lifetime, lambda: self._break(edge) if self._generation[edge] == generation else None)

    def _greet(self, host: Endpoint, other: Endpoint, hello: Hello) -> None:
        try:
            host.node.admission.check_hello(hello)
        except PeerError:
            self.cut(host, other.origin)
            return
        host.driver.connected(other.origin, hello)

    def _break(self, edge: frozenset[int]) -> None:
        if self._generation.get(edge, 0) % 2 == 0:
            return
        self._generation[edge] += 1
        self.faults["broken links"] += 1
        ends = [self._hosts[k] for k in sorted(edge)]
        for host, other in (ends, ends[::-1]):
            if host.is_up and other.origin in host.node.flood.neighbours:
                host.driver.disconnected(other.origin, "the link broke")
        self._redial(edge)

    def _edges_of(self, index: int) -> list[frozenset[int]]:
        return [edge for edge in self._edges if index in edge]

    def _by_origin(self, origin: OriginId) -> Endpoint:
        return self._origins[origin]
