"""Which updates of a removed host count: those that the operator's cut says, on every host.

A host that was removed is frozen: nothing new of it is taken, but hosts go on repairing what any of them holds. Each of
them states the digest of what it holds of that host. When all that can be reached state the same, the operator signs a
cut, an entry of the roster: these steps count, and all others are *holes*. Windows
do not wait for a removed host: some hosts apply its last updates with their windows, others later.

A hole is a step that the operator declares as skipped, in place of the origin. So a host that follows a cut notes the
holes as held, which is all that windows, epochs and the end of a run ask. What it holds in a hole is *surplus*: the
bundles leave journal and queues, their epochs are opened again, and the coefficients are made again from the journal.
What it lacks outside of the holes is repaired as ever. Nothing of a hole is taken again, from anybody (`admission`).

So all hosts that follow one cut come to hold the same. A step of the origin is a hole or not, whatever a host held
before. In a hole nobody has anything. Outside of holes everybody has what anybody has, by repair, and of two bundles of
one step the same one stands everywhere (`inquiry`). Coefficients follow from what is held, so they are equal, too. If
another edition of the roster takes the place of the first, its cut is followed in place of the first one.

A compacted epoch stands as it is, though a cut says otherwise: everyone who takes part has stated its sum, and its
bundles are gone. Then the cut is refused for that epoch, and the host says so. It happens only if the operator has
signed a cut that not all had stated.
"""

import hashlib
import struct
from collections.abc import Collection, Iterable, Sequence

from seedflood.protocol.frontier import Frontier, Held, Span, spans, without
from seedflood.protocol.origin import OriginId
from seedflood.protocol.seedflood.holdings import Holdings
from seedflood.protocol.seedflood.messages import Bundle
from seedflood.protocol.seedflood.outputs import Outputs
from seedflood.protocol.seedflood.rules import Rules
from seedflood.protocol.seedflood.statement import REMAINS_MAX, Remains
from seedflood.protocol.swarm.gate import Gate
from seedflood.protocol.swarm.membership import NAMED_MAX, Membership
from seedflood.protocol.swarm.outbox import Outbox
from seedflood.protocol.swarm.roster import Cut


