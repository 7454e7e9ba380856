"""What a node that trains by GASLoC wants done, in the order that is the contract: persist, then send, then orders."""

from dataclasses import dataclass, field

from seedflood.protocol.gasloc.orders import Order
from seedflood.protocol.origin import OriginId
from seedflood.protocol.swarm import outputs as swarm


@dataclass(slots=True)
class Outputs(swarm.Outputs):
    orders: list[Order] = field(default_factory=list)
    """For the compute side, in this order. None is carried out before what is to be persisted is on the disk: a part
    that was mixed must not be forgotten."""
    contents: set[OriginId] = field(default_factory=set)
    """Neighbours for which there is something on their connection for contents (`Carrier.next_frame`)."""
