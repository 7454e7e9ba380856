"""Control: who decides that a run unlearns, and what then happens."""

from itertools import pairwise

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seedflood.protocol.seedflood.messages import LOSS_MAX
from seedflood.training.seedflood.control import HALVINGS_MAX, PATIENCE, REWARD_PROMISE_MAX, Control, block_length

LENGTH = 4
BEGIN = numpy.zeros(3, numpy.int64)


is_too_fast = Control(BEGIN).is_too_fast


def told(loss):
    """A loss as it is told."""
    return round(loss * 2**11)


def heard(losses_by_step, is_ending=False):
    """Control after these steps, each with the losses of all origins, and the steps after which it went back, with the
    increments to go back to. The increments of step k are k."""
    control, acts = Control(BEGIN), []
    for step, losses in enumerate(losses_by_step):
        control = control.hear(dict(enumerate(map(told, losses))), BEGIN + step)
        control, back = control.judge(LENGTH, is_last=is_ending and step == len(losses_by_step) - 1)
        if back is not None:
            acts.append((step, back.tolist()))
    return control, acts


def blocks(*means, origins=3, noise=0.01):
    """So many blocks with these mean losses, and before them one step like the first of them; each origin and step
    differs a little."""
    drawn = numpy.random.default_rng(1)
    steps = [means[0], *(mean for mean in means for _ in range(LENGTH))]
    return [mean + noise * drawn.normal(size=origins) for mean in steps]


def test_a_run_that_unlearns_goes_back_to_where_its_best_block_began_and_halves_its_rate():
    control, acts = heard(blocks(0.9, 0.5, 0.2, *[0.6] * PATIENCE))
    assert acts == [((3 + PATIENCE) * LENGTH, [2 * LENGTH + 1] * 3)]
    assert control.halvings == 1


def test_a_model_that_the_first_steps_spoil_is_as_it_was_before_them_again():
    _, acts = heard([[1.0 + origin / 100 for origin in range(3)], *blocks(*[9.0] * PATIENCE, noise=0.5)[1:]])
    assert acts == [(PATIENCE * LENGTH, [0] * 3)]


def test_nobody_goes_back_to_a_state_soon_after_the_beginning_but_to_the_beginning():
    _, acts = heard(blocks(0.9, *[2.0] * PATIENCE))
    assert acts == [((1 + PATIENCE) * LENGTH, [0] * 3)]


def test_blocks_grow_with_the_steps_before_them():
    control, ends = Control(BEGIN), []
    for step in range(200):
        control, _ = control.hear({1: 1, 2: 1}, BEGIN).judge(length=16)
        if control.steps == 0:
            ends.append(step + 1)
    lengths = [1, *(later - earlier for earlier, later in pairwise(ends))]
    assert lengths[:7] == [1, 4, 4, 4, 4, 4, 5]
    assert max(lengths) == 16


def test_fewer_blocks_that_are_worse_change_nothing():
    control, acts = heard(blocks(0.9, 0.2, *[0.6] * (PATIENCE - 1), 0.2, *[0.6] * (PATIENCE - 1)))
    assert acts == []
    assert control.halvings == 0


@pytest.mark.parametrize("cut", [0, 1, 2])
def test_a_run_whose_last_block_is_worse_ends_with_its_best_one(cut):
    """Also if that block is cut short."""
    course = blocks(0.9, 0.5, 0.2, 0.6)
    _, acts = heard(course[: len(course) - cut], is_ending=True)
    assert acts == [(len(course) - cut - 1, [2 * LENGTH + 1] * 3)]


def test_a_run_whose_last_block_is_no_worse_ends_as_it_is():
    for end in (0.15, 0.2):
        assert heard(blocks(0.9, 0.5, 0.2, end), is_ending=True)[1] == []


@given(seed=st.integers(0, 10**6), level=st.floats(0.01, 4), spread=st.floats(0, 1), origins=st.integers(2, 9))
def test_a_rise_by_chance_alone_changes_nothing(seed, level, spread, origins):
    drawn = numpy.random.default_rng(seed)
    course = level * (1 + spread * drawn.uniform(-1, 1, size=(8 * LENGTH, origins)))
    _, acts = heard(course)
    assert len(acts) <= 1  # of a million such runs few go back at all, and none twice


