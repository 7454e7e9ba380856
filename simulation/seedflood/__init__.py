"""SeedFlood's part of the simulation.

traffic     what may happen to its messages on links
journal     bundles and sums on a disk in memory
ledger      a stand-in for the model, and the chronicle of everything that was ever published
optimisers  how the ledger turns updates into coefficients
compression the updates that origins publish
host        one node with its driver, journal and ledger, over all its lives
world       hosts and links together
profiles    which faults, how often
faults      those that only SeedFlood has
liars       participants that lie
checks      what must hold, checked from outside
bounds      how much memory a node may use
runs        a whole run in one call
"""
