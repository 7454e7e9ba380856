import gc

import pytest

from seedflood.host import garbage


@pytest.fixture(autouse=True)
def collector():
    """As it was, afterwards."""
    thresholds = gc.get_threshold()
    yield
    gc.unfreeze()
    gc.set_threshold(*thresholds)
    gc.enable()


def test_what_is_alive_is_left_alone_and_later_cycles_are_still_found():
    garbage.settle()
    assert gc.get_freeze_count() > 0
    cycle = []
    cycle.append(cycle)
    del cycle
    assert gc.collect() > 0


class Thing:
    """Garbage that only a collection finds."""

    def __init__(self):
        self.itself = self


def test_nothing_is_searched_while_a_model_is_loaded_and_everything_is_afterwards():
    garbage.defer()
    looks = gc.get_stats()[0]["collections"]
    assert len([(k, [k]) for k in range(100_000)]) == 100_000
    assert gc.get_stats()[0]["collections"] == looks
    garbage.settle()
    assert gc.isenabled()


def test_a_frame_of_updates_is_made_without_a_look():
    garbage.settle()
    looks = gc.get_stats()[0]["collections"]
    made = [(k, (k,)) for k in range(4096)]
    assert gc.get_stats()[0]["collections"] - looks <= 1
    assert len(made) == 4096
