"""When a host that trains by GASLoC may lose its disk."""

from seedflood.protocol.gasloc.statement import stated
from simulation.faults import Chaos
from simulation.gasloc.host import GaslocHost


class GaslocChaos(Chaos[GaslocHost]):
    """Strikes a world of GASLoC."""

    def holds_past_of(self, host: GaslocHost, keeper: GaslocHost) -> bool:
        """A host that lost its disk learns from the others which rounds are past. They hear of rounds only now and
        then. So the disk may be lost once they know of the last round."""
        known = keeper.node.membership.get(host.origin)
        is_known = known is not None and known in keeper.journal.members() and not keeper.journal.is_open(None)
        return known is not None and is_known and stated(known).round >= host.offered_round
