"""Repair (anti-entropy): neighbours compare digests of their frontiers and pull the difference. Flooding is for speed,
this is for certainty.

At every (re)connect the hello carries the whole frontier: what we lack of it is a *goal*. Then, every few seconds, both
send a digest. A node pulls from one donor at a time, and no donor can keep its turn: neither by silence nor by sending
what is of no use.

What digests cover, and whom a node asks next: docs/explanation/consensus.md.
"""

from dataclasses import dataclass

from seedflood.protocol.frontier import Frontier, Held, spans
from seedflood.protocol.origin import STEP_MAX, OriginId
from seedflood.protocol.seedflood.messages import EPOCH_PART_BYTES, FrontierDigest

SETTLED_ROUNDS = 2
"""A digest of a moving run leaves out the open round and the one before: neighbours are at most one round apart."""


TURN_PERIODS = 32
"""For how many comparison periods a donor keeps its turn, whatever it brings: 64 seconds. A liar may bring a bundle now
and then, or live ones alone, which look like those of an answer."""


class _Goal:
    """What a peer held when we linked. What is held stays held, so each of its ranges is looked for until it is there,
    and then never again. A peer that claims as much as it can costs us no more than one look at each range."""

    def __init__(self, held: tuple[Held, ...]) -> None:
        self.held = held
        self._rest = spans(held)
        self._next = next(self._rest, None)

    def is_reached(self, frontier: Frontier) -> bool:
        while self._next is not None and frontier.holds(*self._next):
            self._next = next(self._rest, None)
        return self._next is None


@dataclass(slots=True)
class _Comparison:
    """What we know of one linked neighbour, and want from it.

    goal: None once it was reached. is_goal_wanted: a pull for the goal is to be begun. is_wanted: a pull is to be begun
    whatever the goal. is_stalled: the pull has brought nothing for a comparison period, or goes on for too many.
    has_given: something came since the last `retry`. periods: since the pull began. parts: of sums, since something new
    came. digest: its last digest. members_differ: how often in a row it knew other statements.
    """

    goal: _Goal | None
    is_goal_wanted: bool = True
    is_wanted: bool = False
    is_pulling: bool = False
    is_stalled: bool = False
    has_given: bool = False
    periods: int = 0
    parts: int = 0
    digest: FrontierDigest | None = None
    members_differ: int = 0

    def begin(self) -> None:
        self.periods = self.periods if self.is_pulling else 0
        self.is_pulling = self.has_given = True


