"""SeedFlood's own part of training: the subspace, the live layers, what is measured and sent, and the replica."""
