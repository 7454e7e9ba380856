"""The driver: the seams to the outside, and the one ordered way to honour what the core decides.

Synchronous. The daemon and the simulation run this same code; they differ in what stands behind the four seams and in
whose clock they read. Persist, then send, then apply: the order is made here and nowhere else.

If persisting fails, nothing of that output is sent or applied, the driver halts, and `JournalError` rises to the shell:
the core believes by then that the bundle is kept, and would offer it to the next neighbour.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from seedflood.protocol.messages import Bundle, Held, Hello, Member, Message, OriginId
from seedflood.protocol.node import Node
from seedflood.protocol.outputs import ClosedWindow, Event, Measure, Outputs


class Journal(Protocol):
    """The durable log."""

    def append(self, bundles: Sequence[Bundle], members: Sequence[Member], *, durable: bool) -> int:
        """Keeps them in one transaction; `durable`: on the disk before this returns. Raises JournalError.

        Returns how many bundles were new.
        """


class Links(Protocol):
    """The neighbours. Neither method blocks or raises; what cannot be sent is repaired later."""

    def send(self, peer: OriginId, messages: Sequence[Message]) -> None: ...

    def pull(self, peer: OriginId, frontier: tuple[Held, ...]) -> object:
        """Asks for what the frontier lacks; ends with `Driver.pulled`."""


class Compute(Protocol):
    """The model, on its own thread: takes orders in sequence, answers by `Driver.published`."""

    def apply(self, window: ClosedWindow) -> None: ...

    def measure(self, order: Measure) -> None: ...


class Observer(Protocol):
    """Whoever wants to know: log, metrics, a test."""

    def noted(self, event: Event) -> None: ...

    def applied(self, window: ClosedWindow) -> None: ...

    def finished(self) -> None: ...


class Driver:
    """One node and the four seams around it. `clock` returns seconds, monotonic."""

    def __init__(
        self,
        node: Node,
        journal: Journal,
        links: Links,
        compute: Compute,
        observer: Observer,
        clock: Callable[[], float],
    ) -> None:
        self.node = node
        self.is_halted = False
        self._journal = journal
        self._links = links
        self._compute = compute
        self._observer = observer
        self._clock = clock

    def start(self, bundles: Iterable[Bundle], members: Iterable[Member]) -> None:
        self._do(lambda now: self.node.start(bundles, members, now))

    def connected(self, peer: OriginId, hello: Hello) -> None:
        self._do(lambda now: self.node.connected(peer, hello, now))

    def disconnected(self, peer: OriginId, reason: str) -> None:
        self._do(lambda now: self.node.disconnected(peer, now, reason))

    def received(self, peer: OriginId, message: Message) -> None:
        """Raises PeerError if the message is not allowed; then the link should be closed."""
        self._do(lambda now: self.node.received(peer, message, now))

    def pulled(self, peer: OriginId) -> None:
        self._do(lambda now: self.node.pulled(peer, now))

    def published(self, step: int, probes: Sequence[tuple[int, int]]) -> None:
        self._do(lambda now: self.node.published(step, probes, now))

    def leave(self) -> None:
        self._do(self.node.leave)

    def tick(self) -> None:
        self._do(self.node.tick)

    def halt(self) -> None:
        """From now on nothing is taken in or done: this host is at fault, and what it would say cannot be trusted."""
        self.is_halted = True

    def seconds_to_tick(self) -> float:
        """How long the shell may wait before it must call `tick`."""
        now = self._clock()
        return max(0.0, self.node.next_tick(now) - now)

    def _do(self, action: Callable[[float], None]) -> None:
        if self.is_halted:
            return
        try:
            action(self._clock())
        finally:
            self._honour(self.node.collect())

    def _honour(self, out: Outputs) -> None:
        if out.bundles or out.members:
            try:
                self._journal.append(out.bundles, out.members, durable=out.is_durable)
            except BaseException:
                self.halt()
                raise
        for peer, message in out.send:
            self._links.send(peer, (message,))
        for peer, frontier in out.pull:
            self._links.pull(peer, frontier)
        for window in out.apply:
            self._compute.apply(window)
            self._observer.applied(window)
        if out.measure is not None:
            self._compute.measure(out.measure)
        for event in out.events:
            self._observer.noted(event)
        if out.is_finished:
            self._observer.finished()
