"""When a node may end its run: nothing is missing here, and the neighbours say the same of themselves.

So a bit that flips in the last round is found like any other. Even a node whose patience is over first rebuilds a
replica that it doubts. But it does not wait until contradictions that come after that are settled, because a liar could
send them for ever. If it ends behind its journal for that reason, its log says so.
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
    """The last phase of a run, and what is missing for its end."""

    _rules: Rules
    _patience: Patience
    _presence: Presence
    _holdings: Holdings
    _donors: Donors
    _divergence: DivergenceDetector
    since: float | None = None
    """When the last phase began; None before it."""
    is_announced: bool = False
    """Do the neighbours know that we need nothing more?"""
    _behind: OriginId | None = None
    """The origin of which `is_all_held` missed an update last."""

    def __post_init__(self) -> None:
        self.steps = self._rules.steps
        """How many steps the run has. Fewer than in its rules if it ends early."""
        self._origin = self._presence.ours.origin
        self._turns = self._rules.turns
        self._membership = self._presence.membership
        self._linked = self._presence.neighbours
        self._frontier = self._holdings.frontier
        self._applied = self._holdings.applied

    @property
    def is_complete(self) -> bool:
        """Does the node need nothing more for this run?"""
        return self.since is not None and self.is_all_held(self.steps)

    def is_all_held(self, before: int) -> bool:
        """Is every update held that the hosts that joined owe for the steps below `before`?"""
        # Of many hosts most look-ups end with the one that lacked something at the last look-up.
        behind = None if self._behind is None else self._membership.spoken(self._behind)
        if behind is not None and self._lacks(behind, before - 1):
            return False
        lacking = (word.origin for word in self._membership.words() if self._lacks(word, before - 1))
        self._behind = next(lacking, None)
        return self._behind is None

    def _lacks(self, word: Member, end: int) -> bool:
        """Does the origin owe an update for the steps up to `end` that is not held here?"""
        last = self._last_owed(word, end)
        return last is not None and not self._frontier.holds(word.origin, 0, last)

    def is_held_of_reached(self, before: int) -> bool:
        """Is every update held that is owed for the steps below `before` by the hosts that are linked with us, directly
        or through others?"""
        reached = distances(stated_edges(self._membership.all()), self._origin)
        for origin, last in self._owed(before - 1):
            if origin in reached and not self._frontier.holds(origin, 0, last):
                return False
        return True

    def lacking(self, before: int) -> dict[OriginId, list[tuple[int, int]]]:
        """The updates owed for the steps below `before` that are not held, as ranges of steps by origin."""
        lacking = {}
        for origin, last in self._owed(before - 1):
            ranges = self._frontier.gaps(origin, last)
            if ranges:
                lacking[origin] = ranges
        return lacking

    def holds_everything(self, before: int = STEP_MAX) -> bool:
        """Did all clients join, and is every update held that they owe for the steps below `before`, or of the whole
        run?"""
        if self._membership.taking_part < self._rules.clients:
            return False
        return self.is_all_held(min(before, self.steps))

    def missing(self) -> dict[OriginId, list[tuple[int, int]]]:
        """The updates of the whole run that are not held, when no steps are left; empty before that phase."""
        return {} if self.since is None else self.lacking(self.steps)

    def _owed(self, end: int) -> Iterator[tuple[OriginId, int]]:
        """The origins that owe updates for the steps up to `end`, each with the last step that it owes."""
        for word in self._membership.words():
            last = self._last_owed(word, end)
            if last is not None:
                yield word.origin, last

    def _last_owed(self, word: Member, end: int) -> int | None:
        """The last step up to `end` for which an origin owes an update; None if it owes none. An origin that left owes
        nothing after its last step, and nobody owes rounds in which others take their turns."""
        if word.first_step > end or word.last_step == -1:
            return None
        if word.last_step is not None:
            return self._turns.last(word.origin, word.last_step)
        last = self._turns.last(word.origin, end)
        return last if last >= word.first_step else None

    def describe_missing(self) -> dict[str, object]:
        """Facts for the log: the steps that are missing for the end of the run, and the hosts that may hold them.
        Neither we nor our neighbours hold them."""
        gaps = self.missing()
        if not gaps:
            return {}
        membership = self._membership
        missing = []
        for origin, ranges in sorted(gaps.items())[:NAMED_MAX]:
            steps = ", ".join(f"{first}-{last}" for first, last in ranges[:NAMED_MAX])
            missing.append(f"{membership.name(origin)} steps {steps}")
        holders = set(gaps)
        for origin in gaps:
            word = membership.spoken(origin)
            if word is not None:
                holders.update(word.neighbours)
        holders -= {*self._linked, self._origin}
        return {"missing": missing, "may_be_held_by": membership.names(holders)}

    def away(self) -> set[OriginId]:
        """The neighbours without a link that may need something of us. A relay needs nothing."""
        away = self._membership.neighbours(self._origin).difference(self._linked)
        return {one for one in away if not self._is_relay(one)}

    def left_early(self) -> set[OriginId]:
        """For a node that had ended the run before it was started again: the hosts that left before the end, and may
        come back. An operator starts such a node again for others that lack something."""
        if not stated(self._presence.ours).has_ended:
            return set()
        words = (word for word in self._membership.words() if word.has_left and word.origin != self._origin)
        return {word.origin for word in words if not stated(word).has_ended}

    def _has_only_ours(self, peer: OriginId) -> bool:
        """Is a neighbour a relay that gets digests of no host except through us?"""
        edges = (edge for edge in stated_edges(self._membership.all()) if self._origin not in edge)
        return all(self._is_relay(one) for one in distances(edges, peer))

    def _is_relay(self, origin: OriginId) -> bool:
        member = self._membership.get(origin)
        return member is not None and stated(member).is_relay

    @property
    def patient_until(self) -> float:
        """When the run may end without the hosts that are away; infinite before its last phase."""
        return _NEVER if self.since is None else self.since + self._patience.linger_seconds

    def wake_at(self, now: float) -> float:
        """When patience ends; infinite if that has happened already or is far."""
        return self.patient_until if now < self.patient_until else _NEVER

    def may_end(self, now: float) -> bool:
        """May the run end here?

        As long as its patience lasts, a node waits until

        - its neighbours hold the same with equal digests;
        - none of them is away, and if the node was started again, no host that had left before the end;
        - no doubt about its own replica is open;
        - it holds everything.

        When its patience is over, it ends without the others. But in strict windows it still needs all updates of the
        hosts that joined. In any window it must have applied everything that changed the journal before its patience
        ended.
        """
        if self._holdings.closings.unwritten:
            return False  # a full disk may keep a sum from the journal: we wait for it
        divergence = self._divergence
        if now >= self.patient_until:
            is_enough = self._rules.window != "strict" or self.is_all_held(self.steps)
            return is_enough and divergence.is_settled(self.patient_until)
        if not divergence.is_current or divergence.is_doubted:
            return False
        asked = set(self._linked)
        if self.steps != self._rules.steps:
            # The run ends early. Relays learn that from the hosts that have ended.
            asked = {peer for peer in asked if not self._is_relay(peer)}
        if not all(self._donors.agrees(peer, self._frontier) for peer in asked):
            return False
        digest = self._applied.digest()
        # A relay passes on the digests of other hosts, and has none of its own. One that is linked with no other host
        # has nothing to send.
        if not all(divergence.is_equal_at(peer, digest) or self._has_only_ours(peer) for peer in asked):
            return False
        is_anyone_away = bool(self.away() or self.left_early())
        return not is_anyone_away and self.holds_everything()


_NEVER = float("inf")
