"""What an operator sees of a running node: event log, metrics, status page, probes.

This room only looks. It is fed through the driver's observer seam and reads the core; nothing here can change what a
node does, and a fault here (a full disk under the event log, a scraper that hangs) never ends it.
"""
