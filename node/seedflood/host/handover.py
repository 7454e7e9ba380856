"""Decides when a host goes on to the next run of its course: when all have ended the present one, by their own word.

Every host states under its signature that it has ended. Nobody goes on before all have, so a host that was away still
finds the others, and ends its run with them. A host that was killed when the last one said so finds nobody any more. So
whoever goes on keeps its last hello, with what all have stated (`keep_farewell`), and says it to any host of that run
that it meets later. What a host says of a run that it is in itself counts for nothing.

Left behind is only a host that lost its disk after it had stated its end: it hears its own signature. The id of the
next run in a hello proves nothing, since a stranger could send it. A host that is gone for good holds the others up
here; in a closed run the operator takes it off the roster.
"""

import logging
from collections.abc import Callable, Collection
from dataclasses import replace

from seedflood import durable
from seedflood.config import Stage
from seedflood.errors import PeerError, RunMismatchError
from seedflood.host.places import FAREWELL_FILE
from seedflood.protocol.origin import OriginId
from seedflood.protocol.swarm.messages import Hello, Members
from seedflood.protocol.swarm.standstill import Standstill
from seedflood.protocol.view import Blocker
from seedflood.transport.codec import decode, encode

ADVISE_SECONDS = 60.0
"""After this time the log lines about them also say what to do if such a host is gone for good."""

_LENGTH_BYTES = 4

_log = logging.getLogger(__name__)

Unended = Callable[[], Collection[tuple[OriginId | None, str]]]
"""Who has not stated that it ended the run: origins with their names, and None for all that were never heard of."""


class Handover:
    """since: when our run ended here; None before. is_passed: we may go on."""

    def __init__(self, stage: Stage, unended: Unended, is_forgetful: Callable[[], bool] = lambda: False) -> None:
        """is_forgetful: has our journal been lost?"""
        self.since: float | None = None
        self.is_passed = False
        self._stage = stage
        self._unended = unended
        self._is_forgetful = is_forgetful
        self._behind_since: float | None = None
        self._standstill = Standstill()

    @property
    def is_wanted(self) -> bool:
        """Does a run follow?"""
        return self._stage.next_run is not None

    def ended(self, now: float) -> None:
        """Our run has ended, and its result is on the disk."""
        self.since = now
        self._standstill.lasts(now, now)

    def look(self) -> bool:
        """May we go on to the next run?"""
        if self.since is not None and not self.is_passed:
            self.is_passed = not self._unended()
        return self.is_passed

    def blockers(self) -> tuple[Blocker, ...]:
        """The hosts that we wait for."""
        if self.since is None or self.is_passed:
            return ()
        since = self.since
        return tuple(Blocker("course", origin, name, None, since) for origin, name in self._unended())

    def is_due(self, now: float) -> bool:
        """Is it time for a log line about the hosts that we wait for?"""
        return self.since is not None and not self.is_passed and self._standstill.lasts(self.since, now)

    def advice(self, now: float) -> str | None:
        """What to do if the hosts that we wait for are gone for good; None as long as they may be on their way."""
        if self.since is None or now < self.since + ADVISE_SECONDS:
            return None
        if self._stage.settings.run.operator is not None:
            return "if they are gone for good: take them off the roster, by `seedflood roster remove` and SIGHUP"
        remedy = "stop the others, and start each with the file of the next run alone, with fewer clients"
        model = self._stage.settings.node.export
        where = f' and [node] model_path = "{model}"' if model is not None else ""
        return f"if they are gone for good: {remedy}{where}"

    def fault(self, now: float, patience_seconds: float) -> RunMismatchError | None:
        """The fault that we were left behind: all have stated that they ended the run, we among them, and our disk was
        lost since. None if not."""
        if self.since is not None or not self._is_forgetful() or self._unended():
            self._behind_since = None
            return None
        if self._behind_since is None:
            self._behind_since = now
        if now < self._behind_since + patience_seconds:
            return None
        model, following = self._stage.settings.node.export, self._stage.folder(self._stage.position + 1)
        what = f"copy what another host has in its {model} to {model} here" if model is not None else "go on"
        return RunMismatchError(
            f"the other hosts have ended this run and are in the next one, which this host cannot reach alone: {what}, "
            f"make the folder {following}, and start again",
            run=self._stage.next_run or "",
        )


def keep_farewell(stage: Stage, last: Hello) -> None:
    """Keeps our last hello in a run that all have ended. If that fails, the others have it."""
    frames = [len(frame).to_bytes(_LENGTH_BYTES) + frame for frame in encode(last)]
    try:
        durable.write(stage.state / FAREWELL_FILE, b"".join(frames))
    except OSError as error:
        _log.error("this host cannot tell a late one that the run is over: %s", error.strerror)


def read_farewells(stage: Stage) -> dict[str, Hello]:
    """Our last hellos in the earlier runs of the course, by run. One that cannot be read is left out."""
    found = {}
    for position, run in enumerate(stage.runs[: stage.position]):
        try:
            found[run] = _parse((stage.folder(position) / FAREWELL_FILE).read_bytes())
        except (OSError, PeerError) as error:
            _log.warning("this host cannot tell a late one that run %s is over: %s", run, error)
    return found


def _parse(data: bytes) -> Hello:
    """Raises PeerError."""
    messages = []
    while data:
        end = _LENGTH_BYTES + int.from_bytes(data[:_LENGTH_BYTES])
        messages.append(decode(data[_LENGTH_BYTES:end]))
        data = data[end:]
    last, *others = messages or [None]
    if not isinstance(last, Hello):
        raise PeerError("a file without a hello", reason="hello")
    more = [member for part in others if isinstance(part, Members) for member in part.members]
    return replace(last, members=(*last.members, *more))