class Cuts:
    """Follows the cuts of the roster. contradicted: the steps of removed hosts that compacted epochs hold, and
    that a cut says are holes."""

    def __init__(
        self, rules: Rules, gate: Gate, holdings: Holdings, membership: Membership, outbox: Outbox[Outputs]
    ) -> None:
        self.contradicted: list[Span] = []
        self._rules = rules
        self._gate = gate
        self._holdings = holdings
        self._membership = membership
        self._outbox = outbox
        self._followed: dict[OriginId, Cut] = {}

    def follow(self) -> None:
        """Orders what is surplus by the roster that counts now. Answered by `take_out`."""
        before, now = self._followed, self._gate.cuts
        if before == now:
            return
        changed = sorted(one for one in before.keys() | now.keys() if before.get(one) != now.get(one))
        self.contradicted = [span for span in self.contradicted if span[0] not in changed]
        for origin in changed:
            self._undo(origin, self._holes(origin))
        self._followed = dict(now)
        for origin in changed:
            self._order(origin)

    def take_out(self, origin: OriginId, surplus: Sequence[Bundle]) -> bool:
        """The journal has lost these bundles, all that it had in the holes of a cut. Returns whether the coefficients
        have to be made again."""
        holdings = self._holdings
        gone = set(surplus)
        waiting = holdings.pending.drop(gone.__contains__)
        holdings.closings.take_out(surplus)
        holdings.contents.take_out(surplus)
        for frontier in (holdings.frontier, holdings.applied):
            self._put(frontier, origin, [bundle.span for bundle in surplus])
            for span in self._holes(origin):
                frontier.add(*span)
        holdings.heard[origin] = None
        facts = {"member": self._membership.name(origin), "surplus": len(surplus), "serial": self._serial}
        self._outbox.tell("cut followed", "warning", **facts)
        return len(waiting) < len(surplus)

    def remains(self) -> tuple[Remains, ...]:
        """What is to be stated of removed hosts: first of those that are not cut off yet."""
        origins = sorted(self.removed(), key=self.is_cut)[:REMAINS_MAX]
        return tuple(Remains(origin, self.digest(origin)) for origin in origins)

    def removed(self) -> list[OriginId]:
        return sorted(entry.origin for entry in self._gate.entries() if entry.is_removed)

    def unknown(self, known: Collection[OriginId]) -> list[str]:
        """The names on the roster, but of removed hosts, that are not of these."""
        return [one.name for one in self._gate.entries() if not one.is_removed and one.origin not in known]

    def is_cut(self, origin: OriginId) -> bool:
        return origin in self._followed

    def digest(self, origin: OriginId) -> bytes:
        """32 bytes: which steps of a removed host are held here, and in open epochs with which bundles."""
        held = b"".join(struct.pack(">QQ", *span[1:]) for span in self.held(origin))
        return hashlib.sha256(b"seedflood remains 1\0" + held + self.content(origin)).digest()

    def held(self, origin: OriginId) -> list[Span]:
        """The steps of a removed host that are held, without holes."""
        return list(spans(without([self._holdings.frontier.of(origin)], self._holes(origin))))

    @property
    def since(self) -> int:
        """The step behind the epochs that are closed here."""
        return self._holdings.closings.before

    def content(self, origin: OriginId) -> bytes:
        """The digest of what is held of a removed host from there on."""
        return self._holdings.contents.digest(origin, self.since)

    def is_settled(self, origin: OriginId) -> bool:
        """Is it cut off, and is exactly that here which counts? What is in compacted epochs, all have stated."""
        cut, contents = self._followed.get(origin), self._holdings.contents
        if cut is None or self._holdings.frontier.mark(origin) < self._rules.steps:
            return False
        return contents.is_summed(cut.since) or contents.digest(origin, cut.since) == cut.content

    @property
    def _serial(self) -> int:
        return self._gate.roster.serial if self._gate.roster is not None else 0

    def _undo(self, origin: OriginId, holes: Iterable[Span]) -> None:
        """These holes of another edition are none any more. What compacted epochs hold of them is held."""
        compacted = self._holdings.closings.compacted(origin).of(origin)
        for frontier in (self._holdings.frontier, self._holdings.applied):
            self._put(frontier, origin, holes)
            frontier.add_held(compacted)

    def _order(self, origin: OriginId) -> None:
        """Looks for surplus in the holes of a cut, but not in compacted epochs, which stand."""
        holes = joined(self._holes(origin))
        found = without(holes, spans(self._holdings.closings.compacted(origin).held()))
        outputs = self._outbox.outputs
        outputs.cut.append((origin, tuple(spans(found))))
        if standing := list(spans(without(holes, spans(found)))):
            self.contradicted += standing
            name, steps = self._membership.name(origin), [f"{first}-{last}" for _, first, last in standing[:NAMED_MAX]]
            self._outbox.tell("a cut contradicts compacted epochs", "error", member=name, steps=steps)

    def _holes(self, origin: OriginId) -> list[Span]:
        """The holes of the cut that is followed, as far as the run goes."""
        cut, end = self._followed.get(origin), self._rules.steps - 1
        return [(origin, first, min(last, end)) for first, last in cut.holes if first <= end] if cut else []

    @staticmethod
    def _put(frontier: Frontier, origin: OriginId, gone: Iterable[Span]) -> None:
        frontier.put(Frontier(without([frontier.of(origin)], gone)).of(origin))


def joined(spans: Iterable[Span]) -> tuple[Held, ...]:
    """These steps as values of a frontier."""
    frontier = Frontier()
    for span in spans:
        frontier.add(*span)
    return frontier.held()
