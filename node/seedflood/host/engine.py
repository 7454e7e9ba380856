"""The engine: one way of training on one host. Here is what the daemon asks of an engine, and an engine of the daemon.

A mode (`modes`) opens an engine, which loads its model and opens its journal. The daemon asks the engine to make node
and driver, starts it, and ends it. The daemon itself has links, timers, signals and what operators see, for any engine.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from seedflood.config import Settings
from seedflood.errors import SeedfloodError
from seedflood.host.driver import Driver
from seedflood.host.places import RESULT_FILE
from seedflood.host.report import Report
from seedflood.protocol.swarm.messages import Member
from seedflood.protocol.swarm.swarm import Swarm
from seedflood.protocol.view import View
from seedflood.storage.journal import Journal
from seedflood.transport.budget import Use

if TYPE_CHECKING:  # the daemon makes an engine; results need torch, which a relay has not
    from seedflood.host.daemon import Daemon
    from seedflood.host.results import Results


class Engine(ABC):
    """daemon: what surrounds it; set before `assemble`. journal: open; the daemon closes it. report: figures of the
    run. node, driver: set by `assemble`. results: of the model; None without one. parameters: (how many the model has,
    how many bytes they take in its type). has_contents: do large contents travel, on connections of their own?"""

    daemon: "Daemon"
    journal: Journal
    node: Swarm[Any]
    driver: Driver
    results: "Results | None" = None
    parameters: tuple[int, int] | None = None
    has_contents: bool = False

    def __init__(self, settings: Settings, journal: Journal, names: Sequence[str]) -> None:
        """names: of the figures in its report."""
        self.journal = journal
        self.report = Report(settings.node.state / RESULT_FILE, names)
        self._settings = settings

    @abstractmethod
    def assemble(self, member: Member) -> None:
        """Makes node and driver. The node takes the access of the daemon, which knows who belongs to the run. Each call
        of the driver is wrapped in `Daemon.drive`. member: ourselves, with the incarnation of this process."""

    def start(self) -> None:
        """Resumes from the journal. Called inside `drive`, before there are links."""
        self.driver.recall(self.journal.members(), self.journal.records())

    @property
    def frame_bytes_max(self) -> int:
        """The size in bytes of the largest item that a neighbour may send in parts."""
        return 0

    def view(self, now: float) -> View:
        """What an operator is shown. An engine adds what its node cannot know."""
        return self.node.view(now)

    def used(self) -> Use:
        """What all messages so far were good for. A neighbour is charged for the difference that its message makes."""
        return Use()

    def conclude(self, then: Callable[[], None]) -> None:
        """Called when the run is over: final evaluation and exports. Calls `then` when these are done."""
        if self.results is None:
            then()
        else:
            self.results.conclude(then, self.node.step)

    def result(self) -> dict[str, Any]:
        """What the algorithm adds to `result.json`, beside names, steps, seconds and links. digest: in hex, if all
        hosts are to end with the same."""
        return {}

    def fault(self) -> SeedfloodError | None:
        """What is wrong with the result of the run; None if nothing is."""
        return None

    async def close(self) -> None:  # noqa: B027 - an engine without a model has nothing to release
        """Releases everything but the journal."""
