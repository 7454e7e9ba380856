"""The real core and driver under a virtual clock: hundreds of hosts in one process, each run reproducible from a seed.

clock     a queue of events in virtual seconds
network   links that delay, duplicate, reorder, lose, fall silent and break; `link`: one of them
journal   a disk in memory that loses what a real one may lose
work      the queue of jobs for a model
host      one node with its driver and journal, over all its lives
world     hosts and links together
profiles  which faults, how often
faults    chaos: strikes by a profile, then heals
climate   how fast links and hosts are, before any fault
checks    what must hold, checked from outside
bounds    how much memory a node may use
runs      a whole run in one call: chaos, healing, checks; and many seeds over all cores

All of this is for nodes of any algorithm. `seedflood/` adds what SeedFlood needs: its model, liars and checks.
"""
