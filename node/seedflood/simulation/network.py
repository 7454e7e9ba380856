"""Simulated links: streams in order, each way with its own delays, that lose what is on its way when they break.

A link never drops a frame in the middle: TCP does not. But what would enter a full queue is dropped before (`lose`),
a stream may stand still while both ends believe in it (`silence`), frames of updates may come twice or overtake each
other, and links break and are dialled again some time later.

Frames that arrive at the same moment are one event: streams are in order, so a slow frame gathers those behind it.
"""

import random
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from seedflood.driver import Driver
from seedflood.errors import PeerError
from seedflood.protocol.messages import Held, Hello, Members, Message, OriginId, Updates
from seedflood.protocol.node import Node
from seedflood.simulation.clock import Clock

Frame = tuple[Callable[..., None], tuple[object, ...]]
"""What happens at the receiver when it arrives."""


class Endpoint(Protocol):
    """What the network needs of a host."""

    index: int
    is_up: bool
    is_paused: bool
    node: Node
    driver: Driver
    origin: OriginId

    def enter(self, action: Callable[..., None], *args: object) -> None:
        """Does it now; a host that is paused does it when it goes on."""

    def answer_pull(self, frontier: tuple[Held, ...]) -> Sequence[Message]: ...


@dataclass(frozen=True, slots=True)
class Weather:
    """What links do, from the seed. Delays in seconds; the rest are probabilities per frame of updates, or per second.

    break_per_second: of one link.
    """

    delay_min: float = 0.001
    delay_max: float = 0.02
    duplicate: float = 0.0
    reorder: float = 0.0
    lose: float = 0.0
    break_per_second: float = 0.0
    redial_min: float = 0.05
    redial_max: float = 1.0

    @property
    def is_calm(self) -> bool:
        return not (self.duplicate or self.reorder or self.lose or self.break_per_second)


class Way:
    """One direction of a link while it lives: batches of frames in the order of their arrival."""

    def __init__(self) -> None:
        self.batches: deque[list[Frame]] = deque()
        self.arrival = 0.0
        """Of the last batch."""
        self.silent_until = 0.0

    def frames_of_updates(self) -> list[tuple[list[Frame], int]]:
        """Where frames of updates stand that are on their way."""
        return [
            (batch, k)
            for batch in self.batches
            for k, (_, args) in enumerate(batch)
            if args and isinstance(args[-1], Updates)
        ]


class Link:
    """Two hosts that may be linked. life: counts how often it was made; what was sent in another life never arrives."""

    def __init__(self, edge: tuple[int, int]) -> None:
        self.edge = edge
        self.life = 0
        self.is_up = False
        self.is_blocked = False
        self.is_awaited = False
        """Will it be dialled?"""
        self.greeted: set[int] = set()
        """The ends that were told of the link, by index."""
        self.pulling: set[int] = set()
        self.ways: dict[int, Way] = {}
        """By the index of the sender."""


