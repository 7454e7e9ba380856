"""The engine: one way of training on one host. Here is what the daemon asks of an engine, and an engine of the daemon.

A mode (`modes`) opens an engine, which loads its model and opens its journal. The daemon asks the engine to make node
and driver, starts it, and ends it. The daemon itself has links, timers, signals and what operators see, for any engine.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from seedflood.errors import SeedfloodError
from seedflood.host import seams
from seedflood.host.compute_thread import Run
from seedflood.host.driver import Driver
from seedflood.host.report import Report
from seedflood.identity import Identity
from seedflood.operations.hub import TelemetryHub
from seedflood.protocol.swarm.gate import Gate
from seedflood.protocol.swarm.messages import Member
from seedflood.protocol.swarm.swarm import Swarm
from seedflood.protocol.view import View
from seedflood.storage.journal import Journal
from seedflood.transport.budget import Use
from seedflood.transport.links import Links


@dataclass(frozen=True, slots=True)
class Shell:
    """What a daemon gives its engine.

    gate: who belongs to the run; the node must be made with it. observer: the daemon itself. run: runs jobs on the
    compute thread. drive: runs an action that calls the driver; an engine must wrap each of its calls to the driver in
    this.
    """

    identity: Identity
    gate: Gate
    hub: TelemetryHub
    links: Links
    observer: seams.Observer
    run: Run
    drive: Callable[[Callable[[], None]], None]
    clock: Callable[[], float]


class Engine(ABC):
    """journal: open; the daemon closes it. report: figures of the run. node, driver: set by `assemble`. parameters:
    (how many the model has, how many bytes they take in its type); None without a model. has_contents: do large
    contents travel, on connections of their own?"""

    journal: Journal
    node: Swarm[Any]
    driver: Driver
    report: Report
    parameters: tuple[int, int] | None = None
    has_contents: bool = False

    @abstractmethod
    def assemble(self, shell: Shell, member: Member) -> None:
        """Makes node and driver. member: ourselves, with the incarnation of this process."""

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
        then()

    def result(self) -> dict[str, Any]:
        """What the algorithm adds to `result.json`, beside names, steps, seconds and links. digest: in hex, if all
        hosts are to end with the same."""
        return {}

    def fault(self) -> SeedfloodError | None:
        """What is wrong with the result of the run; None if nothing is."""
        return None

    @property
    def unexported(self) -> Exception | None:
        """Why the model was not exported at the end of the run; None if it was, or was not to be."""
        return None

    async def close(self) -> None:  # noqa: B027 - an engine without a model has nothing to release
        """Releases everything but the journal."""
