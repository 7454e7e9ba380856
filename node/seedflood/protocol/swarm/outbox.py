"""Where the parts of a node put what is to be done, until the shell collects it."""

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from seedflood.protocol.origin import OriginId
from seedflood.protocol.swarm.messages import Member, Message
from seedflood.protocol.swarm.outputs import Event, EventLevel, Outputs, Record

Wanted = TypeVar("Wanted", bound=Outputs, covariant=True)


class Outbox(Generic[Wanted]):
    """One outbox for all parts of a node. make: returns empty outputs, of the kind that its algorithm has."""

    def __init__(self, make: Callable[[], Wanted]) -> None:
        self._make = make
        self._outputs = make()

    @property
    def outputs(self) -> Wanted:
        """What has gathered since the last `take`."""
        return self._outputs

    def keep(self, member: Member) -> None:
        """Persists a statement."""
        self._outputs.members.append(member)

    def send(self, peer: OriginId, message: Message) -> None:
        self._outputs.send.append((peer, message))

    def order(self, order: Any) -> None:
        """For the compute side."""
        self._outputs.orders.append(order)

    def carry(self, peer: OriginId) -> None:
        """Something waits for the connection for contents."""
        self._outputs.contents.add(peer)

    def keep_record(self, record: Record) -> None:
        """Keeps a record, which is durable before anything is sent. A later record replaces one with the same key."""
        outputs = self._outputs
        outputs.records = [one for one in outputs.records if one.key != record.key]
        outputs.records.append(record)
        outputs.is_durable = True

    def tell(self, name: str, level: EventLevel = "info", /, **facts: Any) -> None:
        """A fact for the log."""
        self._outputs.events.append(Event(name, level, facts))

    def take(self) -> Wanted:
        taken, self._outputs = self._outputs, self._make()
        return taken
