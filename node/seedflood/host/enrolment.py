"""Who belongs to a closed run, as this host knows it: the operator's file, and what others sent us since.

`[node] roster` is read at start and at SIGHUP, and `seedflood roster remove --node` sends one. A newer one than that
file is written to the state folder before it is used, so a host that starts again does not fall back to an older list.
The newest of both counts.
"""

import time
from pathlib import Path
from typing import Self

from seedflood.config import NodeSettings, Settings
from seedflood.errors import ConfigError
from seedflood.host.places import KEY_FILE, ROSTER_FILE
from seedflood.identity import Identity, verify
from seedflood.log import log
from seedflood.protocol.swarm.access import AccessList
from seedflood.protocol.swarm.calendar import Calendar
from seedflood.protocol.swarm.roster import Roster
from seedflood.roster_file import SignedRoster, read_roster, verify_roster, write_roster


def read_wall() -> float:
    """What the clock of this host reads, in unix seconds."""
    return time.time()


def steady_seconds() -> float:
    """Seconds that nobody can set, and that pass while the machine is suspended, too, where the system counts them."""
    boottime = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if boottime is None else time.clock_gettime(boottime)


class Enrolment:
    """access: asks the newest roster."""

    def __init__(self, operator: bytes | None, run: str, state: Path) -> None:
        self.access = AccessList(verify, operator, run, None, read_wall, Calendar(read_wall, steady_seconds).settled)
        self._operator = operator
        self._run = run
        self._unkept: Roster | None = None
        """The last one that could not be written."""
        self._state = state

    @classmethod
    def open(cls, settings: Settings, identity: Identity) -> Self:
        """Reads what there is. Raises ConfigError if this host cannot take part."""
        run, state = settings.run, settings.node.state
        if run.operator is None:
            return cls(None, run.name, state)
        enrolment = cls(bytes.fromhex(run.operator), run.name, state)
        kept_file = state / ROSTER_FILE
        given, kept = enrolment.read(settings.node.roster), enrolment.read(kept_file if kept_file.exists() else None)
        enrolment.access.ours = identity.public_key
        known = [one for one in (given, kept) if one is not None]
        if not known:
            raise ConfigError(
                "[run] operator closes the run, so this host needs the roster that the operator signed: copy "
                "roster.json here and name it in [node] roster."
            )
        for roster in known:
            if enrolment.access.is_news(roster):
                enrolment.access.adopt(roster)
        enrolment._check(identity, settings.node)
        return enrolment

    def read(self, path: Path | None) -> Roster | None:
        """A roster of this run; None if no file is named. Raises ConfigError."""
        if path is None or self._operator is None:
            return None
        return self._of_this_run(read_roster(path), f"the roster {path}")

    def parse(self, data: bytes) -> Roster:
        """A roster of this run in the text of its file. Raises ConfigError."""
        what = "the roster that was sent"
        return self._of_this_run(verify_roster(data, what), what)

    def _of_this_run(self, found: SignedRoster, what: str) -> Roster:
        """Raises ConfigError if it is of another run."""
        if self._operator is None:
            raise ConfigError("this run is open, so it has no roster.")
        if found.operator != self._operator:
            raise ConfigError(
                f"{what} is signed by the operator {found.operator.hex()[:16]}..., but [run] operator is "
                f"{self._operator.hex()[:16]}...: take the roster of this run."
            )
        if found.run != self._run:
            raise ConfigError(
                f'{what} is for the run "{found.run}", but [run] name is "{self._run}": take the roster of this run.'
            )
        return found.roster

    def keep(self, roster: Roster) -> bool:
        """Writes a roster to the state folder, and returns whether it is there. If not, it counts all the same until
        this process ends; the log says so once for each roster."""
        assert self._operator is not None, "an open run has no roster"
        try:
            write_roster(self._state / ROSTER_FILE, SignedRoster(self._operator, self._run, roster))
        except ConfigError as error:
            if roster != self._unkept:
                log.error(
                    "the roster is not kept yet; after a restart this host may know an older one", reason=str(error)
                )
            self._unkept = roster
            return False
        return True

    def _check(self, identity: Identity, node: NodeSettings) -> None:
        """Raises ConfigError if this host is not on the roster, or has not the role there that it takes here."""
        name = node.name
        roster = self.access.roster
        entry = roster.of_key(identity.public_key) if roster is not None else None
        serial, key = roster.serial if roster is not None else 0, identity.public_key.hex()
        namesake = roster.named(name) if roster is not None else None
        if entry is None and namesake is not None and not namesake.is_removed:
            raise ConfigError(
                f"the roster (serial {serial}) lists {name} with another key than that of this host: put its own "
                f"{KEY_FILE} into [node] state, or choose another [node] name and have {key} added."
            )
        if entry is None:
            raise ConfigError(
                f"this host is not on the roster (serial {serial}): its operator adds it by `seedflood roster add FILE "
                f"NAME {key}`."
            )
        if entry.is_removed:
            raise ConfigError(
                f"the operator has removed this host, {entry.name}, from the roster (serial {serial}); a host that "
                "is to come back needs a new key."
            )
        if node.role not in entry.roles:
            raise ConfigError(
                f"the roster (serial {serial}) lists this host with the role {', '.join(entry.roles)}, and it was "
                f"started to {node.role}: `seedflood relay` is for the role relay, `seedflood-node` for train."
            )
