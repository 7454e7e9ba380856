"""The driver of SeedFlood: it persists bundles and sums, then sends, then applies.

While the disk is full the node stops publishing, but still relays what others say (`backlog`).
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import NamedTuple

from seedflood.errors import DiskFullError
from seedflood.host.driver import Driver
from seedflood.host.seedflood.history import pages, take_stock
from seedflood.host.seedflood.seams import Adopt, Compute, Journal, Links, Observer, Refill, Replay, Seal
from seedflood.protocol.frontier import Frontier, Held, Span, is_tellable
from seedflood.protocol.origin import OriginId
from seedflood.protocol.seedflood.messages import (
    Bundle,
    ClosedEpoch,
    Equivocation,
    Standing,
    Update,
    Updates,
    payload_bytes,
)
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
from seedflood.protocol.swarm.messages import Hello, Member, Members, Message
from seedflood.protocol.swarm.outputs import Event

ANSWER_BUNDLES = 256
"""How many bundles are read at once for a neighbour, 22 KB on the wire. Live frames are sent in between."""


class _Kept(NamedTuple):
    """What was persisted. adopted: sums, each with the other bundles of its epoch. cut: the bundles that were deleted,
    by origin. compacted: sums of ours; added when the model has its orders."""

    adopted: list[tuple[ClosedEpoch, list[Bundle]]]
    cut: list[tuple[OriginId, list[Bundle]]]
    compacted: list[ClosedEpoch]


@dataclass(eq=False, repr=False)
class SeedfloodDriver(Driver):
    """One node that trains by SeedFlood."""

    node: Node
    _journal: Journal
    _links: Links
    _compute: Compute
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
            self._compute(Replay(self._history(joined(settled.values()), self.node.contents.note)))
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
        standing = self.node.watch.standing
        if standing is not None and is_tellable(standing.frontier):
            yield standing

    def pulled(self, peer: OriginId) -> None:
        self.answered(Pulled(peer))

    def progressed(self, peer: OriginId) -> None:
        """A part of a sum has come: the donor is still sending."""
        self.node.donors.hear(peer)

    def answered(self, answer: Answer) -> None:
        if self.is_disk_full and isinstance(answer, Measured):
            self._measured = answer
        else:
            super().answered(answer)

    def _send(self, peer: OriginId, message: Message) -> None:
        super()._send(peer, message)
        self._observer.sent(peer, message)

    def _persist(self, out: Outputs) -> _Kept:
        """Writes to the journal. A group ends with each window, with anything of our own, or when it is large."""
        adopted = [(closed, [*self._journal.adopt(closed), *self._unwritten(closed)]) for closed in out.adopt]
        self._append(out)
        self._uncut += out.cut
        return _Kept(adopted, list(self._cut()), [])

    def _append(self, out: Outputs) -> None:
        is_window_over = any(isinstance(order, ClosedWindow) for order in out.orders)
        is_end = out.is_durable or is_window_over or self._backlog.is_large
        if not (out.bundles or out.members or out.records or is_end):
            return
        self._backlog.add(out.members, out.records, out.bundles, payload_bytes(out.bundles))
        if self._backlog.is_stuck:
            return
        try:
            if out.records:
                self._journal.keep((), out.records, durable=False)
            if out.bundles or out.members or out.is_durable:
                self._journal.append(out.bundles, out.members, durable=out.is_durable)
            if is_end:
                self._commit()
        except DiskFullError as error:
            if out.adopt:
                raise
            self._stick(error)

    def _tell_kept(self, out: Outputs, kept: _Kept, source: OriginId | None) -> None:
        for closed, _ in kept.adopted:
            self._observer.adopted(closed, source)
        if out.bundles:
            self._observer.learned(out.bundles, source)

    def _perform(self, out: Outputs, kept: _Kept) -> None:
        for peer, frontier in out.pull:
            self._links.pull(peer, frontier)
        for closed, others in kept.adopted:
            self._compute(Adopt(closed, others))
        for closed in out.compact:  # before the orders: a rebuild reads the journal as it is then
            if self._compact(closed):
                kept.compacted.append(closed)
                self._compute(Seal(closed.epoch))
        for order in out.orders:
            self._give(order)

    def _give(self, order: Order) -> None:
        match order:
            case Measure() if self.is_paused:
                self._waiting.append(order)
            case Rebuild():
                self._compute(Refill(self._journal.closed_epochs(), self._history(Frontier(order.frontier))))
            case _:
                self._compute(order)
        if isinstance(order, ClosedWindow):
            self._observer.applied(order)

    def _go_on(self, out: Outputs, kept: _Kept) -> None:
        for closed in kept.compacted:
            self.answered(Compacted(closed))
        for origin, surplus in kept.cut:
            self.answered(CutOff(origin, surplus))
        for peer, bundle in out.check:
            self._check(peer, bundle)

    def _check(self, peer: OriginId, bundle: Bundle) -> None:
        """Compares a neighbour's bundle with the journal, and reports a contradiction."""
        there = chain(self._backlog.unwritten, self._journal.overlapping(bundle))
        held = next(filter(bundle.contradicts, there), None)
        if held is not None:
            self.do(lambda _: self.node.inquiry.contradicted(peer, held, bundle))

    def _cut(self) -> Iterator[tuple[OriginId, list[Bundle]]]:
        """Deletes what counts no more, wherever it is: (origin, its bundles). If the disk is full it is done later."""
        while self._uncut and not self.is_disk_full:
            origin, spans = self._uncut[0]
            try:
                deleted = self._journal.cut(spans)
            except DiskFullError as error:
                self._stick(error)
                return
            self._note_stated()  # `cut` has committed the open group
            self._backlog.clear()
            del self._uncut[0]
            yield origin, deleted

    def _unwritten(self, closed: ClosedEpoch) -> list[Bundle]:
        """The bundles of an epoch that wait for space and that its sum does not cover."""
        period, covered = self.node.rules.refresh_period, Frontier(closed.frontier)
        waiting = [bundle for bundle in self._backlog.unwritten if bundle.step // period == closed.epoch]
        return [bundle for bundle in waiting if not covered.holds(*bundle.span)]

    def _stick(self, error: DiskFullError) -> None:
        super()._stick(error)
        self.node.seedflood.hear_of_disk(is_full=True)

    def _write_backlog(self) -> None:
        if self._backlog.records:
            self._journal.keep((), self._backlog.records.values(), durable=False)
        self._journal.append(self._backlog.bundles, list(self._backlog.members.values()), durable=True)

    def _resume(self) -> None:
        self.node.seedflood.hear_of_disk(is_full=False)
        measured, self._measured = self._measured, None
        super()._resume()
        if measured is not None:
            self.answered(measured)
        for origin, surplus in list(self._cut()):
            self.answered(CutOff(origin, surplus))

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
        return True

    def _history(
        self, applied: Frontier, read: Callable[[Sequence[Bundle]], None] | None = None
    ) -> Iterator[list[Update]]:
        return pages(self._journal, applied, lambda: self._backlog.unwritten, read)
