"""When a host that trains by GASLoC may lose its disk."""

from simulation.faults import Chaos
from simulation.gasloc.host import GaslocHost


class GaslocChaos(Chaos[GaslocHost]):
    """Strikes a world of GASLoC."""

    def holds_past_of(self, host: GaslocHost, keeper: GaslocHost) -> bool:
        """Its last statement: only by that does a host that lost its disk learn that it has lived before."""
        known = keeper.node.membership.get(host.origin)
        return known is not None and known in keeper.journal.members() and not keeper.journal.is_open(None)
