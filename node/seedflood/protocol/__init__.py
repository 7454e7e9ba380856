"""The protocol as pure code: it decides what a node does, and does none of it.

It has no clock, socket, thread, torch or asyncio. Time and signature checks are arguments. What is to be done comes out
as `Outputs`, whose order is the contract: persist, then send, then apply.

The daemon runs this code, and so does the simulation, with hundreds of nodes in one process. So a fault that the
simulation finds is a fault here, and its seed brings it back.
"""
