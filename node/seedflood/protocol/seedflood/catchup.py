"""Catching up: does a node know enough to speak?

A node may speak once it has held everything that one neighbour held when they linked. An *amnesic* one, whose journal
lacks something that it published, first reaches all neighbours of its last statement that have not left. If it spoke
earlier it might contradict itself, and two contents of one step stay for ever.

When a node is amnesic, and what it waits for: docs/explanation/consensus.md.
"""

from collections.abc import Collection, Iterable
from typing import NamedTuple

from seedflood.protocol.frontier import Frontier, Held, spans
from seedflood.protocol.origin import OriginId
from seedflood.protocol.seedflood.statement import stated
from seedflood.protocol.swarm.messages import Member
from seedflood.protocol.swarm.rules import Patience

SETTLE_SECONDS = 4.0
"""How long to wait for messages in flight after the last neighbour was reached: two rounds of repair."""


class CatchUpState(NamedTuple):
    """How far a node that joins has come.

    reached: the neighbours all of whose frontier we have held. present: the origins that have not left. has_pulled: a
    pull was completed, and with it came the digest to compare with. is_level: we hold all that one neighbour held when
    its link came up (`Donors`). held_before: the step after the last one of ours that is held. is_whole: everything is
    held that we are known to have published. is_everyone_met: there is nobody in this run whom we have not reached.
    """

    reached: Collection[OriginId]
    present: Collection[OriginId]
    has_pulled: bool
    is_level: bool = True
    held_before: int = 0
    is_whole: bool = True
    is_everyone_met: bool = False


class CatchUp:
    """From the start of a process until it may speak. linked_at: the moment of the first link. published_before: of the
    steps below it, past lives have published everything that they ever will. has_ended: a past life has ended the
    run."""

    def __init__(self, patience: Patience) -> None:
        self.is_amnesic = False
        self.linked_at: float | None = None
        self.published_before = 0
        self.has_ended = False
        self._patience = patience
        self._journal_age, self._journal_end = (0, -1), 0
        self._word_age = (0, -1)
        self._past_neighbours: set[OriginId] = set()
        self._is_past_certain = False
        self._progress: object = None
        self._progressed_at = 0.0
        self._behind_since: float | None = None

    def remember(
        self, newest: Member | None, spoken: Member | None, end: int, *, is_journal_damaged: bool, is_key_fresh: bool
    ) -> None:
        """What the journal knows of our past: our newest statement, the last one that spoke of steps, and the step
        after our last one."""
        self._journal_end = end
        if newest is not None:
            self._journal_age = newest.age
        if spoken is not None:
            self._learn(spoken)
        is_silent = newest is None or not newest.has_spoken
        # A key without a past means that the past was lost. It is fresh until just before its first use.
        self.is_amnesic = is_journal_damaged or (is_silent and not is_key_fresh)
        self._is_past_certain = not is_silent

    def link(self, now: float) -> None:
        if self.linked_at is None:
            self.linked_at = now
            self._progressed_at = now

    def learn_of_past(self, member: Member) -> None:
        """The network knows this statement of a past life of ours. If our journal does not, it was lost."""
        if member.age > self._journal_age:
            self.is_amnesic = True
            self._is_past_certain = False
        if member.has_spoken and member.age > self._word_age:
            self._learn(member)

    def notice_old_copy(self, before: int) -> Collection[OriginId] | None:
        """Steps of ours below this are held. If our journal had not all of them, we are amnesic from now on: returns
        the former neighbours that we know."""
        if before <= self._journal_end:
            return None
        self.is_amnesic, self._is_past_certain = True, False
        return self._past_neighbours

    def note(self, known: CatchUpState, now: float) -> None:
        """Remembers since when what is known has not changed. Called before `may_speak`, which changes nothing."""
        if known.is_level:
            self._behind_since = None
        elif self._behind_since is None:
            self._behind_since = now
        progress = (len(known.reached), self._word_age, known.held_before)
        if known.reached and not self._is_behind(now) and progress != self._progress:
            self._progress = progress
            self._progressed_at = now

    def may_speak(self, known: CatchUpState, now: float) -> bool:
        """Is enough known to speak?

        With a whole journal: one neighbour is reached, we are level with one, and a pull is completed. A neighbour may
        make up what it holds, so each of the last two is waited for only `start_seconds` after the last news.

        An amnesic node also waits until

        1. all former neighbours that have not left are reached;
        2. it holds all that it is known to have published, or nothing new has come for `start_seconds`;
        3. nothing new has come for SETTLE_SECONDS; and for `redial_seconds` more if there may be a newer statement of
           ours that we do not know.
        """
        if not known.reached or self._is_behind(now):
            return False
        quiet_seconds = now - self._progressed_at
        has_waited = quiet_seconds >= self._patience.start_seconds
        if not self.is_amnesic:
            return known.has_pulled or has_waited
        if self.unreached(known.reached, known.present):
            return False
        holds_ours = known.has_pulled and known.is_whole
        if not holds_ours and not has_waited:
            return False
        settle_seconds = SETTLE_SECONDS
        if not known.is_everyone_met and not self._is_past_certain:
            settle_seconds += self._patience.redial_seconds
        return quiet_seconds >= settle_seconds

    def _is_behind(self, now: float) -> bool:
        """Are we not level, and is it still worth waiting for?"""
        return self._behind_since is not None and now - self._behind_since < self._patience.start_seconds

    def unreached(self, reached: Collection[OriginId], present: Collection[OriginId]) -> set[OriginId]:
        """Past neighbours that an amnesic node has to reach yet."""
        return {o for o in self._past_neighbours if o in present and o not in reached} if self.is_amnesic else set()

    def _learn(self, word: Member) -> None:
        """The hosts that this statement names hold what we published before it, or are about to."""
        self._word_age = word.age
        self._past_neighbours = set(word.neighbours)
        state = stated(word)
        self.published_before = max(self.published_before, state.published_before)
        self.has_ended = self.has_ended or state.has_ended


def describe_progress(frontier: Frontier, goal: Iterable[Held]) -> dict[str, int]:
    """How much of a neighbour's frontier is held, in steps of all origins together."""
    wanted = held = 0
    for origin, first, last in spans(goal):
        wanted += last - first + 1
        held += max(0, min(last + 1, frontier.mark(origin)) - first)
    return {"held": held, "wanted": wanted, "percent": round(100 * held / wanted) if wanted else 100}
