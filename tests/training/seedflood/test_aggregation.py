from itertools import pairwise

import numpy
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import assert_weights_close, distinct_parameters, permuted, root, rows_basis, tiny_model, tiny_replica

from seedflood.protocol.seedflood.bundles import LOSS_BYTES, Update
from seedflood.protocol.seedflood.epochs import CLOSING_ROUNDS
from seedflood.protocol.seedflood.payload import encode_loss
from seedflood.training.seedflood.compression import quantise
from seedflood.training.seedflood.control import HALVINGS_MAX
from simulation.seedflood.compression import decode_coefficients

pytestmark = pytest.mark.usefixtures("drawn_once")

STEPS, CLIENTS = 24, 2
"""Of an epoch of ten steps each."""


def payload_updates(replica, *, steps=STEPS, clients=CLIENTS, seed=0, loss=0.0):
    rng = numpy.random.default_rng(seed)
    size = replica.subspace.size
    return [
        Update(origin, step, quantise(replica.compression, rng.normal(size=size), loss)[0])
        for step in range(steps)
        for origin in range(clients)
    ]


def a_replica(**changes):
    settings = {"window": "strict", "estimate": "gradient", "learning_rate": 1e-3, "steps": STEPS + 6}
    return tiny_replica(**(settings | changes))


