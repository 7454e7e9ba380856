"""What GASLoC says on simulated links."""

from seedflood.protocol.swarm.messages import Opaque
from seedflood.simulation.link import Traffic, join_statements

TRAFFIC = Traffic((Opaque,), join_statements)
"""All that is said of rounds and parameters is said again if it was lost: these frames may do whatever they like."""
