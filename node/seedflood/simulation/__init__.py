"""The real core and driver under a virtual clock: hundreds of hosts in one process, every run from one seed.

clock     when things happen: a queue of events in virtual seconds
network   links that delay, duplicate and break
host      one node with its driver, an in-memory journal with a torn tail, and a stand-in for the model
world     hosts, links and faults together
checks    what must hold, judged from outside
"""