class Donors:
    """What is known of each linked neighbour's frontier, and the pulls that follow from it. sum_bytes: of the largest
    sum, as it is sent."""

    def __init__(self, sum_bytes: int = 0) -> None:
        self._parts_max = 1 + sum_bytes // EPOCH_PART_BYTES
        """In a row: else a liar could hold its turn, and all repair, by parts without end."""
        self._peers: dict[OriginId, _Comparison] = {}
        self._digest_before: bytes = b""
        """Of all that was held at our own last comparison."""
        self.reached: set[OriginId] = set()
        """The neighbours whose frontier, as it was when we linked, we have held completely at some moment."""
        self.has_pulled = False
        """Has any pull ended with everything held that the neighbour held when we linked?"""

    @property
    def donor(self) -> OriginId | None:
        """The neighbour from which we pull now; None if there is none, or if it has stalled."""
        return next((peer for peer, one in self._peers.items() if one.is_pulling and not one.is_stalled), None)

    @property
    def is_level(self) -> bool:
        """Do we hold all that one of the neighbours held when this link with it came up? So we do while there is no
        link."""
        return not self._peers or any(one.goal is None for one in self._peers.values())

    def is_pulling(self, peer: OriginId) -> bool:
        comparison = self._peers.get(peer)
        return comparison is not None and comparison.is_pulling

    def goal(self, peer: OriginId) -> tuple[Held, ...]:
        """What the neighbour held when we linked, if we do not hold it yet."""
        comparison = self._peers.get(peer)
        return comparison.goal.held if comparison is not None and comparison.goal is not None else ()

    def connect(self, peer: OriginId, goal: tuple[Held, ...], frontier: Frontier, *, is_wanted: bool = False) -> None:
        """The peer is linked. goal: what it holds. is_wanted: pull even if nothing is lacking, to learn its
        standing."""
        self._peers[peer] = _Comparison(_Goal(goal), is_wanted=is_wanted)
        self._look(peer, frontier)

    def disconnect(self, peer: OriginId) -> None:
        self._peers.pop(peer, None)

    def settled_before(self, frontier: Frontier, open_step: int, round_steps: int) -> int:
        """The step below which our next digest covers everything. Called once per comparison period. open_step: of the
        open round. round_steps: how many steps a round has."""
        digest = frontier.digest()
        is_still = digest == self._digest_before
        self._digest_before = digest
        return STEP_MAX if is_still else max(0, open_step - SETTLED_ROUNDS * round_steps)

    def compare(self, peer: OriginId, digest: FrontierDigest, frontier: Frontier, members_digest: bytes) -> None:
        """Takes a neighbour's digest, and wants a pull if it differs from ours. New statements need a moment
        to reach everyone, so a difference in statements counts only the second time. A digest of everything counts only
        if nothing has come here since our own last digest."""
        comparison = self._peers[peer]
        comparison.digest = digest
        comparison.members_differ = comparison.members_differ + 1 if digest.members_digest != members_digest else 0
        # Steps that take seconds look like a stalled window until the next bundle, which reaches one of us first.
        is_comparable = digest.before < STEP_MAX or frontier.digest() == self._digest_before
        is_different = is_comparable and digest.frontier_digest != frontier.digest(digest.before)
        if is_different or comparison.members_differ > 1:
            comparison.is_wanted = True

    def pulled(self, peer: OriginId, frontier: Frontier) -> None:
        """A pull has ended, whole or broken off. What is still lacking is wanted again by `retry`."""
        comparison = self._peers.get(peer)
        if comparison is not None:
            comparison.is_pulling = comparison.is_stalled = False
            if self._look(peer, frontier):
                self.has_pulled = True

    def retry(self) -> None:
        """Once per comparison period: wants again what a broken pull did not bring; a pull that stands still, or goes
        on while another neighbour waits for its turn, gives way to another."""
        comparisons = self._peers.values()
        for one in comparisons:
            one.is_goal_wanted = True
            one.is_wanted = one.is_wanted or not self.has_pulled
        is_any_waiting = any(not one.is_pulling and (one.is_wanted or one.goal is not None) for one in comparisons)
        # Twice as long for each pull under way, so that those over slow links are rarely doubled.
        turn = (TURN_PERIODS << sum(one.is_pulling for one in comparisons)) // 2
        for one in comparisons:
            one.periods += 1
            is_over = is_any_waiting and one.periods >= turn
            one.is_stalled = one.is_pulling and (is_over or not one.has_given)
            one.has_given = False

    def ask(self, peer: OriginId) -> None:
        """Another part asks the peer for something now."""
        if (comparison := self._peers.get(peer)) is not None:
            comparison.begin()

    def ask_next(self) -> OriginId:
        """Another part asks some neighbour for something now; the next time it is another one."""
        peer = next(iter(self._peers))
        self.ask(peer)
        self._peers[peer] = self._peers.pop(peer)
        return peer

    def part_received(self, peer: OriginId) -> None:
        """A part of a large message has come from the peer: the pull is at work."""
        if (comparison := self._peers.get(peer)) is not None and comparison.parts < self._parts_max:
            comparison.parts += 1
            comparison.has_given = True

    def progressed(self, peer: OriginId, frontier: Frontier) -> None:
        """Something new has come from the peer; live updates may reach goals, too."""
        self._peers[peer].has_given, self._peers[peer].parts = True, 0
        for one in self._peers:
            self._look(one, frontier)

    def agrees(self, peer: OriginId, frontier: Frontier) -> bool:
        """By its last digest, is the neighbour complete, and does it hold exactly what we hold?"""
        comparison = self._peers.get(peer)
        return (
            comparison is not None
            and comparison.digest is not None
            and comparison.digest.is_complete
            and comparison.digest.frontier_digest == frontier.digest()
        )

    def next_donor(self, frontier: Frontier) -> OriginId | None:
        """The peer to pull from now, if any; from here on that pull counts as begun."""
        if self.donor is not None:
            return None
        for peer, comparison in self._peers.items():
            is_wanted = comparison.is_wanted or (comparison.is_goal_wanted and not self._look(peer, frontier))
            if comparison.is_pulling or not is_wanted:
                continue
            comparison.begin()
            comparison.is_wanted = comparison.is_goal_wanted = False
            # The next pull goes to another one, if there is a choice.
            self._peers[peer] = self._peers.pop(peer)
            return peer
        return None

    def _look(self, peer: OriginId, frontier: Frontier) -> bool:
        """Have we held everything by now that the peer held when we linked?"""
        comparison = self._peers[peer]
        if comparison.goal is not None and comparison.goal.is_reached(frontier):
            comparison.goal = None
            self.reached.add(peer)
        return comparison.goal is None
