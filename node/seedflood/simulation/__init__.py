"""The real core and driver under a virtual clock: hundreds of hosts in one process, every run from one seed.

clock     when things happen: a queue of events in virtual seconds
network   links that delay, duplicate, reorder, lose, fall silent and break
journal   a disk in memory that loses what a real one may lose
ledger    a stand-in for the model, and the chronicle of everything that was ever said
host      one node with its driver, journal and ledger, over all its lives
world     hosts and links together
profiles  which faults, how often
faults    chaos by a profile, and its end
checks    what must hold, judged from outside
runs      a whole run in one call: chaos, healing, judgement; and many seeds over all cores
"""
