"""Where the parts of a node put what is to be done, until the shell collects it."""

from typing import Any

from seedflood.protocol.messages import Message, OriginId
from seedflood.protocol.outputs import Event, EventLevel, Outputs


class Outbox:
    """One for all parts of a node. outputs: what has gathered since the last `take`."""

    def __init__(self) -> None:
        self.outputs = Outputs()

    def send(self, peer: OriginId, message: Message) -> None:
        self.outputs.send.append((peer, message))

    def tell(self, name: str, level: EventLevel = "info", /, **facts: Any) -> None:
        """A fact for the log."""
        self.outputs.events.append(Event(name, level, facts))

    def take(self) -> Outputs:
        taken, self.outputs = self.outputs, Outputs()
        return taken
