"""Do the rows of hosts fit together, and are ours the same as before a restart? Each host states which share it trains
on, and a digest of all rows. An operator's slip in either is logged once for each host: nothing else would show that
rows are trained twice, or never."""

from collections.abc import Iterable

from seedflood.operations.hub import TelemetryHub
from seedflood.protocol.origin import OriginId
from seedflood.protocol.seedflood.node import Node
from seedflood.protocol.seedflood.statement import Rows, stated
from seedflood.protocol.swarm.messages import Member

SAME_SHARE = "a host trains on the same share of the rows as this one; correct shard in [node] of one of them"
OTHER_ROWS = "a host shares out other rows than this one: some are trained twice, or never; give all the same data"
REPLACED = "this host trains on other rows than before it was restarted; if that is not meant, give it those again"


def misfit(ours: Rows, theirs: Rows) -> str | None:
    """What is wrong with two hosts' shares; None if nothing is, or if one of them does not share."""
    if ours.shares != theirs.shares or ours.shares == 1:
        return None
    if ours.digest != theirs.digest:
        return OTHER_ROWS
    return SAME_SHARE if ours.place == theirs.place else None


class Shares:
    """Warns of hosts whose rows do not fit ours. rows: ours."""

    def __init__(self, rows: Rows, node: Node, hub: TelemetryHub) -> None:
        self._rows, self._node, self._hub = rows, node, hub
        self._compared = {node.origin}

    def recall(self, members: Iterable[Member]) -> None:
        """members: what the journal has of everyone, ourselves included."""
        ours = [member for member in members if member.origin == self._node.origin]
        if ours and stated(max(ours, key=lambda one: one.age)).rows not in (None, self._rows):
            self._hub.log(REPLACED, "warning", share=f"{self._rows.place + 1}/{self._rows.shares}")

    def compare(self, origins: Iterable[OriginId]) -> None:
        """These hosts take part."""
        for origin in {*origins} - self._compared:
            member = self._node.membership.get(origin)
            if member is not None and (theirs := stated(member).rows) is not None:
                self._compared.add(origin)
                if (wrong := misfit(self._rows, theirs)) is not None:
                    share = f"{theirs.place + 1}/{theirs.shares}"
                    self._hub.log(wrong, "warning", peer=member.name, share=share)
