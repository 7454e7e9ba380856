"""Control: who decides that a run unlearns, and what then happens."""

from dataclasses import replace
from itertools import cycle, pairwise

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seedflood.protocol.seedflood.bundles import LOSS_MAX
from seedflood.training.seedflood.control import (
    HALVINGS_MAX,
    PATIENCE,
    PROMISE_MAX,
    REWARD_PROMISE_MAX,
    SIGNIFICANT,
    SIGNIFICANT_ALONE,
    Control,
    Lost,
    Past,
    block_length,
    halvings_for,
    past_size,
    voters_of,
)

LENGTH = 4
BEGIN = numpy.zeros(3, numpy.int64)


def told(loss):
    """A loss as it is told."""
    return round(loss * 2**11)


def heard(losses_by_step, is_ending=False, alone=SIGNIFICANT):
    """Control after these steps, each with the losses of all origins, and the steps after which it went back, with the
    increments to go back to. The increments of step k are k."""
    control, acts = Control(BEGIN, voters=voters_of(len(losses_by_step[0]))), []
    for step, losses in enumerate(losses_by_step):
        control = control.observe(dict(enumerate(map(told, losses))), BEGIN + step)
        control, back = control.judge(LENGTH, alone if is_ending and step == len(losses_by_step) - 1 else None)
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
        control, _ = control.observe({1: 1, 2: 1}, BEGIN).judge(length=16)
        if control.steps == 0:
            ends.append(step + 1)
    lengths = [1, *(later - earlier for earlier, later in pairwise(ends))]
    assert lengths[:7] == [1, 4, 4, 4, 4, 4, 5]
    assert max(lengths) == 16


@pytest.mark.parametrize(("ends", "is_back"), [((0.6, 0.6), True), ((31.0, 0.5), False), ((0.6, 0.4), False)])
def test_two_origins_go_back_only_if_both_lose_more(ends, is_back):
    course = blocks(0.9, 0.5, *[numpy.array(ends)] * PATIENCE, origins=2)
    assert bool(heard(course)[1]) == is_back


