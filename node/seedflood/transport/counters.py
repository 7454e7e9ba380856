"""Counters of links, for metrics and for people: traffic by the neighbour's name, faults by their kind.

Peers choose their names, and anyone can cause faults. So both tables are bounded.
"""

import dataclasses
from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal, get_args

NAMES_MAX = 1024
"""How many names have their own counters. Beyond that, those of peers that are no longer linked are added up as
`OTHERS`, the oldest first."""

OTHERS = "other"

Fault = Literal[
    "frame", "oversize", "columns", "limit", "name", "order", "hello", "signature", "run", "base", "version",
    "identity", "certificate", "expired", "proof", "pin", "roster", "removed", "self", "busy", "budget", "other",
]  # fmt: skip
"""Why a frame or a link was refused. Each reason is a time series of the metrics."""


@dataclass(slots=True)
class LinkCounters:
    """Sums over all links with one peer since the start. Bytes are those of serialized frames."""

    bytes_sent: int = 0
    bytes_received: int = 0
    frames_sent: int = 0
    frames_received: int = 0
    updates_received: int = 0
    updates_dropped: int = 0
    """Updates, or opaque messages of another algorithm, that were dropped because the peer reads too slowly."""
    pull_bytes_received: int = 0
    """The part of bytes_received that answered our pulls."""
    links_opened: int = 0
    links_lost: int = 0
    """Links that ended without a goodbye or a decision of ours."""
    muted_seconds: float = 0.0
    """How long nothing was read from the peer because it had used up its budget."""

    def add(self, other: "LinkCounters") -> None:
        for field in dataclasses.fields(self):
            setattr(self, field.name, getattr(self, field.name) + getattr(other, field.name))


class LinkTotals:
    def __init__(self) -> None:
        self.faults: dict[Fault, int] = dict.fromkeys(get_args(Fault), 0)
        self._of: dict[str, LinkCounters] = {}

    def open(self, name: str, linked: Collection[str]) -> LinkCounters:
        """The counters of a peer that links now. linked: the names of all linked peers."""
        counters = self._of.pop(name, None) or LinkCounters()
        self._of[name] = counters
        if len(self._of) > NAMES_MAX:
            gone = next((one for one in self._of if one not in linked and one not in (name, OTHERS)), None)
            if gone is not None:
                self._of.setdefault(OTHERS, LinkCounters()).add(self._of.pop(gone))
        return counters

    def note(self, reason: str) -> None:
        self.faults[reason if reason in self.faults else "other"] += 1

    def stats(self) -> dict[str, LinkCounters]:
        """By name, in order of names."""
        return {name: dataclasses.replace(counters) for name, counters in sorted(self._of.items())}
