"""The access of a run: who may link, and whose statements and updates count.

A run without an operator is open: everyone passes. Of a closed run the roster decides, and the host's clock says which
of its entries are valid now. All questions are answered from sets that are made when the roster or its validity
changes, so a stranger costs no more than a look.

A clock never ends the host that reads it: whether our own time is over is for the others to judge. If our clock says
so, it may be wrong. So we publish nothing and wait (`is_untimely`) until it is right, or a newer roster gives us more
time; and we judge the others as of the last moment of our own entry.

Rosters differ for a moment whenever they change, so a relay is not blamed for what it passes on. A hello brings the
roster that its sender knows, and that is looked at before the sender: so a newcomer may bring the edition that lists
it.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from seedflood.errors import PeerError
from seedflood.protocol.origin import STEP_MAX, OriginId
from seedflood.protocol.swarm.messages import Member, Verify
from seedflood.protocol.swarm.roster import Cut, Entry, Roster
from seedflood.protocol.view import RosterView

RosterFault = Literal["stranger", "role", "removed"]
"""Why something of a host is not used in a closed run. strangers are on no list; removed: or out of date."""


@dataclass(eq=False, repr=False)
class AccessList:
    """operator: the operator's public key; None: the run is open. run: its name. roster: the one
    to begin with. calendar: returns the time in unix seconds. settled: the same without jumps (`calendar.Calendar`), by
    which others are judged; None: as `calendar`. ours: our own public key."""

    _verify: Verify
    _operator: bytes | None = None
    _run: str = ""
    roster: Roster | None = None
    calendar: Callable[[], float] = lambda: 0.0
    settled: Callable[[], float] | None = None
    ours: bytes | None = None
    is_untimely: bool = False
    """Does our clock say that we may not take part now, or that nobody else may? It may be wrong, so we publish nothing
    and wait."""
    trainers: frozenset[OriginId] | None = None
    """Who may publish now; None: everyone."""
    former: frozenset[OriginId] = frozenset()
    """Who could publish once, and was removed or is out of date."""
    listed: frozenset[OriginId] = frozenset()
    """Who may publish now or later, or could once: all of the roster that is not there to relay or read alone."""
    cuts: dict[OriginId, Cut] = field(default_factory=dict)
    """Which updates of removed hosts count, as far as the operator has decided it."""
    contradictions: int = 0
    """How many signed rosters came that have the serial of ours and say something else."""
    _valid: frozenset[OriginId] = frozenset()

    def __post_init__(self) -> None:
        self.refresh()

    @property
    def is_closed(self) -> bool:
        return self._operator is not None

    def entries(self) -> tuple[Entry, ...]:
        return self.roster.entries if self.roster is not None else ()

    def may_link(self, public_key: bytes) -> bool:
        """May a host with this key link with us, and state that it is there?"""
        if self._operator is None:
            return True
        entry = self.roster.of_key(public_key) if self.roster is not None else None
        return entry is not None and entry.origin in self._valid

    def has_removed(self, public_key: bytes) -> bool:
        entry = self.roster.of_key(public_key) if self.roster is not None else None
        return entry is not None and entry.is_removed

    def lists(self, public_key: bytes) -> bool:
        """Is this key on the roster, be it valid, removed or out of date?"""
        return self.roster is not None and self.roster.of_key(public_key) is not None

    def objection(self, member: Member) -> RosterFault | None:
        """Why a statement does not count; None if it does. Who may not train does not take part in any step."""
        if self._operator is None:
            return None
        entry = self.roster.of_key(member.public_key) if self.roster is not None else None
        if entry is None:
            return "stranger"
        if entry.origin not in self._valid:
            return "removed"
        return "role" if member.has_spoken and self.trainers is not None and entry.origin not in self.trainers else None

    def objection_to(self, origin: OriginId) -> RosterFault:
        """Why nothing that this origin publishes is taken, who is none of the trainers."""
        if self.roster is None or self.roster.get(origin) is None:
            return "stranger"
        return "role" if origin in self._valid else "removed"

    def is_news(self, roster: Roster) -> bool:
        """Does it count instead of ours? Raises PeerError if the operator has not signed it. An older one is not even
        verified."""
        ours = self.roster
        if self._operator is None or (ours is not None and (roster.serial < ours.serial or roster == ours)):
            return False
        if not roster.is_signed(self._operator, self._run, self._verify):
            raise PeerError("a roster that the operator of this run has not signed", reason="roster")
        self.contradictions += roster.contradicts(ours)
        return roster.replaces(ours, self._operator, self._run)

    def adopt(self, roster: Roster) -> None:
        """From now on this one counts."""
        self.roster = roster
        self.refresh()

    def refresh(self) -> bool:
        """Looks at the clock. Has anything changed?"""
        if self._operator is None:
            return False
        now, before = self._judged_at(), (self._valid, self.trainers)
        valid = [entry for entry in self.entries() if entry.is_valid(now)]
        self._valid = frozenset(entry.origin for entry in valid)
        self.trainers = frozenset(entry.origin for entry in valid if "train" in entry.roles)
        self.former = frozenset(one.origin for one in self.entries() if one.is_over(now))
        self.listed = frozenset(one.origin for one in self.entries() if one.is_removed or "train" in one.roles)
        self.cuts = {one.origin: one.cut for one in self.entries() if one.cut is not None}
        self.is_untimely = self._is_untimely()
        return before != (self._valid, self.trainers)

    @property
    def own_entry(self) -> Entry | None:
        """Our own entry, unless the operator has removed us."""
        entry = self.roster.of_key(self.ours) if self.roster is not None and self.ours is not None else None
        return entry if entry is not None and not entry.is_removed else None

    def _judged_at(self) -> float:
        """The time by which entries are judged: never one at which our own would not be valid."""
        now = self.calendar() if self.settled is None else self.settled()
        own = self.own_entry
        if own is not None and own.not_after is not None:
            now = min(now, own.not_after)
        if own is not None and own.not_before is not None:
            now = max(now, own.not_before)
        return now

    def _is_untimely(self) -> bool:
        own = self.own_entry
        if own is None:
            return False
        others = [one.origin for one in self.entries() if "train" in one.roles and one is not own]
        is_alone = bool(others) and self.trainers is not None and self.trainers.isdisjoint(others)
        return is_alone or not own.is_valid(self.calendar())

    def stand_ins(self) -> dict[OriginId, Member]:
        """For all entries that may not train now: what counts in place of what they state. So their keys are known, and
        what they had published before can be verified."""
        trainers = self.trainers or frozenset()
        return {one.origin: stand_in(one.public_key, one.name) for one in self.entries() if one.origin not in trainers}

    def view(self) -> RosterView | None:
        """What an operator is shown of it."""
        if self.roster is None:
            return None
        return RosterView(self.roster.serial, len(self._valid), len(self.roster) - len(self._valid))


def stand_in(public_key: bytes, name: str) -> Member:
    """A host of which nothing more counts: it has left, and is expected in no step."""
    return Member(public_key, name, incarnation=0, first_step=STEP_MAX, last_step=-1)
