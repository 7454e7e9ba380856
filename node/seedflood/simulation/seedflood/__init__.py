"""SeedFlood's part of the simulation.

traffic     what its messages may suffer on links
journal     bundles and sums on a disk in memory
ledger      a stand-in for the model, and the chronicle of everything that was ever said
optimisers  what the ledger makes of what was told
telling     what origins tell
host        one node with its driver, journal and ledger, over all its lives
world       hosts and links together
profiles    which faults, how often
faults      those that matter to SeedFlood alone
liars       participants that lie
checks      what must hold, judged from outside
bounds      how much a node may keep
runs        a whole run in one call
"""
