"""The end of an origin: which of its steps count no more, on every host.

An origin says goodbye, is removed and *cut* by its operator, or contradicts itself, which two bundles prove. Steps that
do not count are *holes*: they are held as if they were skipped, and nothing of them is taken again. So all hosts come
to hold the same, whatever each held before. What a compacted epoch covers stands.

How surplus is taken out, and why no order matters: docs/explanation/consensus.md.
"""

import hashlib
import struct
from collections.abc import Collection, Iterable, Mapping, Sequence

from seedflood.protocol.frontier import Frontier, Span, held_of, spans, without
from seedflood.protocol.origin import OriginId
from seedflood.protocol.seedflood.bundles import Bundle, join_bundles, read_bundles
from seedflood.protocol.seedflood.holdings import Holdings
from seedflood.protocol.seedflood.messages import Equivocation
from seedflood.protocol.seedflood.outputs import Outputs
from seedflood.protocol.seedflood.rules import Rules
from seedflood.protocol.seedflood.statement import REMAINS_MAX, Remains
from seedflood.protocol.swarm.access import AccessList
from seedflood.protocol.swarm.membership import NAMED_MAX
from seedflood.protocol.swarm.outputs import Outbox, Record
from seedflood.protocol.swarm.presence import Presence
from seedflood.protocol.swarm.roster import Cut

QUICK_PROOFS = 8
FOLLOW_SECONDS = 2.0
"""An origin can prove that it ended earlier, and again earlier, as often as it has published something, and whoever
follows looks through all that is held of it. So if more than QUICK_PROOFS were replaced by others, the last one of each
origin is kept, sent and followed no more often than this."""

PROOF_KEY = b"end "
_ORIGIN = struct.Struct(">Q")
"""With the origin behind it: of the record of a proof."""


