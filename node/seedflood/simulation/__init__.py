"""The real core and driver under a virtual clock: hundreds of hosts in one process, every run from one seed.

clock     when things happen: a queue of events in virtual seconds
network   links that delay, duplicate, reorder, lose, fall silent and break
link      one of them, and what is on its way
work      what a model has to do, one thing after the other
climate   what a world is like before anything goes wrong in it

`seedflood/` is what SeedFlood adds: its hosts, its model, its liars and judges, and whole runs.
"""
