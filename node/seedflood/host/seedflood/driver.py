"""The driver of SeedFlood: it persists bundles and sums, then sends, then applies.

While the disk is full the node stops publishing, but still relays what others say (`backlog`).
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

from seedflood.errors import DiskFullError
from seedflood.host.driver import Driver
from seedflood.host.seedflood.history import pages, take_stock
from seedflood.host.seedflood.seams import Adopt, Journal, Observer, Refill, Replay, Seal
from seedflood.protocol.frontier import Frontier, Held, Span, is_sendable
from seedflood.protocol.origin import OriginId
from seedflood.protocol.seedflood.bundles import Bundle, Updates
from seedflood.protocol.seedflood.messages import ClosedEpoch, Equivocation, Standing
from seedflood.protocol.seedflood.node import Node
from seedflood.protocol.seedflood.opening import joined
from seedflood.protocol.seedflood.outputs import (
    Answer,
    ClosedWindow,
    Compacted,
    CutOff,
    Measure,
    Measured,
    Order,
    Outputs,
    Pulled,
    Rebuild,
)
from seedflood.protocol.swarm import outputs as swarm
from seedflood.protocol.swarm.messages import Hello, Member, Members
from seedflood.protocol.swarm.outputs import Event

ANSWER_BUNDLES = 256
"""How many bundles are read at once for a neighbour, 22 KB on the wire. Live frames are sent in between."""


@dataclass(eq=False, repr=False)
class SeedfloodDriver(Driver):
    """One node that trains by SeedFlood."""

    node: Node
    _journal: Journal
    _observer: Observer
    _uncut: list[tuple[OriginId, Sequence[Span]]] = field(default_factory=list)
    """What is to be deleted when the disk has space."""
    _measured: Measured | None = None
    """A round that waits for space on the disk to be published."""

    def start(self, members: Iterable[Member], *, is_journal_damaged: bool = False, is_key_fresh: bool = True) -> None:
        """Resumes from the journal. Its last bundles wait for their windows; all others are read and applied page by
        page while the node works already. is_key_fresh: nothing was ever published with our key."""
        journal, members, records = self._journal, list(members), self._journal.records()
        settled, waiting, closed = take_stock(journal, members, self.node.origin, self.node.rules)
        if settled:
            self._compute(Replay(pages(journal, self._backlog, joined(settled.values()), self.node.contents.note)))
        self.do(
            lambda now: self.node.start(
                waiting,
                members,
                now,
                records=records,
                closed=closed,
                settled=settled,
                is_journal_damaged=is_journal_damaged,
                is_key_fresh=is_key_fresh,
            )
        )

    def hello(self) -> Hello:
        """The first message on a new link. It claims none of our own steps that are not on the disk yet."""
        hello, own = super().hello(), self.node.origin
        unsaved = min((one.first_covered for one in self._backlog.unwritten if one.origin == own), default=None)
        if unsaved is None:
            return hello
        frontier = tuple(Held(own, min(one.mark, unsaved)) if one.origin == own else one for one in hello.frontier)
        return replace(hello, frontier=frontier)

    def answer(self, frontier: Iterable[Held]) -> Iterator[Members | Equivocation | ClosedEpoch | Updates | Standing]:
        """The answer to a pull: everything that the frontier lacks, then our standing. Made while it is sent.

        Bundles of earlier epochs come before a sum: who is cut off in between then holds one range per origin, and not
        one per sum.

        Raises JournalError. The caller should serve others between its parts, of which some are empty.
        """
        yield self._members()
        yield from list(self.node.ends.proofs.values())
        for found in self._journal.read_missing(frontier, ANSWER_BUNDLES):
            if self.is_halted:
                return
            yield found if isinstance(found, ClosedEpoch) else Updates(tuple(found))
        standing = self.node.divergence.standing
        if standing is not None and is_sendable(standing.frontier):
            yield standing

    def pulled(self, peer: OriginId) -> None:
        self.answered(Pulled(peer))

    def progressed(self, peer: OriginId) -> None:
        """A part of a sum has come: the donor is still sending."""
        self.node.donors.part_received(peer)

    def answered(self, answer: Answer) -> None:
        if self.is_disk_full and isinstance(answer, Measured):
            self._measured = answer
        else:
            super().answered(answer)

    def _carry_out(self, out: Outputs, source: OriginId | None) -> None:
        with self._halting():
            adopted = [Adopt(closed, [*self._journal.adopt(closed), *self._unwritten(closed)]) for closed in out.adopt]
            self._persist(out)
            self._uncut += out.cut
            cut = self._cut()
        for closed in out.adopt:
            self._observer.adopted(closed, source)
        if out.bundles:
            self._observer.learned(out.bundles, source)
        self._send_all(out)
        for job in adopted:
            self._compute(job)
        compacted = [Compacted(closed) for closed in out.compact if self._compact(closed)]  # before any rebuild
        self._order(out.orders)
        self._log_events(out)
        for done in compacted:
            self.answered(done)
        for gone in cut:
            self.answered(gone)
        for peer, bundle in out.check:
            self._check(peer, bundle)

    def _write(self, kept: swarm.Outputs, *, durable: bool) -> None:
        if kept.records:
            self._journal.keep((), kept.records, durable=False)
        if kept.bundles or kept.members or durable:
            self._journal.append(kept.bundles, kept.members, durable=durable)

    def _order(self, orders: Iterable[Order]) -> None:
        """While the node is paused only measurements wait: what others publish is applied all the same."""
        for order in orders:
            match order:
                case Measure() if self.is_paused:
                    self._waiting.append(order)
                case Rebuild():
                    updates = pages(self._journal, self._backlog, Frontier(order.frontier))
                    self._compute(Refill(self._journal.closed_epochs(), updates))
                case _:
                    self._compute(order)
            if isinstance(order, ClosedWindow):
                self._observer.applied(order)

    def _check(self, peer: OriginId, bundle: Bundle) -> None:
        """Compares a neighbour's bundle with the journal, and reports a contradiction."""
        there = chain(self._backlog.unwritten, self._journal.overlapping(bundle))
        held = next(filter(bundle.contradicts, there), None)
        if held is not None:
            self.do(lambda _: self.node.equivocation.contradicted(peer, held, bundle))

    def _cut(self) -> list[CutOff]:
        """Deletes what counts no more, wherever it is. If the disk is full it is done later."""
        done = []
        while self._uncut and not self.is_disk_full:
            origin, spans = self._uncut[0]
            try:
                done.append(CutOff(origin, self._journal.cut(spans)))
            except DiskFullError as error:
                self._stick(error)
            else:
                self._backlog.clear()  # `cut` has committed the open group
                del self._uncut[0]
        return done

    def _unwritten(self, closed: ClosedEpoch) -> list[Bundle]:
        """The bundles of an epoch that wait for space and that its sum does not cover."""
        period, covered = self.node.rules.refresh_period, Frontier(closed.frontier)
        waiting = [bundle for bundle in self._backlog.unwritten if bundle.step // period == closed.epoch]
        return [bundle for bundle in waiting if not covered.holds(*bundle.span)]

    def _stick(self, error: DiskFullError) -> None:
        super()._stick(error)
        self.node.seedflood.note_disk(is_full=True)

    def _resume(self) -> None:
        self.node.seedflood.note_disk(is_full=False)
        measured, self._measured = self._measured, None
        super()._resume()
        if measured is not None:
            self.answered(measured)
        for gone in self._cut():
            self.answered(gone)

    def _compact(self, closed: ClosedEpoch) -> bool:
        """Puts our sum in place of bundles. Returns whether it did: a full disk has to have space first, and until then
        the node goes by the bundles, as the journal does."""
        if self.is_disk_full:
            return False
        try:
            dropped = self._journal.compact(closed)
        except DiskFullError as error:
            self._stick(error)
            return False
        self._observer.noted(Event("journal compacted", facts={"epoch": closed.epoch, "bundles": dropped}))
        self._compute(Seal(closed.epoch))
        return True
