"""SeedFlood's own part of training: the subspace, the live layers, what is measured and told, and the replica."""
