"""Why a node waits, as values: for which host, for which step, since when.

A node that joins, collects or finishes always has at least one blocker; the simulation holds every node to that. A
relay has blockers only if others have ended the run and it cannot.

The node knows exactly since when a window waits for an origin. All other blockers count from the moment at which they
were first noted, once per comparison period.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Literal

from seedflood.protocol.frontier import Frontier
from seedflood.protocol.origin import OriginId
from seedflood.protocol.seedflood.ending import Ending
from seedflood.protocol.seedflood.exchange import Exchange
from seedflood.protocol.seedflood.phase import Lifecycle, Phase
from seedflood.protocol.seedflood.rules import Rules
from seedflood.protocol.seedflood.statement import stated
from seedflood.protocol.seedflood.window import OpenWindows, Window
from seedflood.protocol.swarm.membership import shorten
from seedflood.protocol.swarm.presence import Presence
from seedflood.protocol.view import Blocker

BlockerKind = Literal[
    "disk full",  # our disk is full, and nothing of ours is published before there is space
    "no link",  # the node needs a link with any neighbour to take part
    "donor",  # something that the other held when we linked is not here yet
    "former neighbour",  # our journal was lost, and the other may know what we published
    "own past",  # steps that we are known to have published are not here, or somebody may still know of more
    "announcement",  # the other has not confirmed that it expects us
    "window",  # updates of the other are missing in the open window
    "joining",  # the other has not caught up yet, and the run begins with all clients
    "never joined",  # the same, for clients that nobody knows
    "last words",  # updates of the other are missing, and the run waits for them before it ends
    "end",  # others have ended the run, and the other has not, so that a relay stays for it
    "away",  # the run ends, and the other, a neighbour, is not linked
    "agreement",  # the other has not confirmed that it holds the same updates, with the same digest
    "own replica",  # our coefficients are being rebuilt, or are in doubt
]
"""A blocker names the origin that the node waits for: "the other" in these comments."""

NAMELESS: dict[BlockerKind, str] = {
    "disk full": "room on its own disk",
    "no link": "any neighbour",
    "own past": "whoever may know what was published with this key before",
    "own replica": "its own replica, which is made again",
}
"""What a node waits for if it is no host with a name."""

_Lack = tuple[str, OriginId | None, int | None]
"""What is the same in a blocker as long as it lasts: (kind, origin, first step that is missing)."""


@dataclass(eq=False, repr=False)
class Blockers:
    """What a node waits for now, and since when."""

    _rules: Rules
    _life: Lifecycle
    _exchange: Exchange
    _presence: Presence
    _windows: OpenWindows
    _ending: Ending
    _frontier: Frontier
    is_disk_full: bool = False
    """Then nothing of ours can be kept."""
    _since: dict[_Lack, float] = field(default_factory=dict)
    """By blocker that was noted last: since when it lasts."""

    def find(self, now: float) -> tuple[Blocker, ...]:
        """The blockers of this moment, each since it was first noted, or earlier if that is known."""
        found = []
        for blocker in self._look(now):
            noted_at = self._since.get(_lack(blocker), now)
            found.append(replace(blocker, since=min(blocker.since, noted_at)))
        return tuple(found)

    def note(self, now: float) -> tuple[Blocker, ...]:
        """The same. Also remembers these, and forgets those that are gone."""
        found = self.find(now)
        self._since = {_lack(one): one.since for one in found}
        return found

    def _look(self, now: float) -> Iterator[Blocker]:
        if self.is_disk_full:
            yield _nameless("disk full", now)
        window = self._windows.oldest
        if self._life.phase is Phase.JOINING:
            yield from self._while_joining(now)
        elif self._life.phase is Phase.COLLECTING and window is not None:
            yield from self._while_collecting(window, now)
        elif self._life.phase is Phase.FINISHING:
            yield from self._while_finishing(now)
        elif self._life.phase is Phase.RELAYING:
            yield from self._while_relaying(now)

    def _while_joining(self, now: float) -> Iterator[Blocker]:
        """What keeps a node from speaking (`catchup`, `announcement`)."""
        exchange = self._exchange
        membership = self._presence.membership
        ours = self._presence.ours.origin
        catchup = exchange.catchup
        donor = exchange.donors.donor
        reached = exchange.donors.reached
        linked = set(exchange.linked)
        if donor is not None:
            yield from self._of("donor", [donor], now)
        elif former := catchup.unreached(reached, membership.present()):
            yield from self._of("former neighbour", former, now)
        elif linked - reached:
            yield from self._of("donor", linked - reached, now)
        elif catchup.is_amnesic and reached:
            mark = self._frontier.mark(ours)
            end = max(self._frontier.last(ours) + 1, catchup.published_before)
            yield _nameless("own past", now, mark if mark < end else None)
        elif unconfirmed := exchange.announcement.unconfirmed_by(linked):
            yield from self._of("announcement", unconfirmed, now)
        elif linked:
            yield from self._of("donor", linked, now)
        elif former := membership.neighbours(ours):
            yield from self._of("no link", former, now)
        else:
            yield _nameless("no link", now)

    def _while_collecting(self, window: Window, now: float) -> Iterator[Blocker]:
        """What keeps the window open: hosts whose updates it lacks, and hosts that do not take part yet."""
        membership = self._presence.membership
        liveness = self._presence.liveness
        for origin in sorted(window.waiting, key=membership.name):
            step = self._windows.first_lacking(window, origin)
            since = liveness.missing_since.get(origin, now)
            yield Blocker("window", origin, membership.name(origin), step, since)
        if self._windows.is_waiting_for_joins(window, now):
            gone = self._windows.to_return(window)
            yield from self._of("joining", [word.origin for word in gone], window.opened_at)
            yield from self._joins(self._windows.unjoined(window) - len(gone), window.opened_at)

    def _while_finishing(self, now: float) -> Iterator[Blocker]:
        """What keeps a run from ending: updates that are missing, neighbours that are away or have not stated that they
        hold the same, or our own replica. A node whose patience is over waits for less (`Ending.may_end`)."""
        exchange = self._exchange
        ending = self._ending
        membership = self._presence.membership
        ours = self._presence.ours.origin
        divergence = exchange.divergence
        is_patient = now < ending.patient_until
        is_up_to_date = divergence.is_current if is_patient else divergence.is_settled(ending.patient_until)
        missing = ending.missing() if is_patient or self._rules.window == "strict" else {}
        if not is_up_to_date and not missing:
            yield _nameless("own replica", now)
            return
        # If a host blocks in several ways, the last line that names it counts.
        kinds: dict[OriginId, BlockerKind] = {}
        if is_patient:
            kinds |= dict.fromkeys(set(exchange.linked) - exchange.agreed(), "agreement")
            kinds |= dict.fromkeys(ending.away() | ending.left_early(), "away")
        kinds |= dict.fromkeys(missing.keys() - {ours}, "last words")
        for origin in sorted(kinds, key=membership.name):
            step = missing[origin][0][0] if origin in missing else None
            yield Blocker(kinds[origin], origin, membership.name(origin), step, now)
        if ours in missing:
            yield _nameless("own past", now, missing[ours][0][0])
        clients = self._rules.clients
        if is_patient and membership.taking_part < clients:
            yield from self._joins(membership.unjoined(clients), now)
        is_only_doubted = is_patient and divergence.is_doubted and not kinds
        if not is_up_to_date or is_only_doubted:
            yield _nameless("own replica", now)

    def _while_relaying(self, now: float) -> Iterator[Blocker]:
        """What keeps a relay once a host has ended the run: hosts that have not ended it, or never came, and updates of
        those that have left."""
        membership = self._presence.membership
        words = membership.words()
        has_anyone_ended = any(word.has_left and stated(word).has_ended for word in words)
        if not has_anyone_ended:
            return
        here = {word.origin for word in words if not word.has_left}
        yield from self._of("end", here, now)
        yield from self._of("last words", set(self._ending.lacking(self._rules.steps)) - here, now)
        yield from self._joins(membership.unjoined(self._rules.clients), now)

    def _of(self, kind: BlockerKind, origins: Iterable[OriginId], now: float) -> Iterator[Blocker]:
        name = self._presence.membership.name
        return (Blocker(kind, origin, name(origin), None, now) for origin in sorted(origins, key=name))

    def _joins(self, missing: int, since: float) -> Iterator[Blocker]:
        """The hosts that have to join before all clients take part: first those that are there but have not caught up,
        then the others, by name if the roster names them. missing: how many they are."""
        membership = self._presence.membership
        silent = [member for member in membership.all() if membership.spoken(member.origin) is None]
        there = [member for member in silent if not member.has_left and not stated(member).is_relay]
        known = sorted((member.name, member.origin) for member in there)[:missing]
        for name, origin in known:
            yield Blocker("joining", origin, name, None, since)
        unknown = missing - len(known)
        if not unknown:
            return
        name = "1 host" if unknown == 1 else f"{unknown} hosts"
        names = self._presence.never_seen()
        if len(names) > unknown:
            name = f"{name} of {', '.join(shorten(names))}"
        elif len(names) == unknown:
            name = ", ".join(shorten(names))
        yield Blocker("never joined", None, name, None, since)


def describe(blockers: Iterable[Blocker]) -> dict[str, object]:
    """Facts for the log: the hosts or things that are waited for, and why."""
    names = []
    kinds = set()
    for blocker in blockers:
        is_yet_to_join = blocker.kind in ("joining", "never joined")
        names.append(f"{blocker.name} ({blocker.kind})" if is_yet_to_join else blocker.name)
        kinds.add(blocker.kind)
    return {"waiting_for": shorten(list(dict.fromkeys(names))), "why": sorted(kinds)}


def _nameless(kind: BlockerKind, since: float, step: int | None = None) -> Blocker:
    return Blocker(kind, None, NAMELESS[kind], step, since)


def _lack(blocker: Blocker) -> _Lack:
    return blocker.kind, blocker.origin, blocker.first_lacking_step
