"""Why a node waits, as values: for whom, for which step, since when.

A node that joins, collects or finishes always has at least one blocker; the simulation holds every node to that. A
relay has some only if others have ended the run and it cannot.

It is known exactly since when a window waits for an origin. All other blockers count from the moment at which they were
first noted, once per comparison period.
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
    "donor",  # not everything that the other held when we linked is here yet
    "former neighbour",  # our journal was lost, and the other may know what we published
    "own past",  # steps that we are known to have published are not here, or somebody may still know of more
    "announcement",  # the other has not confirmed that it expects us
    "window",  # updates of the other are missing in the open window
    "joining",  # the other has not caught up yet, and the run begins with all clients
    "never joined",  # the same, for clients of which nobody knows
    "last words",  # updates of the other are missing, and the run waits for them before it ends
    "end",  # others have ended the run, and the other has not, so that a relay stays for it
    "away",  # the run ends, and the other, a neighbour, is not linked
    "agreement",  # the other has not confirmed that it holds the same updates, with the same digest
    "own replica",  # our coefficients are being rebuilt, or are in doubt
]
"""A blocker names the origin that the node waits for, called "the other" here."""

NAMELESS: dict[BlockerKind, str] = {
    "disk full": "room on its own disk",
    "no link": "any neighbour",
    "own past": "whoever may know what was published with this key before",
    "own replica": "its own replica, which is made again",
}
"""What a node waits for if that is no host with a name."""

_Lack = tuple[str, OriginId | None, int | None]


@dataclass(eq=False, repr=False)
class Blockers:
    """What a node waits for now, and since when. is_disk_full: nothing of ours can be kept."""

    _rules: Rules
    _life: Lifecycle
    _exchange: Exchange
    _presence: Presence
    _windows: OpenWindows
    _ending: Ending
    _frontier: Frontier
    is_disk_full: bool = False
    _since: dict[_Lack, float] = field(default_factory=dict)
    """Since when, of the blockers that were noted last."""

    def find(self, now: float) -> tuple[Blocker, ...]:
        """The blockers of this moment, each since it was first noted, or earlier if that is known."""
        return tuple(replace(one, since=min(one.since, self._since.get(_lack(one), now))) for one in self._look(now))

    def note(self, now: float) -> tuple[Blocker, ...]:
        """The same, and remembers them; those that are gone are forgotten."""
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
        exchange, membership, ours = self._exchange, self._presence.membership, self._presence.ours.origin
        reached, linked = exchange.donors.reached, set(exchange.linked)
        catchup, donor = exchange.catchup, exchange.donors.donor
        if donor is not None:
            yield from self._of("donor", [donor], now)
        elif former := catchup.unreached(reached, membership.present()):
            yield from self._of("former neighbour", former, now)
        elif linked - reached:
            yield from self._of("donor", linked - reached, now)
        elif catchup.is_amnesic and reached:
            mark, end = self._frontier.mark(ours), max(self._frontier.last(ours) + 1, catchup.published_before)
            yield _nameless("own past", now, mark if mark < end else None)
        elif linked:
            unconfirmed = exchange.announcement.unconfirmed_by(linked)
            yield from self._of("announcement", unconfirmed, now) if unconfirmed else self._of("donor", linked, now)
        elif former := membership.neighbours(ours):
            yield from self._of("no link", former, now)
        else:
            yield _nameless("no link", now)

    def _while_collecting(self, window: Window, now: float) -> Iterator[Blocker]:
        """What keeps the window open: whose updates it lacks, and who has not come to take part yet."""
        membership, liveness = self._presence.membership, self._presence.liveness
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
        hold the same, or our own replica. One without patience waits for less (`Ending.may_end`)."""
        exchange, ending, rules = self._exchange, self._ending, self._rules
        membership, ours, divergence = self._presence.membership, self._presence.ours.origin, exchange.divergence
        is_patient = now < ending.patient_until
        missing = ending.missing() if is_patient or rules.window == "strict" else {}
        is_behind = not (divergence.is_current if is_patient else divergence.is_settled(ending.patient_until))
        if is_behind and not missing:
            yield _nameless("own replica", now)
            return
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
        if is_patient and membership.taking_part < rules.clients:
            yield from self._joins(membership.unjoined(rules.clients), now)
        if is_behind or (is_patient and divergence.is_doubted and not kinds):
            yield _nameless("own replica", now)

    def _while_relaying(self, now: float) -> Iterator[Blocker]:
        """What keeps a relay once somebody has ended the run: hosts that have not, or never came, and updates of those
        that have left."""
        membership, words = self._presence.membership, self._presence.membership.words()
        if any(word.has_left and stated(word).has_ended for word in words):
            here = {word.origin for word in words if not word.has_left}
            yield from self._of("end", here, now)
            yield from self._of("last words", set(self._ending.lacking(self._rules.steps)) - here, now)
            yield from self._joins(membership.unjoined(self._rules.clients), now)

    def _of(self, kind: BlockerKind, origins: Iterable[OriginId], now: float) -> Iterator[Blocker]:
        name = self._presence.membership.name
        return (Blocker(kind, origin, name(origin), None, now) for origin in sorted(origins, key=name))

    def _joins(self, missing: int, since: float) -> Iterator[Blocker]:
        """Who has to join before all clients take part: first those who are there but have not caught up, then the
        others, by name if the roster names them."""
        membership = self._presence.membership
        silent = [m for m in membership.all() if membership.spoken(m.origin) is None and not m.has_left]
        there = [m for m in silent if not stated(m).is_relay]
        known = sorted((member.name, member.origin) for member in there)[:missing]
        yield from (Blocker("joining", origin, name, None, since) for name, origin in known)
        if unknown := missing - len(known):
            name = "1 host" if unknown == 1 else f"{unknown} hosts"
            names = self._presence.never_seen()
            if len(names) >= unknown:
                name = (f"{name} of " if len(names) > unknown else "") + ", ".join(shorten(names))
            yield Blocker("never joined", None, name, None, since)


def describe(blockers: Iterable[Blocker]) -> dict[str, object]:
    """Facts for the log: who or what is waited for, and why."""
    blockers = list(blockers)
    names = (f"{one.name} ({one.kind})" if one.kind in ("joining", "never joined") else one.name for one in blockers)
    return {"waiting_for": shorten(list(dict.fromkeys(names))), "why": sorted({one.kind for one in blockers})}


def _nameless(kind: BlockerKind, since: float, step: int | None = None) -> Blocker:
    return Blocker(kind, None, NAMELESS[kind], step, since)


def _lack(blocker: Blocker) -> _Lack:
    return blocker.kind, blocker.origin, blocker.first_lacking_step
