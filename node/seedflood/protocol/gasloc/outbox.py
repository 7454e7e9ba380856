"""Where the parts of a node that trains by GASLoC put what is to be done."""

from seedflood.protocol.gasloc.orders import Order
from seedflood.protocol.origin import OriginId
from seedflood.protocol.swarm import outbox as swarm
from seedflood.protocol.swarm.outputs import Outputs, Record


class Outbox(swarm.Outbox[Outputs]):
    def __init__(self) -> None:
        super().__init__(Outputs)

    def order(self, order: Order) -> None:
        """For the compute side."""
        self.outputs.orders.append(order)

    def carry(self, peer: OriginId) -> None:
        """Something waits for the connection for contents."""
        self.outputs.contents.add(peer)

    def keep_record(self, record: Record) -> None:
        """Keeps a record, which is durable before anything is sent. A later record replaces one with the same key."""
        outputs = self.outputs
        outputs.records = [one for one in outputs.records if one.key != record.key]
        outputs.records.append(record)
        outputs.is_durable = True
