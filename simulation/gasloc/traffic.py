"""GASLoC's messages on simulated links."""

from seedflood.protocol.swarm.messages import Opaque
from simulation.link import Traffic, join_statements

TRAFFIC = Traffic((Opaque,), join_statements)
"""Lost messages about rounds and parameters are sent again. So these frames may be lost, doubled and reordered."""