class Ends:
    """proofs: by origin that contradicted itself, the proof with the earliest end. refused: the steps of removed hosts
    that compacted epochs hold, and that a cut says are holes."""

    def __init__(
        self, rules: Rules, access: AccessList, holdings: Holdings, presence: Presence, outbox: Outbox[Outputs]
    ) -> None:
        self.proofs: dict[OriginId, Equivocation] = {}
        self.refused: list[Span] = []
        self._rules = rules
        self._access = access
        self._holdings = holdings
        self._membership = presence.membership
        self._neighbours = presence.neighbours
        self._outbox = outbox
        self._cuts: dict[OriginId, Cut] = {}
        self._holes: dict[OriginId, tuple[Span, ...]] = {}
        self._is_changed = False
        self._replaced, self._followed_at = 0, float("-inf")
        """How many proofs were replaced by others, and when we followed last."""
        self._unsent: dict[OriginId, OriginId | None] = {}
        """By origin of whose proof nobody was sent yet: who sent it to us."""

    def recall(self, records: Mapping[bytes, bytes]) -> None:
        """The proofs that the journal has."""
        for key, value in records.items():
            if key.startswith(PROOF_KEY):
                (origin,) = _ORIGIN.unpack(key[len(PROOF_KEY) :])
                self._note(Equivocation(*read_bundles((origin, origin), value)))

    def prove(self, proof: Equivocation, source: OriginId | None = None) -> None:
        """Takes a proof whose signatures were checked, names the culprit, and sends it to all others, if it is news."""
        if not self.is_news(proof):
            return
        origin = proof.origin
        if origin not in self.proofs:
            name = self._membership.name(origin)
            self._outbox.log("a host contradicts itself", "error", member=name, step=proof.end)
        elif origin not in self._unsent:
            self._replaced += 1
        self._note(proof)
        self._unsent[origin] = source
        if self._replaced <= QUICK_PROOFS:
            self._send_to_all()

    def _send_to_all(self) -> None:
        outputs = self._outbox.outputs
        for origin, source in self._unsent.items():
            proof = self.proofs[origin]
            key, value = PROOF_KEY + _ORIGIN.pack(origin), join_bundles((proof.one, proof.other))
            outputs.records.append(Record(key, value))
            outputs.send += [(peer, proof) for peer in self._neighbours if peer != source]
        self._unsent.clear()

    def is_news(self, proof: Equivocation) -> bool:
        """Does it end its origin, or end it earlier?"""
        known = self.proofs.get(proof.origin)
        return known is None or proof.end < known.end

    def send_proofs(self, peer: OriginId) -> None:
        """Sends a neighbour what was proven."""
        self._outbox.outputs.send += [(peer, proof) for proof in self.proofs.values()]

    def follow(self, now: float) -> None:
        """Orders what is surplus by the roster and the proofs that count now. Answered by `take_out`."""
        is_soon = self._replaced > QUICK_PROOFS and now < self._followed_at + FOLLOW_SECONDS
        if self._cuts == self._access.cuts and (is_soon or not self._is_changed):
            return
        self._followed_at = now
        self._send_to_all()
        self._is_changed, self._cuts = False, dict(self._access.cuts)
        before = self._holes
        after = {origin: self._find_holes(origin) for origin in self._cuts.keys() | self.proofs.keys()}
        changed = sorted(one for one in before.keys() | after.keys() if before.get(one) != after.get(one))
        self.refused = [span for span in self.refused if span[0] not in changed]
        for origin in changed:
            self._undo(origin, before.get(origin, ()))
        self._holes = after
        for origin in changed:
            self._order(origin)

    def take_out(self, origin: OriginId, surplus: Sequence[Bundle]) -> bool:
        """The journal has lost these bundles, all that it had in holes. Returns whether the coefficients have to be
        made again."""
        holdings = self._holdings
        gone = set(surplus)
        waiting = holdings.pending.drop(gone.__contains__)
        holdings.closings.take_out(surplus)
        holdings.contents.take_out(surplus)
        for frontier in (holdings.frontier, holdings.applied):
            self._put(frontier, origin, [bundle.span for bundle in surplus])
            for span in self._holes.get(origin, ()):
                frontier.add(*span)
        holdings.updated[origin] = None
        self._outbox.log("steps cut off", "warning", member=self._membership.name(origin), surplus=len(surplus))
        for bundle in surplus:
            self._look_across(bundle)
        return len(waiting) < len(surplus)

    def remains(self) -> tuple[Remains, ...]:
        """What is to be stated of removed hosts: first of those that are not cut off yet."""
        origins = sorted(self.removed(), key=self.is_cut)[:REMAINS_MAX]
        return tuple(Remains(origin, self.digest(origin)) for origin in origins)

    def removed(self) -> list[OriginId]:
        return sorted(entry.origin for entry in self._access.entries() if entry.is_removed)

    def unknown(self, known: Collection[OriginId]) -> list[str]:
        """The names on the roster, but of removed hosts, that are not of these."""
        return [one.name for one in self._access.entries() if not one.is_removed and one.origin not in known]

    def is_cut(self, origin: OriginId) -> bool:
        return origin in self._cuts

    def digest(self, origin: OriginId) -> bytes:
        """32 bytes: which steps of a removed host are held here, and in open epochs with which bundles."""
        held = b"".join(struct.pack(">QQ", *span[1:]) for span in self.held(origin))
        return hashlib.sha256(b"seedflood remains 1\0" + held + self.content(origin)).digest()

    def held(self, origin: OriginId) -> list[Span]:
        """The steps of an origin that are held, without holes."""
        return list(spans(without([self._holdings.frontier.of(origin)], self._holes.get(origin, ()))))

    @property
    def since(self) -> int:
        """The step behind the epochs that are closed here."""
        return self._holdings.closings.before

    def content(self, origin: OriginId) -> bytes:
        """The digest of what is held of a removed host from there on."""
        return self._holdings.contents.digest(origin, self.since)

    def is_settled(self, origin: OriginId) -> bool:
        """Is it cut off, and is exactly that here which counts? What is in compacted epochs, all have voted for; and
        what a proof took out later, the cut does not know."""
        cut, contents = self._cuts.get(origin), self._holdings.contents
        if cut is None or self._holdings.frontier.mark(origin) < self._rules.steps:
            return False
        is_unknowable = origin in self.proofs or contents.is_summed(cut.since)
        return is_unknowable or contents.digest(origin, cut.since) == cut.content

    def _note(self, proof: Equivocation) -> None:
        self.proofs[proof.origin] = proof
        self._membership.ended[proof.origin] = proof.end
        self._is_changed = True

    def _look_across(self, bundle: Bundle) -> None:
        """A bundle that is gone may cover steps before the end of its origin: then the end is earlier."""
        proof = self.proofs.get(bundle.origin)
        if proof is not None and bundle.first_covered < proof.end <= bundle.last:
            other = proof.one if bundle.contradicts(proof.one) else proof.other
            self.prove(Equivocation(other, bundle))

    def _undo(self, origin: OriginId, holes: Iterable[Span]) -> None:
        """These holes are none any more, or not for the same reason. What compacted epochs hold of them is held."""
        compacted = self._holdings.closings.compacted(origin).held()
        for frontier in (self._holdings.frontier, self._holdings.applied):
            self._put(frontier, origin, holes)
            frontier.add_held(compacted)

    def _order(self, origin: OriginId) -> None:
        """Looks for surplus in holes, but not in compacted epochs, which stand."""
        holes = held_of(self._holes.get(origin, ()))
        found = without(holes, spans(self._holdings.closings.compacted(origin).held()))
        outputs = self._outbox.outputs
        outputs.cut.append((origin, tuple(spans(found))))
        cut = held_of(self._cut_holes(origin))
        if refused := list(spans(without(cut, spans(found)))):
            self.refused += refused
            name, steps = self._membership.name(origin), [f"{first}-{last}" for _, first, last in refused[:NAMED_MAX]]
            self._outbox.log("a cut contradicts compacted epochs", "error", member=name, steps=steps)

    def _find_holes(self, origin: OriginId) -> tuple[Span, ...]:
        """The steps that do not count, as far as the run goes."""
        holes, last = self._cut_holes(origin), self._rules.steps - 1
        if (proof := self.proofs.get(origin)) is not None:
            holes.append((origin, proof.end, last))
        return tuple(spans(held_of(holes)))

    def _cut_holes(self, origin: OriginId) -> list[Span]:
        cut, end = self._cuts.get(origin), self._rules.steps - 1
        return [(origin, first, min(last, end)) for first, last in cut.holes if first <= end] if cut else []

    @staticmethod
    def _put(frontier: Frontier, origin: OriginId, gone: Iterable[Span]) -> None:
        frontier.put(Frontier(without([frontier.of(origin)], gone)).of(origin))
