"""Simulated links: ordered streams with random delays. What is in flight is lost when a link breaks.

Like TCP, a link never drops a frame in the middle of the stream. But frames of loose traffic (`Traffic.loose`) may be
dropped before they are sent, as by a full queue (`lose`), or come twice, or overtake each other. A stream may also
deliver nothing while both ends believe in it (`silence`). Links break, and are dialled again some time later.

Every frame passes the transport's codec. Messages are handled in the same order and refused for the same reasons as in
`transport.link`: a host that breaks the protocol loses the link, and is dialled again with growing delays.

Frames that arrive at the same moment are one event. Streams are ordered, so a slow frame holds up those behind it, and
they arrive with it.
"""

import random
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from seedflood.errors import PeerError
from seedflood.protocol.frontier import Held
from seedflood.protocol.origin import OriginId
from seedflood.protocol.swarm.messages import Goodbye, Hello, Message, Opaque
from seedflood.transport.answer import AnswerItem, cut
from seedflood.transport.codec import ANSWER_ONLY, LinkMessage, Pull, PullEnd, PullMore, PullPart
from simulation.clock import Clock
from simulation.endpoint import Endpoint, Hearer
from simulation.link import End, FrameEncoder, Item, Link, Traffic

FRAME_BYTES = 36
"""What a frame costs on a real link besides, if it is alone in a record of TLS (22 bytes), a frame of HTTP/2 (9) and a
message of gRPC (5)."""

DIAL_SECONDS = 0.25
"""The longest delay before the first dial. It doubles with every dial after which no link lasts."""


@dataclass(frozen=True, slots=True)
class Weather:
    """How links behave. Delays are in seconds. duplicate, reorder, lose: probability for each loose frame.
    break_per_second: rate at which one link breaks. redial_min, redial_max: seconds. is_one_sided: only one end of a
    link has the address of the other. rates: bytes per second each way; each link gets one of these, or none:
    unlimited.
    """

    delay_min: float = 0.001
    delay_max: float = 0.02
    duplicate: float = 0.0
    reorder: float = 0.0
    lose: float = 0.0
    break_per_second: float = 0.0
    redial_min: float = 0.05
    redial_max: float = 1.0
    is_one_sided: bool = False
    rates: tuple[float, ...] = ()

    @property
    def is_calm(self) -> bool:
        return not (self.duplicate or self.reorder or self.lose or self.break_per_second)