class Network:
    """Links between hosts along the edges of a graph."""

    def __init__(self, edges: Iterable[tuple[int, int]], clock: Clock, rng: random.Random, weather: Weather) -> None:
        self.weather = weather
        self.faults: Counter[str] = Counter()
        self._clock = clock
        self._rng = rng
        self._hosts: dict[int, Endpoint] = {}
        self._indices: dict[OriginId, int] = {}
        self._links = {edge: Link(edge) for edge in sorted({(min(e), max(e)) for e in edges})}
        self._links_of: dict[int, list[Link]] = {}
        for link in self._links.values():
            for index in link.edge:
                self._links_of.setdefault(index, []).append(link)

    # Hosts come and go

    def joined(self, host: Endpoint) -> None:
        """A host came up: its links are dialled."""
        self._hosts[host.index] = host
        self._indices[host.origin] = host.index
        for link in self._links_of.get(host.index, ()):
            self._redial(link)

    def vanished(self, host: Endpoint) -> None:
        """A host is gone: its neighbours see their streams end."""
        for link in self._links_of.get(host.index, ()):
            self._break(link, "the host is gone")

    def neighbours(self, index: int) -> list[int]:
        """Indices of the hosts that share an edge with this one."""
        return [self._far_end(link, index) for link in self._links_of.get(index, ())]

    def is_linked(self, one: int, other: int) -> bool:
        """Do both ends believe in the link?"""
        return len(self._links[min(one, other), max(one, other)].greeted) == 2

    # Faults

    def partition(self, group: set[int]) -> None:
        """Cuts every link between the group and the rest until `unite`."""
        for link in self._links.values():
            if (link.edge[0] in group) != (link.edge[1] in group):
                link.is_blocked = True
                self._break(link, "partition")

    def unite(self) -> None:
        """Ends a partition."""
        for link in self._links.values():
            link.is_blocked = False

    def heal(self) -> None:
        """Ends whatever lasts: partitions and silence."""
        self.unite()
        for link in self._links.values():
            for way in link.ways.values():
                way.silent_until = 0.0

    def silence(self, one: int, other: int, seconds: float) -> None:
        """Nothing that `one` sends arrives for so long, and nobody is told: a half-open stream. Then it all arrives."""
        way = self._links[min(one, other), max(one, other)].ways.get(one)
        if way is not None:
            way.silent_until = self._clock.now + seconds

    def break_link(self, one: int, other: int) -> None:
        self._break(self._links[min(one, other), max(one, other)], "the link broke")

    def linked_pairs(self) -> list[tuple[int, int]]:
        return [link.edge for link in self._links.values() if link.is_up]

    # The seam of the driver

    def send(self, sender: Endpoint, peer: OriginId, message: Message) -> None:
        link = self._link(sender, peer)
        copies = self._copies() if isinstance(message, Updates) and not self.weather.is_calm else 1
        for _ in range(copies):
            self._carry(link, sender, self._receive, message)

    def pull(self, puller: Endpoint, peer: OriginId, frontier: tuple[Held, ...]) -> bool:
        """A request one way, what is missing back, then the end. False if one is under way already."""
        link = self._link(puller, peer)
        if not link.is_up or puller.index in link.pulling:
            return False
        link.pulling.add(puller.index)
        self._carry(link, puller, self._answer, frontier)
        return True

    # On the way

    def _copies(self) -> int:
        """How often a frame of updates arrives."""
        if self._rng.random() < self.weather.lose:
            self.faults["lost_frames"] += 1
            return 0
        if self._rng.random() < self.weather.duplicate:
            self.faults["duplicated_frames"] += 1
            return 2
        return 1

    def _carry(self, link: Link, sender: Endpoint, action: Callable[..., None], *args: object) -> None:
        """`action(link, sender, receiver, *args)` happens when it arrives, if the link lives that long."""
        if not link.is_up:
            return
        way = link.ways[sender.index]
        moment = self._clock.now + self._rng.uniform(self.weather.delay_min, self.weather.delay_max)
        frame: Frame = (action, (link, sender, self._hosts[self._far_end(link, sender.index)], *args))
        if way.batches and moment <= way.arrival:
            _append(way.batches[-1], frame)
        else:
            way.arrival = moment
            way.batches.append([frame])
            self._clock.at(moment, self._arrive, link, link.life, sender.index)
        if self.weather.reorder and isinstance(args[-1], Updates) and self._rng.random() < self.weather.reorder:
            self._overtake(way)

    def _overtake(self, way: Way) -> None:
        """The last frame of updates changes places with an earlier one."""
        places = way.frames_of_updates()
        if len(places) > 1:
            self.faults["reordered_frames"] += 1
            (batch, k), (last_batch, last_k) = self._rng.choice(places[:-1]), places[-1]
            batch[k], last_batch[last_k] = last_batch[last_k], batch[k]

    def _arrive(self, link: Link, life: int, sender: int) -> None:
        if link.life != life or not link.is_up:
            return
        way = link.ways[sender]
        if self._clock.now < way.silent_until:
            self._clock.at(way.silent_until, self._arrive, link, life, sender)
            return
        receiver = self._hosts[self._far_end(link, sender)]
        receiver.enter(self._hand_over, link, life, way.batches.popleft())

    def _hand_over(self, link: Link, life: int, batch: list[Frame]) -> None:
        for action, args in batch:
            if link.life == life and link.is_up:
                action(*args)

    def _receive(self, link: Link, sender: Endpoint, receiver: Endpoint, message: Message) -> None:
        try:
            receiver.driver.received(sender.origin, message)
        except PeerError as error:
            self.faults[f"refused_{error.reason}"] += 1
            self._break(link, str(error))

    def _answer(self, link: Link, puller: Endpoint, donor: Endpoint, frontier: tuple[Held, ...]) -> None:
        for message in donor.answer_pull(frontier):
            self._carry(link, donor, self._receive, message)
        self._carry(link, donor, self._end_pull, None)

    def _end_pull(self, link: Link, donor: Endpoint, puller: Endpoint, _: None) -> None:
        link.pulling.discard(puller.index)
        puller.driver.pulled(donor.origin)

    # Links come and go

    def _redial(self, link: Link) -> None:
        if not link.is_awaited:
            link.is_awaited = True
            delay = self._rng.uniform(self.weather.redial_min, self.weather.redial_max)
            self._clock.after(delay, self._dial, link)

    def _dial(self, link: Link) -> None:
        link.is_awaited = False
        ends = self._ends(link)
        if link.is_up or len(ends) < 2:
            return
        if link.is_blocked or any(host.is_paused for host in ends):
            self._redial(link)
            return
        link.life += 1
        link.is_up = True
        link.ways = {index: Way() for index in link.edge}
        hellos = [host.driver.hello() for host in ends]
        for host, hello in zip(ends, hellos, strict=True):
            self._carry(link, host, self._greet, hello)
        if self.weather.break_per_second:
            lifetime = self._rng.expovariate(self.weather.break_per_second)
            self._clock.after(lifetime, self._wear_out, link, link.life)

    def _greet(self, link: Link, sender: Endpoint, host: Endpoint, hello: Hello) -> None:
        try:
            host.node.admission.check_hello(hello)
            link.greeted.add(host.index)
            host.driver.connected(sender.origin, hello)
        except PeerError as error:
            self.faults[f"refused_{error.reason}"] += 1
            self._break(link, str(error))

    def _wear_out(self, link: Link, life: int) -> None:
        if link.life == life and link.is_up and self.weather.break_per_second:
            self._break(link, "the link broke")

    def _break(self, link: Link, reason: str) -> None:
        """Ends the link: whoever was told of it is told again, pulls first."""
        if not link.is_up:
            return
        link.is_up = False
        self.faults["broken_links"] += 1
        greeted, pulling = link.greeted, link.pulling
        link.greeted, link.pulling = set(), set()
        for host in self._ends(link):
            if host.index in greeted:
                peer = self._hosts[self._far_end(link, host.index)].origin
                host.enter(_part, host.driver, peer, host.index in pulling, reason)
        self._redial(link)

    def _link(self, host: Endpoint, peer: OriginId) -> Link:
        other = self._indices[peer]
        return self._links[min(host.index, other), max(host.index, other)]

    def _ends(self, link: Link) -> list[Endpoint]:
        """Those of the two hosts that are up."""
        return [self._hosts[k] for k in link.edge if k in self._hosts and self._hosts[k].is_up]

    @staticmethod
    def _far_end(link: Link, index: int) -> int:
        return link.edge[0] if link.edge[1] == index else link.edge[1]


def _append(batch: list[Frame], frame: Frame) -> None:
    """A stream that is busy joins what waits, as the queue of the transport does."""
    last, new = batch[-1][1][-1], frame[1][-1]
    joined: Message
    if isinstance(new, Updates) and isinstance(last, Updates):
        joined = Updates(last.bundles + new.bundles)
    elif isinstance(new, Members) and isinstance(last, Members):
        joined = Members(last.members + new.members)
    else:
        batch.append(frame)
        return
    batch[-1] = (frame[0], (*frame[1][:-1], joined))


def _part(driver: Driver, peer: OriginId, is_pulling: bool, reason: str) -> None:
    if is_pulling:
        driver.pulled(peer)
    driver.disconnected(peer, reason)
