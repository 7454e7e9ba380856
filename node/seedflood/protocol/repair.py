"""Repair: neighbours compare frontier digests and pull the difference. Flooding is for speed, this is for certainty.

Two comparisons. At every (re)connect the hello carries the whole frontier: what it holds and we lack becomes a
*goal*, and is pulled at once. Then, every few seconds, 32 bytes: unequal digests mean that one of the two lacks
something, and whoever receives such a digest pulls from its sender what its own frontier lacks.

While a run moves, what is on its way right now would always look like a difference, so a digest speaks only of steps
below the sender's last closed rounds. When nothing moved since the last comparison it speaks of everything: a stalled
window is thus repaired, whatever was lost.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from seedflood.protocol.frontier import Frontier
from seedflood.protocol.messages import STEP_MAX, FrontierDigest, Held, OriginId

REPAIR_SECONDS = 2.0
"""Between two comparisons of a link: the longest time for which a lost frame goes unnoticed, at 40 bytes a time."""

SETTLED_ROUNDS = 2
"""A digest of a moving run leaves out the open round and the one before: neighbours are at most one round apart."""


@dataclass(slots=True)
class _Comparison:
    goal: tuple[Held, ...]
    is_pulling: bool = False
    said: FrontierDigest | None = None


class Repair:
    """What is known of each linked neighbour's frontier, and the pulls that follow from it."""

    def __init__(self) -> None:
        self._peers: dict[OriginId, _Comparison] = {}
        self._digest_before: bytes = b""
        self._wanted: list[OriginId] = []
        self.is_caught_up = False
        """Has the node held, at some moment, all that a neighbour held when they linked?"""

    def connect(self, peer: OriginId, goal: tuple[Held, ...], frontier: Frontier) -> None:
        self._peers[peer] = _Comparison(goal)
        if frontier.covers(goal):
            self._reach(peer)
        else:
            self._want(peer)

    def disconnect(self, peer: OriginId) -> None:
        self._peers.pop(peer, None)

    def settled_before(self, frontier: Frontier, open_step: int, round_steps: int) -> int:
        """Below which step a digest speaks now: called once per comparison period."""
        digest = frontier.digest()
        is_still = digest == self._digest_before
        self._digest_before = digest
        return STEP_MAX if is_still else max(0, open_step - SETTLED_ROUNDS * round_steps)

    def compare(self, peer: OriginId, said: FrontierDigest, frontier: Frontier) -> None:
        """Takes a neighbour's digest; wants a pull if it differs from ours."""
        self._peers[peer].said = said
        if said.frontier_digest != frontier.digest(said.before):
            self._want(peer)

    def pulled(self, peer: OriginId, frontier: Frontier) -> None:
        """A pull ended, whole or broken off: what is still lacking is wanted again by `retry`."""
        comparison = self._peers.get(peer)
        if comparison is not None:
            comparison.is_pulling = False
            if frontier.covers(comparison.goal):
                self._reach(peer)

    def retry(self) -> None:
        """Once per comparison period: wants what a broken pull still owes. Any neighbour serves as well."""
        for peer, comparison in self._peers.items():
            if comparison.goal:
                self._want(peer)

    def progressed(self, frontier: Frontier) -> None:
        """Goals may be reached by live updates, too."""
        if not self.is_caught_up:
            for peer, comparison in self._peers.items():
                if frontier.covers(comparison.goal):
                    self._reach(peer)

    def agrees(self, peer: OriginId, frontier: Frontier) -> bool:
        """Did the neighbour say last that it is complete and holds exactly what we hold?"""
        comparison = self._peers.get(peer)
        return (
            comparison is not None
            and comparison.said is not None
            and comparison.said.is_complete
            and comparison.said.frontier_digest == frontier.digest()
        )

    def collect(self) -> Iterable[OriginId]:
        """Takes the peers to pull from now; at most one pull per peer is under way."""
        wanted, self._wanted = self._wanted, []
        for peer in dict.fromkeys(wanted):
            comparison = self._peers.get(peer)
            if comparison is not None and not comparison.is_pulling:
                comparison.is_pulling = True
                yield peer

    def _want(self, peer: OriginId) -> None:
        self._wanted.append(peer)

    def _reach(self, peer: OriginId) -> None:
        self._peers[peer].goal = ()
        self.is_caught_up = True
