"""When a node may end its run: nothing is missing here, and the neighbours say the same of themselves.

So a bit that flips in the last round is found like any other. Even a node whose patience is over rebuilds a replica
that it doubts. It does not wait for contradictions after that, which a liar could send for ever; if it ends behind its
journal for that reason, its log says so.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from seedflood.protocol.origin import STEP_MAX, OriginId
from seedflood.protocol.seedflood.divergence import DivergenceDetector
from seedflood.protocol.seedflood.donors import Donors
from seedflood.protocol.seedflood.holdings import Holdings
from seedflood.protocol.seedflood.rules import Rules
from seedflood.protocol.seedflood.statement import stated
from seedflood.protocol.swarm.graph import distances
from seedflood.protocol.swarm.membership import NAMED_MAX
from seedflood.protocol.swarm.messages import Member
from seedflood.protocol.swarm.presence import Presence
from seedflood.protocol.swarm.rules import Patience
from seedflood.protocol.swarm.view import stated_edges


@dataclass(eq=False, repr=False)
class Ending:
    """The last phase of a run. steps: of the run, as far as it goes. since: when it began. is_announced: the neighbours
    know that we need nothing more."""

    _rules: Rules
    _patience: Patience
    _presence: Presence
    _holdings: Holdings
    _donors: Donors
    _divergence: DivergenceDetector
    since: float | None = None
    is_announced: bool = False
    _behind: OriginId | None = None
    """The origin of which `is_all_held` missed an update last."""

    def __post_init__(self) -> None:
        self.steps = self._rules.steps
        self._origin = self._presence.ours.origin
        self._turns = self._rules.turns
        self._membership = self._presence.membership
        self._linked = self._presence.neighbours
        self._frontier, self._applied = self._holdings.frontier, self._holdings.applied

    @property
    def is_complete(self) -> bool:
        """Does the node need nothing more for this run?"""
        return self.since is not None and self.is_all_held(self.steps)

    def is_all_held(self, before: int) -> bool:
        """Is every update held that those who joined owe for the steps below `before`? Of many hosts most look-ups end
        with the one that lacked something at the last."""
        behind = None if self._behind is None else self._membership.spoken(self._behind)
        if behind is not None and self._lacks(behind, before - 1):
            return False
        lacking = (word.origin for word in self._membership.words() if self._lacks(word, before - 1))
        self._behind = next(lacking, None)
        return self._behind is None

    def _lacks(self, word: Member, end: int) -> bool:
        """Does the origin owe an update for the steps up to `end` that is not held?"""
        last = self._last_owed(word, end)
        return last is not None and not self._frontier.holds(word.origin, 0, last)

    def is_held_of_reached(self, before: int) -> bool:
        """Is every update held that those owe for the steps below `before` who are linked with us, through whomever?"""
        reached = distances(stated_edges(self._membership.all()), self._origin)
        owed = (one for one in self._owed(before - 1) if one[0] in reached)
        return all(self._frontier.holds(origin, 0, last) for origin, last in owed)

    def lacking(self, before: int) -> dict[OriginId, list[tuple[int, int]]]:
        """The updates owed for the steps below `before` that are not held, as ranges of steps by origin."""
        gaps = ((origin, self._frontier.gaps(origin, last)) for origin, last in self._owed(before - 1))
        return {origin: ranges for origin, ranges in gaps if ranges}

    def holds_everything(self, before: int = STEP_MAX) -> bool:
        """Did all clients join, and is every update held that they owe for the steps below `before`, or of the whole
        run?"""
        return self._membership.taking_part >= self._rules.clients and self.is_all_held(min(before, self.steps))

    def missing(self) -> dict[OriginId, list[tuple[int, int]]]:
        """The same of the whole run when no steps are left; empty before that phase."""
        return {} if self.since is None else self.lacking(self.steps)

    def _owed(self, end: int) -> Iterator[tuple[OriginId, int]]:
        """Who owes updates for the steps up to `end`, and the last one that it owes."""
        for word in self._membership.words():
            if (last := self._last_owed(word, end)) is not None:
                yield word.origin, last

    def _last_owed(self, word: Member, end: int) -> int | None:
        """The last step up to `end` for which an origin owes an update; None if it owes none. An origin that left owes
        nothing after its last step, and nobody owes rounds in which others take their turns."""
        if word.first_step > end or word.last_step == -1:
            return None
        last = self._turns.last(word.origin, end if word.last_step is None else word.last_step)
        return last if word.last_step is not None or last >= word.first_step else None

    def describe_missing(self) -> dict[str, object]:
        """Facts for the log: without which steps of which origins the run cannot end, and which hosts may hold them:
        neither we nor our neighbours do."""
        gaps, membership = self.missing(), self._membership
        if not gaps:
            return {}
        missing = [
            f"{membership.name(origin)} steps {', '.join(f'{first}-{last}' for first, last in spans[:NAMED_MAX])}"
            for origin, spans in sorted(gaps.items())[:NAMED_MAX]
        ]
        holders = set(gaps)
        for origin in gaps:
            word = membership.spoken(origin)
            holders.update(word.neighbours if word is not None else ())
        return {"missing": missing, "may_be_held_by": membership.names(holders - {*self._linked, self._origin})}

    def away(self) -> set[OriginId]:
        """The neighbours without a link that may need something of us. A relay needs nothing."""
        away = self._membership.neighbours(self._origin).difference(self._linked)
        return {one for one in away if not self._is_relay(one)}

    def left_early(self) -> set[OriginId]:
        """For a node that had ended the run in a past life: who left before the end, and may come back. Who starts such
        a node again does it for others, who lack something."""
        if not stated(self._presence.ours).has_ended:
            return set()
        words = (word for word in self._membership.words() if word.has_left and word.origin != self._origin)
        return {word.origin for word in words if not stated(word).has_ended}

    def _has_only_ours(self, peer: OriginId) -> bool:
        """Is a neighbour a relay that has the word of no host but through us?"""
        edges = (edge for edge in stated_edges(self._membership.all()) if self._origin not in edge)
        return all(self._is_relay(one) for one in distances(edges, peer))

    def _is_relay(self, origin: OriginId) -> bool:
        return (member := self._membership.get(origin)) is not None and stated(member).is_relay

    @property
    def patient_until(self) -> float:
        """When the run may end without those that are away; infinite before its last phase."""
        return _NEVER if self.since is None else self.since + self._patience.linger_seconds

    def wake_at(self, now: float) -> float:
        """When patience ends; infinite if that has happened already or is far."""
        return self.patient_until if now < self.patient_until else _NEVER

    def may_end(self, now: float) -> bool:
        """May the run end here? As long as its patience lasts, a node waits until its neighbours hold the same with
        equal digests, none of them is away, and no doubt about its own replica is open. One that was started again
        waits for those that had left, too. A relay has no digest but what hosts send it, so of one that is linked with
        no other host none is wanted. If the run ends early, relays learn that from those who have ended, and are not
        waited for.

        After that it ends without them. But in strict windows it still needs all updates of those who joined, and in
        any window everything must be applied that changed the journal before its patience ended. A full disk may keep
        the journal from changing: it is waited for.
        """
        if self._holdings.closings.unwritten:
            return False
        if now >= self.patient_until:
            is_enough = self._rules.window != "strict" or self.is_all_held(self.steps)
            return is_enough and self._divergence.is_settled(self.patient_until)
        divergence, digest = self._divergence, self._applied.digest()
        asked = {one for one in self._linked if self.steps == self._rules.steps or not self._is_relay(one)}
        is_sure = divergence.is_current and not divergence.is_doubted
        is_held = all(self._donors.agrees(peer, self._frontier) for peer in asked)
        is_agreed = is_held and all(divergence.is_equal_at(peer, digest) or self._has_only_ours(peer) for peer in asked)
        is_anyone_away = bool(self.away() or self.left_early())
        return is_sure and is_agreed and not is_anyone_away and self.holds_everything()


_NEVER = float("inf")
