"""How much memory a node that trains by GASLoC may use."""

from typing import Any

from seedflood.host.driver import Driver
from seedflood.protocol.gasloc.copies import LAST_PLACES, PLACES
from seedflood.protocol.gasloc.statement import REFUSED_MAX
from simulation import bounds
from simulation.bounds import SWARM_BOUNDS, Bound, fixed, linked, origins

FIGURES_MAX = 16
"""The most figures of the compute side."""


def _transfers(node: Any) -> int:
    """One transfer per pair of a round, and copies."""
    return origins(node) + PLACES + LAST_PLACES


BOUNDS: dict[str, Bound] = {
    **SWARM_BOUNDS,
    "Backlog.records": origins,
    "Carrier._asks": _transfers,
    "Carrier._receiving": _transfers,
    "Carrier._sending": _transfers,
    "Choice._lost": origins,
    "Choice._until": origins,
    "Choice.refused": fixed(REFUSED_MAX),
    "Conversation._furthest": lambda node: 2 * origins(node),
    "Conversation.progress": linked,
    "Exchange._offers": linked,
    "Exchange._pairings": origins,
    "Fetch._tried": origins,
    "Gasloc.shown": fixed(FIGURES_MAX),
    "Pace._reached": origins,
    "Pace.throughput": origins,
    "Pace.slow": origins,
    "Serve._places": fixed(PLACES + LAST_PLACES),
    "Serve._rest_until": origins,
    "Trust._until": origins,
    "Trust.failures": origins,
}
"""By the class of the part and the field. [] stands for each container inside a table."""


def find_excess(driver: Driver) -> list[str]:
    """Tables of a node that are larger than their bound, or that have none."""
    return bounds.find_excess(driver, BOUNDS)
