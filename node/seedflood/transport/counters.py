"""What is counted of links, for metrics and for people: by the neighbour's name, and faults of whomever by their kind.

Names are claimed by those who bear them and faults come from anyone, so neither may be a place where memory grows.
"""

import dataclasses
from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal, get_args

NAMES_MAX = 1024
"""Counted apart; who linked first and is gone joins the others."""

OTHERS = "other"

Fault = Literal[
    "frame", "oversize", "columns", "limit", "name", "order", "hello", "signature", "run", "base", "version",
    "identity", "self", "busy", "budget", "other",
]  # fmt: skip
"""Why a frame or a link was refused: each is a series of the metrics."""


@dataclass(slots=True)
class LinkCounters:
    """Sums over all links with one peer since the start. Bytes are those of serialized frames."""

    bytes_sent: int = 0
    bytes_received: int = 0
    frames_sent: int = 0
    frames_received: int = 0
    updates_sent: int = 0
    updates_received: int = 0
    updates_dropped: int = 0
    """Updates, or opaque messages of another algorithm, that gave way because the peer reads too slowly."""
    pull_bytes_received: int = 0
    """Of bytes_received, those that answered our pulls."""
    links_opened: int = 0
    peer_errors: int = 0
    muted_seconds: float = 0.0
    """For so long nothing was read from it, since its budget was spent."""

    def add(self, other: "LinkCounters") -> None:
        for field in dataclasses.fields(self):
            setattr(self, field.name, getattr(self, field.name) + getattr(other, field.name))


class Ledger:
    def __init__(self) -> None:
        self.faults: dict[Fault, int] = dict.fromkeys(get_args(Fault), 0)
        self._of: dict[str, LinkCounters] = {}

    def open(self, name: str, linked: Collection[str]) -> LinkCounters:
        """The counters of a peer that links now. linked: the names of those who are."""
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
        return {name: dataclasses.replace(counters) for name, counters in self._of.items()}