def test_a_falling_loss_is_never_worse():
    _, acts = heard(blocks(*numpy.geomspace(2, 0.01, 60)))
    assert acts == []


LEVELS = (0.9, 0.5, 0.2)


@given(
    means=st.sampled_from([[*LEVELS, 0.1, 0.05], [*LEVELS, *[0.6] * 9], [*LEVELS, *[2.0] * PATIENCE, 0.1]]),
    is_ending=st.booleans(),
    liars=st.integers(1, 3),
    lies=st.data(),
)
def test_a_third_that_lies_moves_nobody(means, is_ending, liars, lies):
    """Losses that rise to the largest, fall to nothing, or are anything else."""
    honest = [list(losses) for losses in blocks(*means, origins=2 * liars + 1)]
    loss = st.sampled_from([0.0, 31.0]) | st.floats(0, 31)
    drawn = lies.draw(st.lists(st.lists(loss, min_size=liars, max_size=liars), min_size=2, max_size=len(honest)))
    lied = [losses + drawn[step % len(drawn)] for step, losses in enumerate(honest)]
    (alone, acts), (beside, lied_acts) = heard(honest, is_ending), heard(lied, is_ending)
    assert acts == lied_acts
    assert alone.halvings == beside.halvings


def test_an_origin_is_compared_with_itself_alone():
    """Rows differ: half of the hosts lose little and half much, and then others are there."""
    low, high = blocks(*[0.1] * 12, origins=2), blocks(*[3.0] * 12, origins=2)
    course = [dict(enumerate(map(told, (*one, *other)))) for one, other in zip(low, high, strict=True)]
    control = Control(BEGIN)
    for step, losses in enumerate(course):
        there = losses if step < 6 * LENGTH else {origin: losses[origin] for origin in (2, 3)}
        control, back = control.hear(there, BEGIN + step).judge(LENGTH)
        assert back is None


def test_the_rate_is_halved_so_often_and_no_more():
    once = [[0.2, 0.3], *blocks(*[0.6] * PATIENCE, origins=2)[1:]]
    control, _ = heard(once * (HALVINGS_MAX + 5))
    assert control.halvings == HALVINGS_MAX


def test_blocks_are_a_sixteenth_of_an_epoch_and_four_steps_at_least():
    assert [block_length(period) for period in (1, 10, 100, 1000)] == [4, 4, 6, 62]


def test_a_first_step_that_promises_most_of_them_more_than_they_lose_is_too_fast():
    losses = [told(0.8)] * 3
    assert is_too_fast([0.9, -0.9, 0.1], losses)
    assert not is_too_fast([0.9, 0.1, 0.1], losses)
    assert not is_too_fast([0.3] * 3, losses)
    assert not is_too_fast([], [])


def test_of_a_reward_a_first_step_may_promise_less():
    assert is_too_fast([0.3] * 3, [told(0.8)] * 3, REWARD_PROMISE_MAX)
    assert not is_too_fast([0.1] * 3, [told(0.8)] * 3, REWARD_PROMISE_MAX)


def test_a_rate_that_was_halved_so_often_is_never_too_fast():
    assert not Control(BEGIN, HALVINGS_MAX).is_too_fast([9.0], [told(0.8)])


def test_who_loses_next_to_nothing_finds_no_step_too_long():
    assert not is_too_fast([0.9] * 3, [0, told(0.001), told(0.01)])


@given(
    promise=st.sampled_from([0.1, 0.9]),
    lies=st.lists(st.tuples(st.floats(-1e6, 1e6), st.integers(0, LOSS_MAX)), max_size=4),
)
def test_a_third_that_lies_makes_no_step_too_long_or_short_enough(promise, lies):
    honest = [(promise, told(1.0))] * (2 * len(lies) + 1)
    assert is_too_fast(*zip(*honest, *lies, strict=True)) == (promise == 0.9)
