"""The status of a running node, for operators: reads its parts, returns plain values, and reports what has changed."""

import time
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, asdict, dataclass, field, replace
from typing import Any

from seedflood.host.clocks import Clocks
from seedflood.host.engine import Engine
from seedflood.operations.hub import TelemetryHub
from seedflood.operations.status import STANDSTILL_SECONDS, why_not_ready
from seedflood.operations.subject import LinkState, Subject
from seedflood.protocol.origin import OriginId
from seedflood.protocol.view import View
from seedflood.transport.counters import Fault
from seedflood.transport.link import Link
from seedflood.transport.links import Links

JOURNAL_SECONDS = 10.0
"""How long the size of the journal is cached: counting reads an index of all bundles."""


@dataclass(eq=False, repr=False)
class StatusSource(Subject):
    """is_draining, is_finished: set by the daemon."""

    _engine: Engine
    _links: Links
    _clock: Callable[[], float]
    _clocks: Clocks
    _: KW_ONLY
    incarnation: int
    _view: View | None = None
    _viewed_at: int = -1
    """The `Driver.turns` at which the view was made."""
    _journal_size: Mapping[str, int] = field(default_factory=lambda: {"bytes": 0})
    _counted_at: float = float("-inf")
    _was_ready: bool = False
    _was_untimely: bool = False

    def __post_init__(self) -> None:
        self.parameters = self._engine.parameters
        self._node = self._engine.node
        self._driver = self._engine.driver

    @property
    def is_disk_full(self) -> bool:
        return self._driver.is_disk_full

    @property
    def clock_fault(self) -> str | None:
        return self._clocks.fault()

    @property
    def handshakes(self) -> int:
        return self._links.credentials.handshakes

    def view(self) -> View:
        """A view of the node. It is made once per turn of the driver, for page, metrics and probes together."""
        now = self._clock()
        if self._view is None or self._viewed_at != self._driver.turns:
            self._view, self._viewed_at = self._engine.view(now), self._driver.turns
        return replace(self._view, now=now)

    def names(self) -> dict[OriginId, str]:
        return {member.origin: member.name for member in self._node.membership.all()}

    def link_states(self) -> list[LinkState]:
        open_links, dialled = self._links.open, self._links.dialled
        addresses = {origin: address for address, origin in dialled.items() if origin is not None}
        origins = {link.hello.member.name: origin for origin, link in open_links.items()}
        known = {member.name: member.origin for member in self._node.membership.all()}
        states = []
        for name, counters in self._links.totals.stats().items():
            origin = origins.get(name, known.get(name))
            link = open_links.get(origin) if origin is not None else None
            address = addresses.pop(origin, None) if origin is not None else None
            opened_at = link.opened_at if link is not None else None
            state = LinkState(name, origin, address, opened_at, **asdict(counters))
            states.append(state if link is None else replace(state, **_reach(link)))
        never_linked = [address for address, origin in dialled.items() if origin is None or origin in addresses]
        states += [LinkState(address, None, address, None) for address in never_linked]
        return states

    def link_faults(self) -> Mapping[Fault, int]:
        return self._links.totals.faults

    def journal_size(self) -> Mapping[str, int]:
        now = time.monotonic()
        if not self.is_draining and now - self._counted_at >= JOURNAL_SECONDS:
            self._counted_at = now
            self._journal_size = self._engine.journal.size()
        return self._journal_size

    # What has changed

    def log_changes(self, hub: TelemetryHub) -> None:
        """Called after whatever happened."""
        self._log_clock(hub)
        self._log_ready(hub)
        hub.reached(self._node.step)

    def _log_clock(self, hub: TelemetryHub) -> None:
        """Says it when the clock keeps this host from taking part, and when it no longer does."""
        is_untimely = self._node.access.is_untimely
        if is_untimely == self._was_untimely:
            return
        self._was_untimely = is_untimely
        if is_untimely:
            hub.log("waits for its clock", "warning", reason=self.clock_fault)
        else:
            hub.log("goes on: its clock lets it take part")

    def _log_ready(self, hub: TelemetryHub) -> None:
        """Says it when this host begins or ceases to take part as others expect; so do the links, to health checks."""
        is_ready = self._node.is_ready and not (self.is_draining or self._driver.is_paused)
        if is_ready and hub.is_quiet(STANDSTILL_SECONDS):
            is_ready = why_not_ready(hub) is None
        if is_ready == self._was_ready:
            return
        self._was_ready = self._links.health.is_serving = is_ready
        pulled = sum(one.pull_bytes_received for one in self._links.totals.stats().values())
        why: dict[str, Any] = {} if is_ready else {"reason": why_not_ready(hub)}
        hub.log("ready" if is_ready else "not ready", step=self._node.step, pull_bytes=pulled, **why)


def _reach(link: Link) -> dict[str, Any]:
    """Who of the two can dial the other, as far as a `LinkState` shows it."""
    if not link.is_dialled:
        return {"may_be_dialled": link.looked_back}
    seen = link.seen
    return {"may_be_dialled": True} | ({"seen_as": seen.address, "may_dial_us": seen.is_reachable} if seen else {})
