"""GASLoC's part of the simulation.

traffic   what may happen to its messages on links
replica   a stand-in for a model: exact numbers, which are sent as bytes
disk      checkpoints, and contents that arrive, beside the journal in memory
compute   carries out the orders of a node
host      one node with its driver, disk and replica, over all its lives
world     hosts and links together
profiles  which faults, how often
faults    when a host may lose its disk
liars     participants that lie
checks    what must hold, judged from outside
bounds    how much a node may keep
runs      a whole run in one call
"""
