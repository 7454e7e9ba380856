"""Training: what any algorithm needs, and each algorithm in a room of its own. torch is imported here alone."""

import os

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
"""OpenMP's threads would spin while they wait for each other, and take the cores of whatever else runs on the machine:
two nodes on two cores took four times as long (benchmarks/notes). It reads the variable when torch is imported."""
