"""The real core and driver under a virtual clock: hundreds of hosts in one process, every run from one seed.

clock     when things happen: a queue of events in virtual seconds
network   links that delay, duplicate, reorder, lose, fall silent and break; `link`: one of them
journal   a disk in memory that loses what a real one may lose
work      what a model has to do, one thing after the other
host      one node with its driver and journal, over all its lives
world     hosts and links together
profiles  which faults, how often
faults    chaos by a profile, and its end
climate   what a world is like before anything goes wrong in it
checks    what must hold, judged from outside
bounds    how much a node may keep
runs      a whole run in one call: chaos, healing, judgement; and many seeds over all cores

All of this is for nodes of any algorithm. `seedflood/` is what SeedFlood adds: its model, its liars and judges.
"""
