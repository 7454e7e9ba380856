"""SeedFlood's messages on simulated links."""

from seedflood.protocol.seedflood.messages import Updates
from simulation.link import Item, Traffic, join_statements


def _join(waiting: Item, item: Item) -> Item | None:
    if isinstance(waiting, Updates) and isinstance(item, Updates):
        return Updates(waiting.bundles + item.bundles)
    return join_statements(waiting, item)


TRAFFIC = Traffic((Updates,), _join)
"""Updates come by several paths, and repair brings what is lost. So their frames may be lost, doubled and reordered."""
