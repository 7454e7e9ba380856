"""When a node may end its run: nothing is missing here, and the neighbours say the same of themselves."""

from collections.abc import Collection, Iterable, Iterator

from seedflood.protocol.frontier import Frontier
from seedflood.protocol.origin import STEP_MAX, OriginId
from seedflood.protocol.seedflood.repair import Repair
from seedflood.protocol.seedflood.rules import Rules
from seedflood.protocol.seedflood.watch import DigestWatch
from seedflood.protocol.swarm.membership import NAMED_MAX, Membership
from seedflood.protocol.swarm.messages import Member
from seedflood.protocol.swarm.rules import Patience


class Ending:
    """The last phase of a run. since: when it began. is_said: it was told that we need nothing more."""

    def __init__(
        self, origin: OriginId, rules: Rules, patience: Patience, membership: Membership, frontier: Frontier
    ) -> None:
        self.since: float | None = None
        self.is_said = False
        self._origin = origin
        self._rules = rules
        self._patience = patience
        self._membership = membership
        self._frontier = frontier

    @property
    def is_complete(self) -> bool:
        """Does the node need nothing more for this run?"""
        return self.since is not None and self.is_all_held(self._rules.steps)

    def is_all_held(self, before: int) -> bool:
        """Is held what everyone who joined has to say about the steps below `before`?"""
        return is_all_held(self._membership, self._frontier, before - 1)

    def holds_everything(self, before: int = STEP_MAX) -> bool:
        """Did all clients join, and is held what every known origin has to say below `before`, or in this run?"""
        return self._membership.taking_part >= self._rules.clients and self.is_all_held(min(before, self._rules.steps))

    def missing(self) -> dict[OriginId, list[tuple[int, int]]]:
        """The updates without which a run that has no steps left is not complete; nothing before."""
        if self.since is None:
            return {}
        return lacking(self._membership, self._frontier, self._rules.steps - 1)

    def describe_missing(self, here: Collection[OriginId]) -> dict[str, object]:
        """Facts for the log: which steps of whom, and which hosts may have them. here: those that do not, ourselves and
        our neighbours."""
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
        return {"missing": missing, "may_be_held_by": membership.names(holders - set(here))}

    @property
    def patient_until(self) -> float:
        """When the run may end without those that are away; infinite before its last phase."""
        return _NEVER if self.since is None else self.since + self._patience.linger_seconds

    def wake_at(self, now: float) -> float:
        """When patience ends; infinite if that has happened already or is far."""
        return self.patient_until if now < self.patient_until else _NEVER

    def may_end(
        self,
        repair: Repair,
        watch: DigestWatch,
        applied: Frontier,
        linked: Iterable[OriginId],
        *,
        now: float,
    ) -> bool:
        """A node that is patient waits until its neighbours agree, digests included, none of them is away, and whatever
        doubt there is of its replica is settled.

        One that has lost patience ends without them; but in strict windows never without all updates of those who
        joined, and in no window before whatever changed the journal until then is applied.
        """
        if now >= self.patient_until:
            is_enough = self._rules.window != "strict" or self.is_all_held(self._rules.steps)
            return is_enough and watch.is_settled(self.patient_until)
        linked = set(linked)
        is_nobody_away = not self._membership.neighbours(self._origin) - linked
        is_agreed = all(repair.agrees(peer, self._frontier) for peer in linked)
        is_sure = watch.is_current and not watch.is_doubted
        if not (is_sure and is_nobody_away and is_agreed and self.holds_everything()):
            return False
        digest = applied.digest()
        return all(watch.is_equal_at(peer, digest) for peer in linked)


_NEVER = float("inf")


def is_all_held(membership: Membership, frontier: Frontier, end: int) -> bool:
    """Does the frontier hold what every origin has to say up to step `end`, or up to where it left?"""
    return all(frontier.holds(word.origin, 0, _last(word, end)) for word in _due(membership, end))


def lacking(membership: Membership, frontier: Frontier, end: int) -> dict[OriginId, list[tuple[int, int]]]:
    """What the frontier lacks of that, as ranges of steps by origin."""
    gaps = ((word.origin, frontier.gaps(word.origin, _last(word, end))) for word in _due(membership, end))
    return {origin: ranges for origin, ranges in gaps if ranges}


def _due(membership: Membership, end: int) -> Iterator[Member]:
    return (word for word in membership.words() if word.first_step <= end and word.last_step != -1)


def _last(word: Member, end: int) -> int:
    return end if word.last_step is None else word.last_step
