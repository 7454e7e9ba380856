"""Decides when a host goes on to the next run of its course: when every host has ended the present one.

Nobody goes on before that. So a host that was away still finds the others, and ends its run with them. And if a host is
met in the next run, this proves that all have ended the present one. That proof helps a host that was killed when the
last of the others said so: later it finds nobody any more who could tell it.
"""

from collections.abc import Callable, Iterable

from seedflood.config import Stage
from seedflood.errors import RunMismatchError
from seedflood.protocol.origin import OriginId
from seedflood.protocol.swarm.messages import Member
from seedflood.protocol.swarm.standstill import Standstill
from seedflood.protocol.view import Blocker

ADVISE_SECONDS = 60.0
"""After this time the log lines about them also say what to do if such a host is gone for good."""


class Handover:
    """since: when our run ended here; None before. is_passed: we may go on."""

    def __init__(
        self, stage: Stage, words: Callable[[], Iterable[Member]], removed: Callable[[], int] = lambda: 0
    ) -> None:
        """words: returns the last words of all hosts. removed: returns how many hosts are not awaited any more."""
        self.since: float | None = None
        self.is_passed = False
        self._stage = stage
        self._words = words
        self._removed = removed
        self._met_at: float | None = None
        """When a host of the next run was met."""
        self._standstill = Standstill()

    @property
    def is_wanted(self) -> bool:
        """Does a run follow?"""
        return self._stage.next_run is not None

    def met(self, run: str, now: float) -> None:
        """A host of another run of the course was met. run: the beginning of its id."""
        if run == self._stage.next_run and self._met_at is None:
            self._met_at = now

    def ended(self, now: float) -> None:
        """Our run has ended, and its result is on the disk."""
        self.since = now
        self._standstill.lasts(now, now)

    def look(self) -> bool:
        """May we go on to the next run?"""
        if self.since is not None and not self.is_passed:
            self.is_passed = self._met_at is not None or not any(self._missing())
        return self.is_passed

    def blockers(self) -> tuple[Blocker, ...]:
        """The hosts that we wait for."""
        if self.since is None or self.is_passed:
            return ()
        since = self.since
        return tuple(Blocker("course", origin, name, None, since) for origin, name in self._missing())

    def is_due(self, now: float) -> bool:
        """Is it time for a log line about the hosts that we wait for?"""
        return self.since is not None and not self.is_passed and self._standstill.lasts(self.since, now)

    def advice(self, now: float) -> str | None:
        """What to do if the hosts that we wait for are gone for good; None as long as they may be on their way."""
        if self.since is None or now < self.since + ADVISE_SECONDS:
            return None
        remedy = "stop the others, and start each with the file of the next run alone, with fewer clients"
        model = self._stage.settings.node.export
        where = f' and [node] model_path = "{model}"' if model is not None else ""
        return f"if they are gone for good: {remedy}{where}"

    def fault(self, now: float, patience_seconds: float) -> RunMismatchError | None:
        """The fault that we were left behind: the others have gone on, and we cannot end the run any more. This happens
        only if our disk was lost after we had said that we ended the run. None if not."""
        if self._met_at is None or self.since is not None or now < self._met_at + patience_seconds:
            return None
        model = self._stage.settings.node.export
        what = f"copy what another host has in its {model} to {model} here" if model is not None else "go on"
        following = self._stage.key_folder / f"run-{self._stage.next_run}"
        return RunMismatchError(
            f"the other hosts have ended this run and are in the next one, which this host cannot reach alone: {what}, "
            f"make the folder {following}, and start again",
            differences=("run",),
            run=self._stage.next_run or "",
        )

    def _missing(self) -> Iterable[tuple[OriginId | None, str]]:
        """The hosts that have not stated that they ended the run, and one entry for all that were never heard of."""
        run = self._stage.settings.run
        told = list(self._words())
        for word in told:
            if word.last_step is None or word.last_step < run.steps - 1:
                yield word.origin, word.name
        unknown = run.clients - len(told) - self._removed()
        if unknown > 0:
            yield None, f"{unknown} more host{'s' if unknown > 1 else ''}"
