"""A step dispatches no more kernels than a GPU has time for. Counts are the same on every machine."""

import pytest
import torch

from benchmarks.kernels import DTYPES, TARGETS, count, count_ours


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_step_stays_within_its_kernels(dtype):
    counts = count_ours(dtype)
    assert counts.keys() == TARGETS.keys()
    for name, target in TARGETS.items():
        assert counts[name].total() <= target, f"{name}: {counts[name].most_common()}"


def test_views_and_empty_tensors_are_no_kernels():
    x = torch.ones(3, 3)
    assert count(lambda: torch.empty_like(x.view(9).unsqueeze(0)[:, 1:])) == {}


def test_what_is_made_of_others_is_counted_by_its_parts():
    x = torch.ones(3, 3)
    with torch.inference_mode():
        assert count(lambda: torch.nn.functional.linear(x, x, x[0])) == {"addmm": 1}
