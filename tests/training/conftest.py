from collections.abc import Iterator
from functools import cache

import pytest
import torch

from seedflood.training.seedflood import singular
from seedflood.training.seedflood.subspace import Subspace

torch.set_num_threads(1)
"""Tiny models: a second thread only waits for the first, and for seconds where the cores are busy."""


@cache
def _side(draw, run_seed, rank, *what):
    return draw(Subspace([], run_seed=run_seed, rank=rank), *what)


@cache
def _vectors(find, data, shape, *how):
    return find(torch.frombuffer(bytearray(data), dtype=torch.float32).view(shape), *how)


@pytest.fixture(scope="module")
def drawn_once() -> Iterator[None]:
    """For tests that make a tiny replica many times: its bases are the same each time, and drawn once. What is drawn
    has tests of its own (test_subspace.py, test_singular.py)."""
    draw, find = Subspace._draw_side, singular.singular_vectors

    def drawn(subspace, *what):
        return _side(draw, subspace.run_seed, subspace.rank, *what).clone()

    def found(weight, *how):
        return _vectors(find, weight.detach().cpu().numpy().tobytes(), tuple(weight.shape), *how)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Subspace, "_draw_side", drawn)
        patch.setattr(singular, "singular_vectors", found)
        yield
