"""The engine: one way of training, as one host runs it. What a daemon asks of it, and what it finds around it.

A mode (`modes`) opens an engine: loads what there is to load, opens the journal. The daemon has it make its node and
driver, starts it, and lets it end; links, time, signals and what operators look at are the daemon's, whatever is
trained.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from seedflood.config import Settings
from seedflood.errors import SeedfloodError
from seedflood.host import seams
from seedflood.host.compute_thread import Run
from seedflood.host.driver import Driver
from seedflood.host.report import Report
from seedflood.identity import Identity
from seedflood.operations.hub import TelemetryHub
from seedflood.protocol.frontier import Held
from seedflood.protocol.origin import OriginId
from seedflood.protocol.swarm.messages import Member
from seedflood.protocol.swarm.swarm import Swarm
from seedflood.storage.journal import Journal
from seedflood.transport.budget import Use
from seedflood.transport.counters import LinkCounters


class Shell(seams.Links, seams.Observer, Protocol):
    """The daemon, as an engine finds it: links, someone to tell, and the rest of it."""

    @property
    def run(self) -> Run:
        """For jobs of the compute thread."""

    @property
    def settings(self) -> Settings: ...

    @property
    def identity(self) -> Identity: ...

    @property
    def loop(self) -> asyncio.AbstractEventLoop: ...

    @property
    def hub(self) -> TelemetryHub: ...

    def pull(self, peer: OriginId, frontier: tuple[Held, ...]) -> None:
        """Asks the peer for what the frontier lacks; ends with `Driver.pulled`."""

    def drive(self, action: Callable[[], None]) -> None:
        """Every entry into the driver that is not the daemon's own goes through this."""

    def failed(self, error: BaseException) -> None:
        """A fault of this host: from here on it says and does nothing more."""

    def link_counters(self) -> Sequence[tuple[str, LinkCounters]]:
        """Of all neighbours of this life, by name."""


class Engine(ABC):
    """journal: open; the daemon closes it. report: figures of the run. node, driver: set by `assemble`. parameters: how
    many the model has, and how many bytes they take in its type; None without a model."""

    journal: Journal
    node: Swarm[Any]
    driver: Driver
    report: Report
    parameters: tuple[int, int] | None = None

    @abstractmethod
    def assemble(self, shell: Shell, member: Member) -> None:
        """Makes node and driver. member: ourselves, of this life."""

    def start(self) -> None:
        """Goes on with what the journal holds, inside of `Shell.drive`. Links come afterwards."""
        self.driver.recall(self.journal.members(), self.journal.records())

    @property
    def frame_bytes_max(self) -> int:
        """Of the largest thing that a neighbour may hand over in parts."""
        return 0

    def used(self) -> Use:
        """What came of all messages until now; the difference is what a neighbour is charged for."""
        return Use()

    def conclude(self, then: Callable[[], None]) -> None:
        """The run is over: last figures and exports; then `then`."""
        then()

    def result(self) -> dict[str, Any]:
        """What `result.json` says of the run beside names, steps, seconds and links."""
        return {}

    def fault(self) -> SeedfloodError | None:
        """What is wrong with what came of the run, if something is."""
        return None

    async def close(self) -> None:  # noqa: B027 - an engine without a model has nothing to let go of
        """Lets go of all but the journal."""
