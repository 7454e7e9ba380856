"""What a rank makes of the end of another, and of faults of its own."""

import pytest
import torch

from seedflood.errors import RankError
from seedflood.training import ranks
from seedflood.training.ranks import ENDED, FAILED, _reaching, _Watch


@pytest.mark.parametrize(("end", "is_fault"), [(ENDED, False), (FAILED, True)])
def test_the_others_learn_how_rank_0_has_ended(monkeypatch, end, is_fault):
    monkeypatch.setattr(ranks.dist, "all_reduce", lambda is_over, group: is_over.fill_(end))
    ends = []
    _Watch(None, 1, ends.append).join()
    (fault,) = ends
    assert isinstance(fault, RankError) == is_fault


def test_rank_0_learns_nothing_of_itself(monkeypatch):
    monkeypatch.setattr(ranks.dist, "all_reduce", lambda is_over, group: None)
    ends = []
    _Watch(None, 0, ends.append).end(in_peace=False)
    assert ends == [None]


@pytest.mark.parametrize(
    "error",
    [torch.OutOfMemoryError("CUDA out of memory."), RuntimeError("DefaultCPUAllocator: can't allocate memory")],
)
def test_too_little_memory_here_is_no_fault_of_another_rank(error):
    with pytest.raises(type(error), match="memory"), _reaching():
        raise error


def test_whoever_cannot_be_reached_is_gone():
    with pytest.raises(RankError), _reaching():
        raise RuntimeError("Connection closed by peer [127.0.0.1]:1234")