LIES = {
    "rising": lambda step: min(31.0, 0.5 + step / 10),
    "falling": lambda step: 31 / (1 + step),
    "alternating": lambda step: 31.0 * (step % 2),
    "largest after the first step": lambda step: 31.0 * (step > 0),
    "smallest": lambda step: 0.0,
    "in steps": lambda step: float(step // LENGTH),
}
"""Made-up losses by step."""


@pytest.mark.parametrize("lie", LIES.values(), ids=LIES)
@pytest.mark.parametrize("honest", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("is_ending", [False, True])
def test_one_liar_halves_no_rate_beside_any_number_of_hosts_that_learn(lie, honest, is_ending):
    course = blocks(*numpy.geomspace(2, 0.1, 12), origins=honest, noise=0.02)
    lied = [[*losses, lie(step)] for step, losses in enumerate(course)]
    control, acts = heard(lied, is_ending)
    assert acts == []
    assert control.halvings == 0


@pytest.mark.parametrize("lie", LIES.values(), ids=LIES)
def test_of_two_hosts_one_that_lies_takes_no_epoch_back_and_stops_no_run(lie):
    course = [whole(mean, 1) for mean in (0.9, 0.7, 0.5, 0.4, 0.3)]
    lied = [
        [[*losses, min(31.0, lie(100 * epoch + step))] for step, losses in enumerate(one)]
        for epoch, one in enumerate(course)
    ]
    left = epochs(*lied, stop_epochs=1)
    assert [(one.is_back, one.is_last, one.halvings) for one in left] == [(False, False, 0)] * 5


def test_a_block_that_too_few_were_in_decides_nothing():
    """All tell of the first blocks, and then one or two of six."""
    for left in (1, 2, 3):
        course = [
            losses if step < 9 else losses[:left] for step, losses in enumerate(blocks(0.9, 0.2, *[9.0] * 9, origins=6))
        ]
        assert heard(course)[1] == []


def test_after_an_epoch_that_others_told_of_the_best_is_looked_for_anew():
    def after(past, epoch, origins):
        control = Control(BEGIN, voters=3)
        for _ in range(20):
            control = control.observe(dict.fromkeys(origins, told(0.5)), BEGIN)
        return past.after(epoch, control, 1)

    past = after(Past(), 0, (1, 2, 3))
    assert after(past, 1, (3, 4, 5)) == replace(past, best=1, losses=after(past, 1, (3, 4, 5)).losses)


def windows(course, clients, absent):
    """Control after windows that did not wait for all. absent: who was not heard in a step."""
    control, acts = Control(BEGIN, voters=voters_of(clients)), []
    for step, losses in enumerate(course):
        there = {origin: told(loss) for origin, loss in enumerate(losses) if origin not in absent(step)}
        control, back = control.observe(there, BEGIN).judge(LENGTH)
        acts += [] if back is None else [step]
    return acts


@pytest.mark.parametrize(
    "absent",
    [
        lambda step: (0, 1) if step == 0 else (),
        lambda step: (1, 2) if step == 0 else (),
        lambda step: (0,) if step == 0 else (1,) if step < 1 + LENGTH else (),
        lambda step: (2,) if step // LENGTH % 2 else (),
        lambda step: (0, 1, 2) if step < 3 else (),
        lambda step: (step % 3,),
    ],
)
def test_hosts_that_are_not_heard_in_each_block_slow_down_when_all_lose_more(absent):
    course = blocks(0.9, 0.9, *[numpy.array([2.0, 3.0, 4.0])] * (PATIENCE + 3))
    assert windows(course, 3, absent) != []
    assert windows(blocks(*numpy.geomspace(2, 0.1, 12)), 3, absent) == []


def test_of_three_hosts_two_decide_nothing_even_if_both_lose_more():
    """The third has left for good."""
    course = blocks(0.9, 0.9, *[numpy.array([2.0, 3.0, 4.0])] * (PATIENCE + 3))
    assert windows(course, 3, lambda step: (2,) if step > 2 * LENGTH else ()) == []


def test_a_block_of_too_few_between_worse_ones_takes_nothing_back():
    course = blocks(0.9, 0.2, *[0.6] * (PATIENCE + 1))
    middle = range(3 * LENGTH + 1, 4 * LENGTH + 1)
    assert windows(course, 3, lambda step: (0, 1) if step in middle else ()) == [len(course) - 1]


@pytest.mark.parametrize("there", [lambda block: 3 * (block >= 2), lambda block: min(3, block)])
def test_where_others_come_and_go_they_are_compared_with_themselves(there):
    """Three of six at a time: others from the third block on, or one after the other."""
    course = blocks(0.2, *[0.9] * 3, *[3.0] * PATIENCE, origins=6)
    first = [there(max(0, (step - 1) // LENGTH)) for step in range(len(course))]
    absent = [set(range(6)) - set(range(one, one + 3)) for one in first]
    assert windows(course, 3, absent.__getitem__) == [len(course) - 1]


@pytest.mark.parametrize("lie", LIES.values(), ids=LIES)
def test_a_liar_beside_whom_one_of_two_others_is_heard_halves_no_rate(lie):
    course = blocks(*numpy.geomspace(2, 0.1, 12), origins=2, noise=0.02)
    lied = [[*losses, lie(step)] for step, losses in enumerate(course)]
    for absent in (lambda step: (0,), lambda step: (step // LENGTH % 2,), lambda step: (step % 2,)):
        assert windows(lied, 3, absent) == []


@pytest.mark.parametrize("voters", [1, 3])
def test_who_measures_first_in_every_epoch_decides_nothing_alone(voters):
    """With turns a block is made of whole ones: six hosts, of which one measures alone in the first step of each."""
    turn, control, blocks_over = 3, Control(BEGIN, voters=voters), 0
    for step in range(90):
        teller = {0: [0], 1: [1, 2], 2: [3, 4, 5]}[step % turn]
        losses = {origin: told(31.0 if origin == 0 and step else 1 / (1 + step)) for origin in teller}
        control, back = control.observe(losses, BEGIN).judge(LENGTH, None, LENGTH, is_turn_over=(step + 1) % turn == 0)
        assert back is None
        if control.steps == 0:
            blocks_over += 1
            assert (step + 1) % turn == 0
            assert len(control.best) == 6
    assert blocks_over > 5


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


def test_an_epoch_whose_last_block_is_worse_ends_with_its_best_one_if_that_is_clearer():
    for rise, is_back in ((0.05, False), (0.2, True)):
        assert bool(heard(blocks(0.9, 0.5, 0.2, 0.2 + rise, noise=0.025), True, SIGNIFICANT_ALONE)[1]) == is_back
    assert heard(blocks(0.9, 0.5, 0.2, 0.25, noise=0.025), True)[1] != []


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
        control, back = control.observe(there, BEGIN + step).judge(LENGTH)
        assert back is None


def test_an_origin_that_told_of_one_step_of_a_block_has_no_vote_on_it():
    """In windows that do not wait for all, a host may hear of most others once in a while."""
    course = blocks(0.2, *[0.6] * PATIENCE, origins=7)
    seldom = [losses if step % LENGTH == 0 else losses[:4] for step, losses in enumerate(course)]
    assert heard(seldom)[0].halvings == heard([losses[:4] for losses in seldom])[0].halvings == 1


def test_the_rate_is_halved_so_often_and_no_more():
    once = [[0.2, 0.3], *blocks(*[0.6] * PATIENCE, origins=2)[1:]]
    control, _ = heard(once * (HALVINGS_MAX + 5))
    assert control.halvings == HALVINGS_MAX


def test_blocks_are_a_sixteenth_of_an_epoch_or_of_a_shorter_run_and_four_steps_at_least():
    assert [block_length(period, 5000) for period in (1, 10, 100, 1000)] == [4, 4, 6, 62]
    assert [block_length(1000, steps) for steps in (1, 200, 1001)] == [4, 12, 62]


def halved_before(promises, losses, promise_max=PROMISE_MAX, times=1000.0, **changes):
    """How often the rate is halved before a first step of these promises."""
    wanted = [halvings_for(promise, loss, promise_max) for promise, loss in zip(promises, losses, strict=True)]
    control = replace(Control(BEGIN, voters=min(3, len(wanted))), **changes)
    return control.promise(dict(enumerate(wanted))).halvings_before(times)


def test_a_first_step_that_promises_most_of_them_more_than_they_lose_is_too_fast():
    losses = [told(0.8)] * 3
    assert halved_before([0.9, -0.9, 0.1], losses) == 1
    assert halved_before([0.9, 0.1, 0.1], losses) == 0
    assert halved_before([0.3] * 3, losses) == 0
    assert halved_before([4.0, 2.0, 0.1], losses) == 2
    assert halved_before([], [], voters=1) == 0


def test_before_a_first_step_two_hosts_have_to_agree():
    assert halved_before([9.0, 0.3], [told(0.8)] * 2) == 0
    assert halved_before([9.0, 0.9], [told(0.8)] * 2) == 1


def test_no_first_step_is_judged_by_fewer_than_three_of_many():
    assert halved_before([9.0] * 2, [told(0.8)] * 2, voters=3) == 0


def test_a_rate_is_never_halved_below_its_default_before_a_first_step():
    assert [halved_before([99.0] * 3, [told(0.8)] * 3, times=times) for times in (0.5, 1, 3, 10)] == [0, 0, 2, 4]


def test_of_a_reward_a_first_step_may_promise_less():
    assert halved_before([0.3] * 3, [told(0.8)] * 3, REWARD_PROMISE_MAX) > 0
    assert halved_before([0.1] * 3, [told(0.8)] * 3, REWARD_PROMISE_MAX) == 0


def test_a_rate_that_was_halved_so_often_is_never_too_fast():
    assert halved_before([9.0], [told(0.8)], times=1e9, halvings=HALVINGS_MAX) == 0


def test_who_loses_next_to_nothing_finds_no_step_too_long():
    assert halved_before([0.9] * 3, [0, told(0.001), told(0.01)]) == 0


@given(
    promise=st.sampled_from([0.1, 0.9]),
    lies=st.lists(st.tuples(st.floats(-1e6, 1e6), st.integers(0, LOSS_MAX)), max_size=4),
)
def test_a_third_that_lies_makes_no_step_too_long_or_short_enough(promise, lies):
    honest = [(promise, told(1.0))] * (2 * len(lies) + 1)
    assert halved_before(*zip(*honest, *lies, strict=True)) == (promise == 0.9)


def epochs(*courses, stop_epochs=None):
    """What is left after each of these epochs, each with the losses of all origins by step."""
    past, left = Past(), []
    for epoch, losses_by_step in enumerate(courses):
        control = Control(BEGIN, past.halvings, voters=voters_of(len(courses[0][0])))
        for losses in losses_by_step:
            control = control.observe(dict(enumerate(map(told, losses))), BEGIN)
        past = past.after(epoch, control, stop_epochs)
        left.append(past)
    return left


def whole(mean, origins=3, seed=1):
    """An epoch of 100 steps."""
    return mean + 0.1 * numpy.random.default_rng(seed).normal(size=(100, origins)).clip(-2, 2)


def test_an_epoch_that_is_clearly_worse_than_the_best_is_taken_back_and_the_rate_halved():
    first, best, chance, worse, last = epochs(whole(0.9), whole(0.3), whole(0.31, seed=2), whole(0.5), whole(0.3))
    assert [first.best, best.best, chance.best, worse.best, last.best] == [0, 1, 1, 1, 1]
    assert [one.is_back for one in (first, best, chance, worse, last)] == [False, False, False, True, False]
    assert [chance.halvings, worse.halvings, last.halvings] == [0, 1, 1]


def test_the_epoch_after_one_that_was_taken_back_is_kept_even_if_it_is_as_bad():
    """Else a best epoch that was spoilt at its very end would throw away all that is learned after it."""
    *_, back, kept, next_one = epochs(whole(0.3), whole(0.6), whole(0.6, seed=2), whole(0.6, seed=3))
    assert (back.is_back, kept.is_back, kept.best) == (True, False, 2)
    assert (next_one.is_back, next_one.best in (2, 3)) == (False, True)


def test_epochs_are_taken_back_no_more_often_than_the_rate_may_be_halved():
    course = [whole(0.3), *(whole(mean) for _ in range(HALVINGS_MAX + 3) for mean in (0.6, 0.3))]
    left = epochs(*course)
    assert sum(one.is_back for one in left) == HALVINGS_MAX == left[-1].halvings


def test_a_run_stops_with_its_best_epoch_once_so_many_were_no_better():
    means = (0.9, 0.3, 0.31, 0.2, 0.21, 0.22)
    left = epochs(*(whole(mean) for mean in means), stop_epochs=2)
    assert [one.is_last for one in left] == [False] * 5 + [True]
    assert (left[-1].is_back, left[-1].best, left[-1].halvings) == (True, 3, 0)


@settings(max_examples=30)
@given(means=st.lists(st.sampled_from([0.2, 0.3, 0.4, 0.5]), min_size=1, max_size=12), stop=st.integers(1, 4))
def test_a_run_stops_only_if_no_epoch_was_better_for_so_long(means, stop):
    """An epoch that was only just taken back is never followed by a stop: the next one counts as the best."""
    for epoch, past in enumerate(epochs(*(whole(mean) for mean in means), stop_epochs=stop)):
        if past.is_last:
            assert epoch - past.best >= stop
            assert min(means[past.best + 1 : epoch + 1]) >= means[past.best]
            break
        assert epoch - past.best < stop


@settings(max_examples=20)
@given(liars=st.integers(1, 3), lies=st.lists(st.integers(0, LOSS_MAX), min_size=1, max_size=40))
def test_a_third_that_lies_neither_stops_a_run_nor_keeps_it_going(liars, lies):
    honest = [whole(mean, 2 * liars + 1) for mean in (0.9, 0.3, 0.31, 0.32)]
    drawn = cycle(lies)
    lied = [[[*step, *(next(drawn) / 2**11 for _ in range(liars))] for step in course] for course in honest]
    for course in (honest, lied):
        assert [one.is_last for one in epochs(*course, stop_epochs=2)] == [False, False, False, True]


def test_an_epoch_of_which_nothing_was_told_leaves_what_was_left_to_it():
    best, empty = epochs(whole(0.3), [])
    assert empty == best


@settings(max_examples=20)
@given(liars=st.integers(1, 3), lies=st.lists(st.integers(0, LOSS_MAX), min_size=1, max_size=40))
def test_a_third_that_lies_takes_no_epoch_back_and_keeps_none(liars, lies):
    honest = [whole(mean, 2 * liars + 1) for mean in (0.9, 0.3, 0.32, 0.6, 0.32)]
    drawn = cycle(lies)
    lied = [[[*step, *(next(drawn) / 2**11 for _ in range(liars))] for step in course] for course in honest]
    decisions = [[(one.best, one.is_back, one.halvings) for one in epochs(*course)] for course in (honest, lied)]
    assert decisions[0] == decisions[1] == [(0, False, 0), (1, False, 0), (1, False, 0), (1, True, 1), (1, False, 1)]


LOSTS = st.builds(Lost, st.integers(1, 1000), st.integers(0, 1 << 40), st.integers(0, 1 << 60))


@given(
    past=st.builds(
        Past,
        st.integers(0, HALVINGS_MAX),
        st.integers(-1, 1 << 40),
        st.dictionaries(st.integers(0, (1 << 64) - 1), LOSTS, max_size=4),
        st.booleans(),
    ),
    is_last=st.booleans(),
)
def test_what_an_epoch_leaves_is_read_from_its_numbers(past, is_last):
    past = replace(past, is_last=past.is_back and is_last)
    listed = past.listed()
    assert len(listed) <= past_size(4)
    assert all(-(1 << 63) <= number < 1 << 63 for number in listed)
    assert Past.read(listed + [0] * (past_size(4) - len(listed))) == past


@given(listed=st.lists(st.integers(-(1 << 63), (1 << 63) - 1), min_size=11, max_size=11))
def test_senseless_numbers_of_a_sum_stop_nothing(listed):
    past = Past.read(listed)
    assert past.halvings >= 0
    assert past.best >= -1
    control = Control(BEGIN).observe(dict.fromkeys(past.losses, 5), BEGIN)
    assert past.after(3, control).best in (past.best, 3)