class Network:
    """Links between hosts along the edges of a graph."""

    def __init__(
        self,
        edges: Iterable[tuple[int, int]],
        clock: Clock,
        rng: random.Random,
        weather: Weather,
        traffic: Traffic | None = None,
    ) -> None:
        self.weather = weather
        self.faults: Counter[str] = Counter()
        self.refusals: Counter[tuple[int, int, str]] = Counter()
        """How often frames were refused, by (receiver, sender, reason)."""
        self.carried: Counter[str] = Counter()
        """Bytes that arrived in frames, by kind of message; as `Frames` what each frame costs besides."""
        self.forgers: dict[int, Callable[[Iterable[AnswerItem]], Iterable[AnswerItem]]] = {}
        """How liars change their answers to pulls, by index."""
        self._clock = clock
        self._rng = rng
        self._traffic = traffic or Traffic()
        self._encode = FrameEncoder().encode
        self._decode = self._traffic.decoder()
        self._hosts: dict[int, Endpoint] = {}
        self._links: dict[tuple[int, int], Link] = {}
        self._links_of: dict[int, list[Link]] = {}
        self._open: dict[tuple[int, OriginId], Link] = {}
        """Links by (index of a host that knows of the link, its peer)."""
        for edge in sorted({(min(e), max(e)) for e in edges}):
            self.add(edge)

    def add(self, edge: tuple[int, int], *, dialler: int | None = None) -> None:
        """Adds a pair of hosts that may be linked. dialler: the only one that dials; None: drawn, or both."""
        if dialler is None and self.weather.is_one_sided:
            dialler = self._rng.choice(edge)
        diallers = edge if dialler is None else (dialler,)
        rate = self._rng.choice(self.weather.rates) if self.weather.rates else None
        link = self._links[edge] = Link(edge, frozenset(diallers), rate)
        for index in edge:
            self._links_of.setdefault(index, []).append(link)

    # Hosts come and go

    def joined(self, host: Endpoint) -> None:
        """A host has started: it dials, and so do the hosts that have its address."""
        self._hosts[host.index] = host
        for link in self._links_of.get(host.index, ()):
            link.failures[host.index] = 0
            link.awaited.pop(host.index, None)
            for index in link.edge:
                self._redial(link, index)

    def vanished(self, host: Endpoint) -> None:
        """A host has stopped: its neighbours see their streams end."""
        for link in self._links_of.get(host.index, ()):
            self._break(link, "the host is gone")

    def neighbours(self, index: int) -> list[int]:
        """Indices of the hosts that share an edge with this one."""
        return [link.far_end(index) for link in self._links_of.get(index, ())]

    def is_silent(self, index: int) -> bool:
        """Is a stream to or from this host silenced?"""
        ways = (way for link in self._links_of.get(index, ()) for way in link.ways.values())
        return any(self._clock.now < way.silent_until for way in ways)

    def is_linked(self, one: int, other: int) -> bool:
        """Do both ends know of the link?"""
        link = self._links[min(one, other), max(one, other)]
        return link.is_up and all(map(link.is_greeted, link.edge))

    # Faults

    def partition(self, group: set[int], *, but: int | None = None) -> None:
        """Cuts every link between the group and the rest until `unite`. but: a host that stays linked with both."""
        for link in self._links.values():
            if but not in link.edge and (link.edge[0] in group) != (link.edge[1] in group):
                self._block(link)

    def isolate(self, index: int, *, but: int) -> None:
        """Cuts all links of a host but one until `unite`."""
        for link in self._links_of.get(index, ()):
            if but not in link.edge:
                self._block(link)

    def unite(self) -> None:
        """Ends a partition."""
        for link in self._links.values():
            link.is_blocked = False

    def heal(self) -> None:
        """Ends all lasting faults: partitions and silence."""
        self.unite()
        for link in self._links.values():
            for way in link.ways.values():
                way.silent_until = 0.0

    def silence(self, one: int, other: int, seconds: float) -> None:
        """A half-open stream: for some seconds nothing that `one` sends arrives, and neither end notices. Then all of
        it arrives."""
        way = self._links[min(one, other), max(one, other)].ways.get(one)
        if way is not None:
            way.silent_until = self._clock.now + seconds

    def break_link(self, one: int, other: int) -> None:
        self._break(self._links[min(one, other), max(one, other)], "the link broke")

    def linked_pairs(self) -> list[tuple[int, int]]:
        return [link.edge for link in self._links.values() if link.is_up]

    def _block(self, link: Link) -> None:
        link.is_blocked = True
        self._break(link, "partition")

    # The seam of the driver

    def send(self, sender: Endpoint, peer: OriginId, message: Message) -> None:
        link = self._open.get((sender.index, peer))
        if link is None:
            return
        copies = self._copies() if isinstance(message, self._traffic.loose) and not self.weather.is_calm else 1
        for _ in range(copies):
            self._carry(link, sender.index, message)

    def send_raw(self, sender: Endpoint, neighbour: int, item: Item) -> None:
        """Sends anything that a liar likes."""
        link = self._links[min(sender.index, neighbour), max(sender.index, neighbour)]
        self._carry(link, sender.index, item)

    def drop(self, host: Endpoint, peer: OriginId, reason: str) -> None:
        """Ends the link with the peer, as soon as the host has done what it does now."""
        link = self._open.get((host.index, peer))
        if link is not None:
            self._clock.after(0.0, self._drop, link, link.life, reason)

    def pull(self, puller: Endpoint, peer: OriginId, frontier: tuple[Held, ...]) -> bool:
        """Asks the peer for everything that the frontier lacks. False if a pull is under way already."""
        link = self._open.get((puller.index, peer))
        if link is None or link.ends[puller.index].is_pulling:
            return False
        end = link.ends[puller.index]
        end.is_pulling = True
        end.pulls += 1
        self._carry(link, puller.index, Pull(end.pulls, frontier))
        return True

    def carry(self, sender: Endpoint, peer: OriginId) -> None:
        """Something waits for the connection for contents to the peer."""
        link = self._open.get((sender.index, peer))
        if link is not None:
            self._clock.after(0.0, self._carry_content, link, link.life, sender.index)

    # Contents: in order, and nothing is lost before the link breaks

    def _carry_content(self, link: Link, life: int, sender: int) -> None:
        """Sends the next frame, if none is under way. The connection is opened when both ends have linked."""
        is_open = link.life == life and link.is_up and all(map(link.is_greeted, link.edge))
        if is_open and sender not in link.carrying:
            self._hosts[sender].enter(self._send_content, link, life, self._hosts[sender])

    def _send_content(self, link: Link, life: int, host: Endpoint) -> None:
        if link.life != life or not link.is_up or host.index in link.carrying:
            return
        frame = host.next_content(link.ends[host.index].peer)
        if frame is not None:
            self._pass_on(link, host.index, frame)

    def _pass_on(self, link: Link, sender: int, frame: bytes) -> None:
        link.carrying.add(sender)
        seconds = self._rng.uniform(self.weather.delay_min, self.weather.delay_max)
        seconds += len(frame) / link.rate if link.rate is not None else 0.0
        self._clock.after(seconds, self._arrive_content, link, link.life, sender, frame)

    def _arrive_content(self, link: Link, life: int, sender: int, frame: bytes) -> None:
        if link.life != life or not link.is_up:
            return
        silent_until = link.ways[sender].silent_until
        if self._clock.now < silent_until:
            self._clock.at(silent_until, self._arrive_content, link, life, sender, frame)
            return
        receiver = self._hosts[link.far_end(sender)]
        receiver.enter(self._hand_over_content, link, life, receiver, frame)
        if link.life == life:
            link.carrying.discard(sender)
            self._carry_content(link, life, sender)

    def _hand_over_content(self, link: Link, life: int, receiver: Endpoint, frame: bytes) -> None:
        if link.life != life or not link.is_up:
            return
        self.carried[Opaque.__name__] += len(frame)
        try:
            receiver.driver.received(link.ends[receiver.index].peer, Opaque(frame))
        except PeerError as error:
            self._refuse(link, receiver, error)

    # In flight

    def _copies(self) -> int:
        """How often a loose frame arrives: 0, 1 or 2 times."""
        if self._rng.random() < self.weather.lose:
            self.faults["lost_frames"] += 1
            return 0
        if self._rng.random() < self.weather.duplicate:
            self.faults["duplicated_frames"] += 1
            return 2
        return 1

    def _carry(self, link: Link, sender: int, item: Item) -> None:
        """Sends an item: it arrives some time later, if the link is still open then."""
        if not link.is_up:
            return
        way = link.ways[sender]
        moment = self._clock.now + self._rng.uniform(self.weather.delay_min, self.weather.delay_max)
        if link.rate is not None:
            moment += way.queue(sum(map(len, self._encode(item))) / link.rate, self._clock.now)
        if way.batches and moment <= way.arrival:
            way.append(item)
        else:
            way.arrival = moment
            way.batches.append([item])
            self._clock.at(moment, self._arrive, link, link.life, sender)
        if self.weather.reorder and isinstance(item, self._traffic.loose) and self._rng.random() < self.weather.reorder:
            places = way.places_of_loose()
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
        receiver = self._hosts[link.far_end(sender)]
        receiver.enter(self._hand_over, link, life, receiver, way.batches.popleft())

    def _hand_over(self, link: Link, life: int, receiver: Endpoint, batch: list[Item]) -> None:
        try:
            for item in batch:
                for frame in self._encode(item):
                    if link.life != life or not link.is_up:
                        return
                    message = self._decode(frame)
                    if message is not None:
                        self.carried[type(message).__name__] += len(frame)
                        self.carried["Frames"] += FRAME_BYTES
                        self._receive(link, receiver, message)
        except PeerError as error:
            self._refuse(link, receiver, error)

    def _refuse(self, link: Link, receiver: Endpoint, error: PeerError) -> None:
        self.faults[f"refused_{error.reason}"] += 1
        self.refusals[receiver.index, link.far_end(receiver.index), error.reason] += 1
        self._break(link, f"refused ({error.reason}): {error}", is_refused=not link.is_greeted(receiver.index))

    # How an end handles a message: as `transport.link` does

    def _receive(self, link: Link, receiver: Endpoint, message: LinkMessage) -> None:
        end = link.ends[receiver.index]
        if end.hello is None:
            self._greet(link, end, receiver, message)
            return
        match message:
            case Hello():
                raise PeerError("a second hello on one link", reason="hello")
            case _ if isinstance(message, ANSWER_ONLY):
                raise PeerError("a part of an answer outside of a pull", reason="order")
            case Pull():
                self._answer(link, receiver, message)
            case PullPart():
                self._receive_part(end, receiver, message)
            case PullEnd():
                self._end_pull(end, receiver, message)
            case PullMore():
                pass
            case _:
                receiver.driver.received(end.peer, message)
        if isinstance(message, Goodbye):
            self._break(link, f"goodbye: {message.reason}")

    def _greet(self, link: Link, end: End, host: Endpoint, message: LinkMessage) -> None:
        if not isinstance(message, Hello):
            raise PeerError("the first frame is no hello", reason="hello")
        host.driver.check_hello(message)
        peer = message.member.origin
        old = self._open.get((host.index, peer))
        if peer == host.origin:
            raise PeerError("this is ourselves", reason="self")
        if old is not None:
            known = old.ends[host.index].hello
            if known is not None and known.member.incarnation > message.member.incarnation:
                raise PeerError("there is a link already", reason="duplicate")
            self._break(old, "replaced by a newer link")
            if link.ends.get(host.index) is not end:
                return  # the host died while it handled the message
        end.hello = message
        self._open[host.index, peer] = link
        host.driver.connected(peer, message)
        for index in link.edge:  # what the first of them wants to send has waited for the second
            self._carry_content(link, link.life, index)

    def _answer(self, link: Link, donor: Endpoint, pull: Pull) -> None:
        answer: Iterable[AnswerItem] = donor.driver.answer(pull.frontier)
        if donor.index in self.forgers:
            answer = self.forgers[donor.index](answer)
        for part in cut(answer):
            if part is not None:
                self._carry(link, donor.index, PullPart(pull.id, part))
        self._carry(link, donor.index, PullEnd(pull.id, is_complete=True))

    @staticmethod
    def _receive_part(end: End, puller: Endpoint, part: PullPart) -> None:
        if not end.is_pulling or part.id != end.pulls:
            raise PeerError("an answer to a pull that we did not send", reason="order")
        item = end.assembly.join(part.message)
        if item is not None:
            puller.driver.received(end.peer, item)
        else:
            puller.driver.progressed(end.peer)

    @staticmethod
    def _end_pull(end: End, puller: Endpoint, message: PullEnd) -> None:
        if message.id != end.pulls:
            return
        if message.is_complete:
            end.assembly.end()
        if end.is_pulling:
            end.is_pulling = False
            puller.driver.pulled(end.peer)

    # Links come and go

    def _redial(self, link: Link, index: int, *, is_refused: bool = False) -> None:
        """Lets this end dial again, if it has the address. Delays grow until a link lasts."""
        if index not in link.diallers or index in link.awaited or link.is_up or not self._is_up(index):
            return
        bound = self.weather.redial_max
        if not is_refused:
            bound = min(bound, DIAL_SECONDS * 2.0 ** min(link.failures[index], 30))
        link.failures[index] += 1
        moment = self._clock.now + max(self.weather.redial_min, self._rng.uniform(0.0, bound))
        link.awaited[index] = moment
        self._clock.at(moment, self._dial, link, index, moment)

    def _dial(self, link: Link, index: int, moment: float) -> None:
        if link.awaited.get(index) != moment:
            return  # that process is gone
        del link.awaited[index]
        if link.is_up or not self._is_up(index):
            return
        ends = [self._hosts[one] for one in link.edge if self._is_up(one)]
        if len(ends) < 2 or link.is_blocked or any(host.is_paused for host in ends):
            self._redial(link, index)
            return
        link.open(self._clock.now, self._traffic)
        hellos = [host.driver.hello() for host in ends]
        for host, hello in zip(ends, hellos, strict=True):
            self._carry(link, host.index, hello)
        if self.weather.break_per_second:
            lifetime = self._rng.expovariate(self.weather.break_per_second)
            self._clock.after(lifetime, self._wear_out, link, link.life)

    def _wear_out(self, link: Link, life: int) -> None:
        if link.life == life and link.is_up and self.weather.break_per_second:
            self._break(link, "the link broke")

    def _drop(self, link: Link, life: int, reason: str) -> None:
        if link.life == life:
            self._break(link, reason)

    def _break(self, link: Link, reason: str, *, is_refused: bool = False) -> None:
        """Ends the link, and reports it to the hosts that know of it: first that pulls ended, then that the link did.
        is_refused: its hello was refused."""
        if not link.is_up:
            return
        link.is_up = False
        self.faults["broken_links"] += 1
        ends, link.ends = link.ends, {}
        for index, end in ends.items():
            if end.hello is not None:
                del self._open[index, end.peer]
        for index, end in ends.items():
            if end.hello is not None and self._is_up(index):
                host = self._hosts[index]
                host.enter(_part, host.driver, end.peer, end.is_pulling, reason)
            if self._clock.now - link.made_at > self.weather.redial_max:
                link.failures[index] = 0
        for index in link.edge:
            self._redial(link, index, is_refused=is_refused)

    def _is_up(self, index: int) -> bool:
        return index in self._hosts and self._hosts[index].is_up


def _part(driver: Hearer, peer: OriginId, is_pulling: bool, reason: str) -> None:
    if is_pulling:
        driver.pulled(peer)
    driver.disconnected(peer, reason)
