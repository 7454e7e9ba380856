"""What an operator sees of a running node: event log, metrics, status page, probes.

This room is read-only. The driver's observer seam feeds it, and it reads values of the core. Nothing here can change
what a node does, and a fault here (a full disk under the event log, a scraper that hangs) never ends the node.
"""
