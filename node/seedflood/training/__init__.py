"""Training: what any algorithm needs, and each algorithm in a room of its own. torch is imported here alone."""
