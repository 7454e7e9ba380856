"""The end of an origin: which of its steps no longer count, on every host.

An origin says goodbye, is removed and *cut* by its operator, or contradicts itself, which two bundles prove. Steps that
do not count are *holes*: a host notes them as held, as if their origin had skipped them, and accepts nothing of them
again. Bundles that a host already holds in a hole are *surplus*. It takes them out. So all hosts come to hold the same,
whatever each held before. What a compacted epoch covers stands.

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
"""An origin can prove an earlier end, and then a still earlier one, as often as it has published something. Each time
the hosts that follow look through everything that they hold of it. So once other proofs have replaced more than
QUICK_PROOFS, a host keeps, sends and follows the last one of each origin no more often than every FOLLOW_SECONDS."""

PROOF_KEY = b"end "
"""The key of the record of a proof. The origin stands behind it."""
_ORIGIN = struct.Struct(">Q")


class Ends:
    """The proofs and cuts that this host knows, and the holes that follow from them."""

    def __init__(
        self, rules: Rules, access: AccessList, holdings: Holdings, presence: Presence, outbox: Outbox[Outputs]
    ) -> None:
        self.proofs: dict[OriginId, Equivocation] = {}
        """By origin that contradicted itself: the proof with the earliest end."""
        self.refused: list[Span] = []
        """The steps of removed hosts that compacted epochs hold, although a cut says that they are holes."""
        self._rules = rules
        self._access = access
        self._holdings = holdings
        self._membership = presence.membership
        self._neighbours = presence.neighbours
        self._outbox = outbox
        self._cuts: dict[OriginId, Cut] = {}
        """The cuts that we followed last."""
        self._holes: dict[OriginId, tuple[Span, ...]] = {}
        self._is_changed = False
        """Has a proof come since we followed last?"""
        self._replaced = 0
        """How many proofs were replaced by others."""
        self._followed_at = float("-inf")
        self._unsent: dict[OriginId, OriginId | None] = {}
        """By origin whose proof was not sent to anyone yet: the neighbour that sent it to us."""

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
            key = PROOF_KEY + _ORIGIN.pack(origin)
            value = join_bundles((proof.one, proof.other))
            outputs.records.append(Record(key, value))
            outputs.send += [(peer, proof) for peer in self._neighbours if peer != source]
        self._unsent.clear()

    def is_news(self, proof: Equivocation) -> bool:
        """Does it end its origin, or end it earlier?"""
        known = self.proofs.get(proof.origin)
        return known is None or proof.end < known.end

    def send_proofs(self, peer: OriginId) -> None:
        """Sends a neighbour all proofs."""
        self._outbox.outputs.send += [(peer, proof) for proof in self.proofs.values()]

    def follow(self, now: float) -> None:
        """Orders that the journal looks for surplus, by the cuts and proofs that count now. `take_out` answers."""
        is_soon = self._replaced > QUICK_PROOFS and now < self._followed_at + FOLLOW_SECONDS
        is_any_proof_due = self._is_changed and not is_soon
        if self._cuts == self._access.cuts and not is_any_proof_due:
            return
        self._followed_at = now
        self._send_to_all()
        self._is_changed = False
        self._cuts = dict(self._access.cuts)
        before = self._holes
        after = {origin: self._find_holes(origin) for origin in self._cuts.keys() | self.proofs.keys()}
        origins = sorted(before.keys() | after.keys())
        changed = [origin for origin in origins if before.get(origin) != after.get(origin)]
        self.refused = [span for span in self.refused if span[0] not in changed]
        for origin in changed:
            self._undo(origin, before.get(origin, ()))
        self._holes = after
        for origin in changed:
            self._order(origin)

    def take_out(self, origin: OriginId, surplus: Sequence[Bundle]) -> bool:
        """Takes bundles out that have left the journal: all that it had in holes. Returns whether the coefficients have
        to be made again."""
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
        # Bundles that waited for a window are in no coefficients.
        return len(waiting) < len(surplus)

    def remains(self) -> tuple[Remains, ...]:
        """What we state of removed hosts: first of those that are not cut off yet."""
        origins = sorted(self.removed(), key=self.is_cut)[:REMAINS_MAX]
        return tuple(Remains(origin, self.digest(origin)) for origin in origins)

    def removed(self) -> list[OriginId]:
        return sorted(entry.origin for entry in self._access.entries() if entry.is_removed)

    def unknown(self, known: Collection[OriginId]) -> list[str]:
        """The names on the roster of hosts that are not among these, without removed hosts."""
        return [one.name for one in self._access.entries() if not one.is_removed and one.origin not in known]

    def is_cut(self, origin: OriginId) -> bool:
        return origin in self._cuts

    def digest(self, origin: OriginId) -> bytes:
        """32 bytes: of the steps of a removed host that are held here, and of their bundles in open epochs."""
        held = b"".join(struct.pack(">QQ", *span[1:]) for span in self.held(origin))
        return hashlib.sha256(b"seedflood remains 1\0" + held + self.content(origin)).digest()

    def held(self, origin: OriginId) -> list[Span]:
        """The steps of an origin that are held, without holes."""
        held = self._holdings.frontier.of(origin)
        return list(spans(without([held], self._holes.get(origin, ()))))

    @property
    def since(self) -> int:
        """The step behind the epochs that are closed here."""
        return self._holdings.closings.before

    def content(self, origin: OriginId) -> bytes:
        """The digest of what is held of a removed host from `since` on."""
        return self._holdings.contents.digest(origin, self.since)

    def is_settled(self, origin: OriginId) -> bool:
        """Is it cut off, and is exactly that here which counts?"""
        cut = self._cuts.get(origin)
        if cut is None or self._holdings.frontier.mark(origin) < self._rules.steps:
            return False
        contents = self._holdings.contents
        # The digest of the cut says nothing here in two cases. A proof took bundles out after the cut. Or an epoch that
        # it covers is compacted: then all have voted for what is in it.
        is_unknowable = origin in self.proofs or contents.is_summed(cut.since)
        return is_unknowable or contents.digest(origin, cut.since) == cut.content

    def _note(self, proof: Equivocation) -> None:
        self.proofs[proof.origin] = proof
        self._membership.ended[proof.origin] = proof.end
        self._is_changed = True

    def _look_across(self, bundle: Bundle) -> None:
        """Makes another proof of a bundle that was taken out, if it also covers steps before the end of its origin. Its
        end is earlier, so no step before it is lost with the bundle."""
        proof = self.proofs.get(bundle.origin)
        if proof is None:
            return
        is_across_end = bundle.first_covered < proof.end <= bundle.last
        if is_across_end:
            contradicted = proof.one if bundle.contradicts(proof.one) else proof.other
            self.prove(Equivocation(contradicted, bundle))

    def _undo(self, origin: OriginId, holes: Iterable[Span]) -> None:
        """Takes holes back that have changed. Of their steps only those count as held that compacted epochs hold."""
        compacted = self._holdings.closings.compacted(origin).held()
        for frontier in (self._holdings.frontier, self._holdings.applied):
            self._put(frontier, origin, holes)
            frontier.add_held(compacted)

    def _order(self, origin: OriginId) -> None:
        """Orders to look for surplus in the holes of an origin, except in compacted epochs, which stand."""
        holes = held_of(self._holes.get(origin, ()))
        compacted = self._holdings.closings.compacted(origin).held()
        open_holes = without(holes, spans(compacted))
        outputs = self._outbox.outputs
        outputs.cut.append((origin, tuple(spans(open_holes))))
        cut = held_of(self._cut_holes(origin))
        refused = list(spans(without(cut, spans(open_holes))))
        if not refused:
            return
        self.refused += refused
        name = self._membership.name(origin)
        steps = [f"{first}-{last}" for _, first, last in refused[:NAMED_MAX]]
        self._outbox.log("a cut contradicts compacted epochs", "error", member=name, steps=steps)

    def _find_holes(self, origin: OriginId) -> tuple[Span, ...]:
        """The steps of an origin that do not count, up to the end of the run."""
        holes = self._cut_holes(origin)
        proof = self.proofs.get(origin)
        if proof is not None:
            holes.append((origin, proof.end, self._rules.steps - 1))
        return tuple(spans(held_of(holes)))

    def _cut_holes(self, origin: OriginId) -> list[Span]:
        cut = self._cuts.get(origin)
        if cut is None:
            return []
        end = self._rules.steps - 1
        return [(origin, first, min(last, end)) for first, last in cut.holes if first <= end]

    @staticmethod
    def _put(frontier: Frontier, origin: OriginId, gone: Iterable[Span]) -> None:
        """From now on these steps of an origin are not held."""
        rest = without([frontier.of(origin)], gone)
        frontier.put(Frontier(rest).of(origin))
