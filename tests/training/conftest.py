import torch

torch.set_num_threads(1)
"""Tiny models: a second thread only waits for the first, and for seconds where the cores are busy."""