@pytest.fixture(scope="module")
def expected():
    """Updates, digest, weights and sums when every window was applied in turn."""
    replica = a_replica()
    updates = payload_updates(replica)
    for step in range(STEPS):
        replica.open_epoch(step // 10)
        replica.apply([update for update in updates if update.step == step])
    return updates, replica.digest(), replica.weights(), [replica.sum_epoch(epoch) for epoch in range(3)]


@settings(max_examples=10)
@given(order=st.integers(0, 10**6), cuts=st.lists(st.integers(0, STEPS * CLIENTS), max_size=4))
def test_any_order_and_partition_gives_the_same_digest_and_weights(expected, order, cuts):
    updates, digest, weights, _ = expected
    replica, shuffled = a_replica(), permuted(updates, order)
    bounds = [0, *sorted(cuts), len(shuffled)]
    for start, end in pairwise(bounds):
        replica.apply(shuffled[start:end])
    assert replica.digest() == digest
    replica.open_epoch(2)
    assert_weights_close(replica.weights(), weights)


def test_before_a_first_step_that_is_too_long_the_rate_is_halved_in_any_order():
    """Gradients of a thousand coordinates, at a rate of 1, and a loss of 2."""
    replica, shuffled = (a_replica(learning_rate=1.0) for _ in range(2))
    updates = payload_updates(replica, loss=2.0)
    replica.apply(updates)
    for update in permuted(updates, 5):
        shuffled.apply([update])
    assert shuffled.digest() == replica.digest()
    assert 3 <= replica.halvings < HALVINGS_MAX
    assert shuffled.halvings == replica.halvings


def test_before_a_first_step_no_rate_is_halved_below_its_default():
    """The gradients promise more than a loss of 2^-5 at all of these rates."""
    default = a_replica().default_rate
    halvings = []
    for times in (1, 1.5, 10):
        replica = a_replica(learning_rate=times * default)
        replica.apply(payload_updates(replica, steps=1, loss=2**-5))
        halvings.append(replica.halvings)
    assert halvings == [0, 1, 4]


def test_any_set_of_updates_has_a_digest_of_its_own(expected):
    updates, digest, _, _ = expected
    replica = a_replica()
    replica.apply(updates[:-1])
    assert replica.digest() != digest
    replica.apply(updates[-1:])
    assert replica.digest() == digest


def test_weights_are_those_of_a_dense_reference(expected):
    updates, _, weights, _ = expected
    replica = a_replica()
    for name, weight in dense_weights(replica, updates).items():
        torch.testing.assert_close(weights[name].double(), weight, rtol=0, atol=1e-5)


def dense_weights(replica, updates):
    """Every step as `W += U dA V^T` on float64 weights, with the optimiser as the papers write it."""
    subspace, rate = replica.subspace, replica.learning_rate
    weights = {name: parameter.detach().double() for name, parameter in distinct_parameters(tiny_model("opt"))}
    for epoch in range(3):
        first = second = torch.zeros(subspace.size, dtype=torch.float64)
        for count, step in enumerate(range(10 * epoch, min(10 * epoch + 10, STEPS)), 1):
            told = [decode_coefficients(replica.compression, one.value) for one in updates if one.step == step]
            gradient_F = torch.tensor(told, dtype=torch.float64).sum(dim=0) * 2.0**-22 / CLIENTS
            lr = rate * root(step)
            first, second = 0.9 * first + 0.1 * gradient_F, 0.999 * second + 0.001 * gradient_F**2
            change_F = first / (1 - 0.9**count) / ((second / (1 - 0.999**count)).sqrt() + 1e-8)
            change_F = change_F / torch.from_numpy(subspace.lengths())
            for index, slot in enumerate(subspace.slots):
                basis, change = subspace.basis(epoch, index), subspace.part(-lr * change_F, index)
                dense = rows_basis(basis) @ change
                weights[slot.name] += dense if basis.v_NR is None else dense @ basis.v_NR.double().T
    return weights


def test_adopted_sums_and_the_bundles_of_the_open_epoch_are_as_good_as_all_bundles(expected):
    updates, digest, weights, sums = expected
    joiner = a_replica()
    joiner.apply(updates[:7])
    for epoch in range(2):
        joiner.adopt(epoch, sums[epoch], ())
    joiner.apply(update for update in updates if update.step >= 20)
    assert joiner.digest() == digest
    joiner.open_epoch(2)
    assert_weights_close(joiner.weights(), weights)


def test_a_late_update_of_a_folded_epoch_gives_the_weights_of_one_in_time(expected):
    updates, digest, weights, _ = expected
    replica = a_replica()
    late = updates[5]
    replica.apply(update for update in updates if update is not late)
    replica.open_epoch(2)
    replica.apply([late])
    assert replica.digest() == digest
    assert_weights_close(replica.weights(), weights)


def test_a_preview_is_what_applying_gives_and_leaves_no_trace():
    replica, applied = a_replica(), a_replica()
    updates = payload_updates(replica, steps=6)
    for one in (replica, applied):
        one.apply(updates[:6])
    digest, before = replica.digest(), replica.weights()
    replica.preview(updates[6:9:2])
    applied.apply(updates[6:9:2])
    assert_weights_close(replica.weights(), applied.weights(), 0)
    assert replica.digest() == digest
    replica.preview(())
    assert_weights_close(replica.weights(), before, 0)
    for one, rest in ((replica, updates[6:]), (applied, [updates[7], *updates[9:]])):
        one.apply(rest)
    assert replica.digest() == applied.digest()


def test_nothing_is_kept_of_steps_that_all_clients_told_of():
    replica = a_replica()
    for update in payload_updates(replica):
        replica.apply([update])
    for steps in replica._aggregation._epochs.values():
        assert not steps.updates


def test_a_journal_may_give_many_epochs_of_one_origin_before_those_of_the_next():
    steps = 130
    in_turn, by_origin = a_replica(steps=steps), a_replica(steps=steps)
    updates = payload_updates(in_turn, steps=steps)
    in_turn.apply(updates)
    for origin in range(CLIENTS):
        ours = [update for update in updates if update.origin == origin]
        for k in range(0, steps, 5):
            by_origin.apply(ours[k : k + 5])
    assert by_origin.digest() == in_turn.digest()


def told_losses(replica, means, *, steps_each=10):
    """Epochs with these mean losses."""
    drawn, noise = numpy.random.default_rng(3), numpy.random.default_rng(4)
    return [
        Update(origin, step, quantise(replica.compression, drawn.normal(size=replica.subspace.size), loss)[0])
        for step in range(steps_each * len(means))
        for origin in range(CLIENTS)
        for loss in [means[step // steps_each] * (1 + 0.05 * noise.uniform(-1, 1))]
    ]


MEANS = (1.0, 0.3, 0.305, 0.9, 0.31)
"""The epoch with number 3 is worse than that with number 1: with number 2, which is as good as that, it is taken
back."""


def test_epochs_that_are_worse_than_the_best_count_no_more():
    replica, again = a_replica(steps=100), a_replica(steps=100)
    updates = told_losses(replica, MEANS)
    before = {}
    for step in range(40):
        replica.open_epoch(step // 10)
        replica.apply([update for update in updates if update.step == step])
        before[step] = replica.weights()
    assert_weights_close(before[39], before[19])
    assert replica.halvings == 1
    with pytest.raises(AssertionError):
        assert_weights_close(before[38], before[39])
    replica.open_epoch(4)
    assert_weights_close(replica.weights(), before[19])
    again.apply(updates[: 20 * CLIENTS])
    change = [replica.change(index) for index in range(len(replica.slots))]
    assert all(torch.allclose(one, again.change(index), atol=1e-6) for index, one in enumerate(change))


@settings(max_examples=10)
@given(order=st.integers(0, 10**6), opened=st.integers(0, 4), cut=st.integers(0, 50 * CLIENTS))
def test_epochs_are_taken_back_in_any_order_and_whatever_is_folded(order, opened, cut):
    in_turn, shuffled = a_replica(steps=100), a_replica(steps=100)
    updates = told_losses(in_turn, MEANS)
    for start in range(0, len(updates), CLIENTS):
        in_turn.apply(updates[start : start + CLIENTS])
    mixed = permuted(updates, order)
    shuffled.apply(mixed[:cut])
    shuffled.open_epoch(opened)
    for update in mixed[cut:]:
        shuffled.apply([update])
    assert shuffled.digest() == in_turn.digest()
    for one in (in_turn, shuffled):
        one.open_latest()
        assert one.halvings == 1
    assert_weights_close(shuffled.weights(), in_turn.weights())


def test_who_adopts_sums_knows_which_epochs_count():
    donor, joiner = a_replica(steps=100), a_replica(steps=100)
    updates = told_losses(donor, MEANS)
    donor.apply(updates)
    for epoch in (2, 0, 3, 1):
        joiner.adopt(epoch, donor.sum_epoch(epoch), ())
    joiner.replay([[update for update in updates if update.step >= 40]])
    assert joiner.digest() == donor.digest()
    for one in (donor, joiner):
        one.open_latest()
    assert_weights_close(joiner.weights(), donor.weights())
    assert joiner.halvings == donor.halvings == 1


@settings(max_examples=10)
@given(order=st.integers(0, 10**6), cut=st.integers(0, 50 * CLIENTS), more=st.integers(0, 10 * CLIENTS))
def test_who_has_stopped_holds_the_best_state_whatever_is_told_of_later_steps_in_any_order(order, cut, more):
    in_turn, shuffled, best = (a_replica(steps=100, stop_after=20) for _ in range(3))
    updates = told_losses(in_turn, (1.0, 0.3, 0.31, 0.32, 0.1))
    best.apply(updates[: 20 * CLIENTS])
    for start in range(0, 40 * CLIENTS + more, CLIENTS):
        in_turn.apply(updates[start : start + CLIENTS])
    mixed = permuted(updates, order)
    shuffled.apply(mixed[:cut])
    for update in mixed[cut:]:
        shuffled.apply([update])
    assert shuffled.digest() == in_turn.digest()
    for one in (in_turn, shuffled, best):
        one.open_latest()
    assert_weights_close(in_turn.weights(), best.weights())
    assert_weights_close(shuffled.weights(), best.weights())
    assert [in_turn.is_over(step) for step in (0, 40 + CLOSING_ROUNDS - 1, 40 + CLOSING_ROUNDS, 99)] == [
        False,
        False,
        True,
        True,
    ]
    joiner = a_replica(steps=100, stop_after=20)
    for epoch in (2, 0, 3, 1):
        joiner.adopt(epoch, in_turn.sum_epoch(epoch), ())
    joiner.replay([updates[40 * CLIENTS :]])
    assert joiner.digest() == in_turn.digest()
    assert joiner.is_over(99)


def test_the_replay_of_a_long_journal_computes_each_epoch_a_few_times_only():
    """A new past begins the next epoch again, and that the one after it."""
    replica, count = a_replica(steps=400), 40
    updates = told_losses(replica, [1 / (1 + epoch) for epoch in range(count)])
    calls, go = [], replica._aggregation._go
    replica._aggregation._go = lambda point, epoch, told: calls.append(len(told)) or go(point, epoch, told)
    replica.replay([updates])
    assert sum(calls) < 3 * 10 * count


def test_in_a_turn_in_which_one_took_the_place_of_another_updates_count_in_whatever_order_they_come():
    """Then more origins tell of it than there are clients. The pairs are steps and origins; turns have three steps."""
    run = {"learning_rate": 1e-3, "steps": 48, "refresh_period": 12, "clients": 3}
    run |= {"window": "strict", "participants": 1}
    live, replayed = (tiny_replica(estimate="gradient", **run) for _ in range(2))
    drawn = numpy.random.default_rng(0)
    updates = [
        Update(origin, step, quantise(live.compression, drawn.normal(size=live.subspace.size), 1.0)[0])
        for step, origin in [(0, 0), (0, 3), (1, 1), (2, 2), (3, 1), (4, 3), (5, 2), (6, 1), (8, 2), (7, 3)]
    ]
    for update in updates:
        live.apply([update])
    replayed.apply(updates[:-1])
    replayed.apply(updates[-1:])
    assert live.digest() == replayed.digest()


def turned(origin, step, turn=6):
    """Whose turn is a step? The first origin has chosen a key with which it always measures alone, and first."""
    return step % turn == 0 if origin == 0 else step % turn == 1 + (origin + step // turn) % (turn - 1)


@pytest.mark.parametrize("lie", [lambda step: min(31.0, 0.3 + step / 4), lambda step: 31.0 * (step % 100 > 0)])
def test_of_six_hosts_one_whose_turns_begin_each_epoch_halves_no_rate_and_takes_nothing_back(lie):
    replica = a_replica(steps=200, clients=6, participants=1, refresh_period=100)
    honest = a_replica(steps=200, clients=6, participants=1, refresh_period=100)
    for one, tells in ((replica, lie), (honest, lambda step: 1.0 / (1 + step))):
        updates = payload_updates(one, steps=200, clients=6)
        for origin, step, payload in updates:
            if turned(origin, step):
                loss = tells(step) if origin == 0 else 1.0 / (1 + step)
                one.apply([Update(origin, step, payload[:-LOSS_BYTES] + encode_loss(round(loss * 2**11)))])
        assert one.halvings == 0
    assert replica.digest() != b""
    replica.open_latest()
    honest.open_latest()
    assert_weights_close(replica.weights(), honest.weights())


@pytest.mark.parametrize("lie", ["rising", "falling", "alternating", "largest"])
def test_of_two_hosts_one_that_makes_up_its_losses_halves_no_rate(lie):
    made_up = {
        "rising": lambda step: min(31.0, 0.5 + step / 3),
        "falling": lambda step: 31.0 / (1 + step),
        "alternating": lambda step: 31.0 * (step % 2),
        "largest": lambda step: 31.0,
    }[lie]
    replica, honest = a_replica(steps=60), a_replica(steps=60)
    for one, tells in ((replica, made_up), (honest, lambda step: 1.0 / (1 + step))):
        for origin, step, payload in payload_updates(one, steps=60):
            loss = tells(step) if origin == 0 else 1.0 / (1 + step)
            one.apply([Update(origin, step, payload[:-LOSS_BYTES] + encode_loss(round(loss * 2**11)))])
        one.open_latest()
        assert one.halvings == 0
    assert_weights_close(replica.weights(), honest.weights())


def test_with_turns_a_first_step_that_most_find_too_long_is_taken_back_after_the_turn():
    """In any order."""

    def told_by(replica):
        return [
            Update(origin, step, payload[:-LOSS_BYTES] + encode_loss(round(0.5 * 2**11)))
            for origin, step, payload in payload_updates(replica, steps=12, clients=6)
            if turned(origin, step)
        ]

    settings = {"steps": 60, "clients": 6, "participants": 1, "refresh_period": 30, "learning_rate": 10.0}
    replica, shuffled = a_replica(**settings), a_replica(**settings)
    updates = told_by(replica)
    for update in updates:
        replica.apply([update])
    assert replica.halvings > 0
    shuffled.apply(permuted(updates, 5))
    assert shuffled.digest() == replica.digest()
    assert shuffled.halvings == replica.halvings


@pytest.mark.parametrize("late", [1, 6, 40])
def test_a_late_update_takes_about_as_many_steps_as_it_is_late(late):
    steps = 60
    replica, in_time = (a_replica(steps=steps, refresh_period=steps) for _ in range(2))
    updates = payload_updates(replica, steps=steps)
    in_time.apply(updates)
    taken, take = [], replica._aggregation._take
    replica._aggregation._take = lambda point, epoch, step, told: taken.append(step) or take(point, epoch, step, told)
    for step in range(steps + late):
        told = [update for update in updates if update.step == (step - late if update.origin else step)]
        taken.clear()
        replica.apply(told)
        assert len(taken) <= 2 * late + 4
    assert replica.digest() == in_time.digest()


def test_where_windows_do_not_wait_more_hosts_than_clients_may_tell_of_a_step_in_any_order():
    """Another host has taken the place of one that returns."""
    in_turn, late = (a_replica(window="bounded") for _ in range(2))
    updates = payload_updates(in_turn, clients=CLIENTS + 1)
    in_turn.apply(updates)
    for step in range(STEPS):
        late.apply([update for update in updates if update.step == step and update.origin])
    for step in range(STEPS):
        late.apply([update for update in updates if update.step == step and not update.origin])
    assert late.digest() == in_turn.digest()


def test_nothing_is_kept_of_an_epoch_whose_sum_is_final():
    replica = a_replica(window="bounded")
    replica.apply(payload_updates(replica))
    digest = replica.digest()
    for epoch in range(2):
        replica.seal(epoch)
    assert list(replica._aggregation._epochs) == [2]
    assert not replica._aggregation._places
    assert replica.digest() == digest
    replica.apply([update for update in payload_updates(replica, clients=CLIENTS + 1) if update.origin == CLIENTS][:20])
    assert replica.digest() == digest
