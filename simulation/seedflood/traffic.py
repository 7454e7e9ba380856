"""SeedFlood's messages on simulated links."""

from seedflood.protocol.seedflood.bundles import Updates
from seedflood.protocol.seedflood.messages import Votes
from seedflood.transport.codec import LinkMessage
from simulation.link import Item, Traffic, join_statements, shared


def _join(waiting: Item, item: Item) -> Item | None:
    if isinstance(waiting, Updates) and isinstance(item, Updates):
        return Updates(waiting.bundles + item.bundles)
    return join_statements(waiting, item)


def _share(message: LinkMessage) -> LinkMessage:
    """Statements are shared by the codec."""
    return Votes(tuple(map(shared, message.votes))) if isinstance(message, Votes) else message


TRAFFIC = Traffic((Updates,), _join, _share)
"""Updates come by several paths, and repair brings what is lost. So their frames may be lost, doubled and reordered."""
