"""The driver: calls the pure core, and carries out what it decides: persist, then send, then all else.

Only the driver makes this order. It is synchronous. The daemon and the simulation run the same code; they differ in
what is behind the seams, and in the clock. This class serves any algorithm. One that keeps more than records has a
driver that extends it.

While the node's clock says that its time on the roster is over (`AccessList.is_untimely`), no new work is ordered.

Two things can be wrong with a disk. If it is full, the node sends nothing of its own that is not on the disk, until
there is space (`backlog`). If it fails, the driver halts and sends and does nothing more, because the core takes for
kept what is not. The JournalError is passed on to the shell.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from seedflood.errors import DiskFullError
from seedflood.host.backlog import Backlog
from seedflood.host.seams import Journal, Links, Observer
from seedflood.protocol.frontier import Held
from seedflood.protocol.origin import OriginId
from seedflood.protocol.swarm.messages import Hello, Member, Members, Message
from seedflood.protocol.swarm.outputs import Event, Outputs
from seedflood.protocol.swarm.roster import Roster
from seedflood.protocol.swarm.swarm import Swarm

RETRY_SECONDS = 1.0
"""How long to wait between two attempts to write to a full disk."""


@dataclass(eq=False, repr=False)
class Driver:
    """One node and the seams around it. compute: takes an order for the compute side and returns at once; orders are
    carried out one after the other, and answered by `answered`. clock: returns monotonic seconds."""

    node: Swarm[Any]
    _journal: Journal
    _links: Links
    _compute: Callable[[Any], None]
    _observer: Observer
    _clock: Callable[[], float]
    is_halted: bool = False
    keep_roster: Callable[[Roster], bool] = lambda _: True
    """Writes a roster to the disk, and returns whether it is there; set by the shell. It may not raise: what cannot be
    kept counts, too, and is tried again."""
    turns: int = 0
    """Counts what happened to the node. While it stays the same, views of the node stay the same, too."""
    _unkept: Roster | None = None
    """The newest roster, as long as it is not on the disk."""
    _waiting: list[Any] = field(default_factory=list)
    """Orders that wait for space on the disk, or for the clock."""

    def __post_init__(self) -> None:
        self._backlog = Backlog(self.node.origin)

    @property
    def is_disk_full(self) -> bool:
        """Was the disk full at the last write? Then nothing of our own is sent."""
        return self._backlog.is_stuck

    @property
    def is_paused(self) -> bool:
        """Is nothing new to be worked out now?"""
        return self._backlog.is_stuck or self.node.access.is_untimely

    # What happens

    def recall(self, members: Iterable[Member], records: Mapping[bytes, bytes]) -> None:
        self.do(lambda now: self.node.recall(members, now, records))
        self.tick()

    def check_hello(self, hello: Hello) -> None:
        """Raises PeerError if the sender may not link with us. The roster that it brings is looked at first: a newcomer
        may bring the one that lists it."""
        if hello.roster is not None:
            self.enrol(hello.roster)
        self.node.admission.check_hello(hello)

    def enrol(self, roster: Roster) -> None:
        """A roster came, from the operator or in a hello. Raises PeerError if it is not signed for this run."""
        self.do(lambda now: self.node.enrol(roster, now))

    def hello(self) -> Hello:
        """The first message on a new link. Our statement in it is the last one that is on the disk, if there is one."""
        hello = self.node.hello()
        return replace(hello, member=self._backlog.as_kept(hello.member))

    def answer(self, frontier: Iterable[Held]) -> Iterator[Any]:
        """The answer to a pull, made while it is sent: the members. An algorithm with a history adds more.

        Its parts are `Members` and those messages of the algorithm that answers may contain (`transport.answer`).
        """
        yield self._members()

    def connected(self, peer: OriginId, hello: Hello) -> None:
        self.do(lambda now: self.node.connected(peer, hello, now))

    def disconnected(self, peer: OriginId, reason: str) -> None:
        self.do(lambda now: self.node.disconnected(peer, now, reason))

    def received(self, peer: OriginId, message: Message) -> None:
        """Raises PeerError if the message is not allowed. The caller should then close the link."""
        self.do(lambda now: self.node.received(peer, message, now), source=peer)

    def answered(self, answer: Any) -> None:
        """Something that the node wanted done is done (`Algorithm.answer`)."""
        self.do(lambda now: self.node.answer(answer, now))

    def next_content(self, peer: OriginId) -> bytes | None:
        return None if self.is_halted else self.node.next_content(peer)

    def pulled(self, peer: OriginId) -> None:
        """A pull from the peer has ended, complete or not."""

    def progressed(self, peer: OriginId) -> None:
        """A pull has brought a part of a large item: the peer is still sending."""

    def leave(self) -> None:
        self.do(self.node.leave)

    def tick(self) -> None:
        if self.is_disk_full and not self.is_halted:
            self._retry()
        if self._unkept is not None and not self.is_halted:
            self._keep_roster(self._unkept)
        self.do(self.node.tick)
        if self._waiting and not (self.is_halted or self.is_paused):
            self._give_all()

    def halt(self) -> None:
        """Stops the node for good: it ignores all input and does nothing more. For faults of this host, after which
        its messages cannot be trusted."""
        self.is_halted = True

    def seconds_to_tick(self) -> float:
        """How many seconds the shell may wait before it must call `tick`."""
        now = self._clock()
        seconds = max(0.0, self.node.next_tick(now) - now)
        is_anything_unkept = self.is_disk_full or self._unkept is not None
        return min(seconds, RETRY_SECONDS) if is_anything_unkept else seconds

    def do(self, action: Callable[[float], None], source: OriginId | None = None) -> None:
        """Calls the node, then carries out what it wants. action: called with the time. source: the neighbour that
        caused it."""
        if self.is_halted:
            return
        try:
            action(self._clock())
        finally:
            out = self.node.collect()
            self.turns += 1
            self._honour(out, source)

    # What is to be done

    def _honour(self, out: Any, source: OriginId | None) -> None:
        """out: the `Outputs` of the node's algorithm."""
        if out.is_superseded:
            self.halt()
            self._observer.superseded()
            return
        if out.roster is not None:
            self._keep_roster(out.roster)
        self._carry_out(out, source)
        for peer in out.drop:
            self._links.drop(peer, "it is not on the roster any more")
        if out.is_removed:
            self.halt()
            self._observer.removed()

    def _carry_out(self, out: Any, source: OriginId | None) -> None:
        """Persist, then send, then all else. An algorithm that wants more has the same order with more steps."""
        with self._halting():
            self._persist(out)
        self._send_all(out)
        self._order(out.orders)
        self._log_events(out)

    @contextmanager
    def _halting(self) -> Iterator[None]:
        """If what is written here fails, nothing is sent any more."""
        try:
            yield
        except BaseException:
            self.halt()
            raise

    def _keep_roster(self, roster: Roster) -> None:
        self._unkept = None if self.keep_roster(roster) else roster

    def _persist(self, out: Any) -> None:
        """Writes to the open group of the journal, and ends it if it is due. While the disk is full, the group waits in
        the backlog."""
        is_end = out.ends_group or self._backlog.is_large
        if not (out.members or out.records or out.bundles or is_end):
            return
        self._backlog.add(out)
        if self._backlog.is_stuck:
            return
        try:
            self._write(out, durable=out.is_durable)
            if is_end:
                self._journal.commit()
                self._backlog.clear()
        except DiskFullError as error:
            if not out.may_wait:
                raise
            self._stick(error)

    def _write(self, kept: Outputs, *, durable: bool) -> None:
        assert not kept.bundles, "only an algorithm whose journal takes bundles may keep any"
        if kept.members or kept.records or durable:
            self._journal.keep(kept.members, kept.records, durable=durable)

    def _send_all(self, out: Any) -> None:
        for peer, message in out.send:
            if not self._backlog.holds_back(peer, message):
                self._send(peer, message)
        for peer, frontier in out.pull:
            self._links.pull(peer, frontier)
        for peer in sorted(out.contents):
            self._links.carry(peer)

    def _send(self, peer: OriginId, message: Message) -> None:
        self._links.send(peer, (message,))
        self._observer.sent(peer, message)

    def _order(self, orders: Iterable[Any]) -> None:
        """For the compute side. While the node is paused, orders wait."""
        self._waiting += orders
        if not self.is_paused:
            self._give_all()

    def _give_all(self) -> None:
        orders, self._waiting = self._waiting, []
        for order in orders:
            self._compute(order)

    def _log_events(self, out: Any) -> None:
        for event in out.events:
            self._observer.noted(event)
        if out.is_finished:
            self._observer.finished()

    def _stick(self, error: DiskFullError) -> None:
        """The disk is full, and the open group was rolled back. From now on it waits in the backlog, with everything of
        our own."""
        self._backlog.is_stuck = True
        self.turns += 1
        self._observer.noted(Event("disk full", "error", {"reason": str(error), "publishing": False}))

    def _retry(self) -> None:
        """Tries to write the backlog. If that succeeds, goes on where publishing stopped."""
        try:
            self._write(self._backlog.group(), durable=True)
        except DiskFullError:
            return
        except BaseException:
            self.halt()
            raise
        self._observer.noted(Event("disk has space again", "warning"))
        self.turns += 1
        self._resume()

    def _members(self) -> Members:
        """What we may send of everyone now."""
        members = map(self._backlog.as_kept, self.node.membership.to_send())
        return Members(tuple(member for member in members if not self._backlog.is_early(member)))

    def _resume(self) -> None:
        """Sends and orders what was withheld. Called when the backlog is on the disk."""
        for peer, message in self._backlog.release():
            self._send(peer, message)
        if not self.is_paused:
            self._give_all()
