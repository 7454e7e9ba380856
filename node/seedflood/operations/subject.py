"""What this room may ask of the node that it shows: values only, so that nothing here can change the node."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from seedflood.protocol.origin import OriginId
from seedflood.protocol.view import Hops, View

LOADING = "loading"
"""The phase of a node whose model is being loaded."""


@dataclass(frozen=True, slots=True)
class LinkState:
    """A link, or a peer that is dialled. connected_at: Unix time; None if there is no link now. Counters are sums over
    all links with the peer since the process began. address: None if the peer dialled us. seen_as: the address under
    which the peer, whom we dialled, sees us, and may_dial_us: whether it could dial us there. may_be_dialled: could we
    dial the peer back? All None if it is not known."""

    peer: str
    origin: OriginId | None
    address: str | None
    connected_at: float | None
    bytes_sent: int = 0
    bytes_received: int = 0
    pull_bytes_received: int = 0
    updates_received: int = 0
    updates_dropped: int = 0
    frames_sent: int = 0
    frames_received: int = 0
    links_opened: int = 0
    links_lost: int = 0
    muted_seconds: float = 0.0
    seen_as: str | None = None
    may_dial_us: bool | None = None
    may_be_dialled: bool | None = None

    @property
    def is_connected(self) -> bool:
        return self.connected_at is not None


@dataclass(frozen=True, slots=True)
class LastClose:
    """The window that closed last. step: its last step. late: updates in it whose own window had closed before.
    missing: origins that were expected, and whose updates are missing."""

    step: int
    reason: str
    waited_seconds: float
    received: int
    late: int
    missing: tuple[OriginId, ...]


class Subject:
    """The daemon; this is what it is before there is a node, while the model is loaded. All methods but `names` must be
    called on the loop's thread."""

    incarnation: int | None = None
    """None: not known yet."""
    is_draining = False
    is_finished = False
    """Has the run ended here?"""
    parameters: tuple[int, int] | None = None
    """(how many parameters the model has, how many bytes they take in its type). None without a model."""

    @property
    def is_disk_full(self) -> bool:
        return False

    @property
    def clock_fault(self) -> str | None:
        """Why this host's clock keeps it from taking part, in one sentence; None: it does not."""
        return None

    @property
    def handshakes(self) -> int:
        """TLS handshakes that others have begun."""
        return 0

    def view(self) -> View:
        """A view of the node now. It is cached until something happens."""
        hops = Hops((), {}, (), (), 0.0)
        return View(0.0, LOADING, 0, False, False, 0, {}, hops, (), (), 0, (), ())

    def names(self) -> dict[OriginId, str]:
        """The names of all known origins. For any thread."""
        return {}

    def link_states(self) -> list[LinkState]:
        """All neighbours since the process began, and all peers that are dialled."""
        return []

    def link_faults(self) -> Mapping[Any, int]:
        """How often a frame or a link was refused, by reason (a closed set)."""
        return {}

    def journal_size(self) -> Mapping[str, int]:
        """bytes: on the disk. records: how many the algorithm keeps. An algorithm may add other counts."""
        return {}
