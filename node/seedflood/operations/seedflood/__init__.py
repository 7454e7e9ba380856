"""What an operator sees of SeedFlood alone: updates, windows, traces."""
