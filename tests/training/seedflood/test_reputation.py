"""A step follows those who agree: sizes are bounded, and who contradicts the others over some steps does not count."""

import numpy
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import permuted, tiny_replica

from seedflood.protocol.seedflood.bundles import Update
from seedflood.training.seedflood import aggregation
from seedflood.training.seedflood.compression import (
    decode_coefficients,
    decode_exponents,
    decode_signs,
    quantise,
    sizes_of,
)
from seedflood.training.seedflood.reputation import AGREES, FEWEST, MEMORY, TRUST_MAX, Reputation, Reputations

pytestmark = pytest.mark.usefixtures("drawn_once")

SIZE = 1 << 14


def np_rng(seed):
    return numpy.random.default_rng(seed)


def batches(rng, *, hosts, size=SIZE, common_F=None):
    """(I, F): gradients of honest hosts. Half of what a batch says is its labels, which pull either way. common_F: what
    all rows say; by default of this step alone."""
    labels_F = rng.normal(size=size)
    if common_F is None:
        common_F = rng.normal(size=size)
    pull_I = rng.choice([-1.0, 1.0], hosts)
    return common_F + pull_I[:, None] * labels_F + 2 * rng.normal(size=(hosts, size))


def signs(values_IF):
    return numpy.sign(values_IF).astype(numpy.int8)


def after(steps, *, hosts, lie, liars, seed=0):
    """The reputations when the last hosts lied. lie: from what the liars and the others measured to what is told."""
    rng, reputations = numpy.random.default_rng(seed), Reputations()
    for _ in range(steps):
        true_IF = batches(rng, hosts=hosts)
        told_IF = true_IF.copy()
        if liars:
            told_IF[-liars:] = lie(rng, true_IF[-liars:], true_IF[:-liars])
        reputations = reputations.after(range(hosts), signs(told_IF))
    return reputations


def turned(_rng, own_LF, _others_IF):
    return -own_LF


def ascending(_rng, own_LF, others_IF):
    return numpy.broadcast_to(-others_IF.sum(axis=0), own_LF.shape)


def noise(rng, own_LF, _others_IF):
    return rng.normal(size=own_LF.shape)


def colluding(_rng, own_LF, _others_IF):
    return numpy.broadcast_to(numpy.random.default_rng(7).normal(size=own_LF.shape[1]), own_LF.shape)


SWARMS = [(3, 1), (4, 1), (8, 2), (16, 5)]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("hosts", "liars"), SWARMS)
@pytest.mark.parametrize("lie", [turned, ascending])
def test_who_turns_the_signs_does_not_count_and_all_others_do(hosts, liars, lie, seed):
    reputations = after(MEMORY, hosts=hosts, lie=lie, liars=liars, seed=seed)
    assert reputations.counting(range(hosts)) == list(range(hosts - liars))


@pytest.mark.parametrize(("hosts", "liars"), SWARMS)
@pytest.mark.parametrize("lie", [noise, colluding])
def test_who_says_nothing_of_the_rows_is_not_trusted_and_all_others_are(hosts, liars, lie):
    reputations = after(MEMORY, hosts=hosts, lie=lie, liars=liars)
    trusted = [origin for origin in range(hosts) if reputations.of(origin).score >= AGREES]
    assert set(range(hosts - liars, hosts)).isdisjoint(trusted)
    assert len(trusted) >= (hosts - liars) // 2


@pytest.mark.parametrize("hosts", [3, 4, 8, 16])
def test_honest_hosts_all_count_in_every_step(hosts):
    rng, reputations = np_rng(1), Reputations()
    for _ in range(2 * MEMORY):
        reputations = reputations.after(range(hosts), signs(batches(rng, hosts=hosts)))
        assert reputations.counting(range(hosts)) == list(range(hosts))


def test_who_agrees_again_counts_again():
    rng, reputations = np_rng(2), Reputations()
    for step in range(4 * MEMORY):
        told_IF = batches(rng, hosts=4)
        if step < MEMORY:
            told_IF[3] *= -1
        reputations = reputations.after(range(4), signs(told_IF))
        if step == MEMORY - 1:
            assert reputations.counting(range(4)) == [0, 1, 2]
    assert reputations.counting(range(4)) == [0, 1, 2, 3]


@pytest.mark.parametrize("honest", [0, MEMORY, 8 * MEMORY])
def test_who_was_honest_for_long_does_not_lie_for_long(honest):
    rng, reputations = np_rng(5), Reputations()
    for step in range(honest + MEMORY):
        told_IF = batches(rng, hosts=4)
        if step >= honest:
            told_IF[3] *= -1
        reputations = reputations.after(range(4), signs(told_IF))
        assert max(reputations.of(origin).score for origin in range(4)) <= TRUST_MAX
    assert reputations.counting(range(4)) == [0, 1, 2]


def test_where_half_contradict_all_count():
    one_F = np_rng(3).normal(size=SIZE)
    told_IF = numpy.stack([one_F, one_F, -one_F, -one_F])
    reputations = Reputations()
    for _ in range(MEMORY):
        reputations = reputations.after(range(4), signs(told_IF))
    assert reputations.counting(range(4)) == [0, 1, 2, 3]


def test_nobody_is_left_out_before_some_steps_are_over():
    reputations = after(FEWEST - 1, hosts=4, lie=ascending, liars=1)
    assert reputations.counting(range(4)) == [0, 1, 2, 3]


def test_a_size_counts_at_most_as_twice_the_median_or_a_quarter_if_its_host_does_not_agree():
    trusted = Reputation(FEWEST, 1000, 1000)
    unlike = Reputation(FEWEST, 0, 1000)
    reputations = Reputations({1: trusted, 2: unlike, 3: trusted})
    exponent_IK = numpy.array([[7, 0], [7, 5], [10, 6], [33, 33], [33, 33]])
    bounded = reputations.bounds([0, 1, 2, 3, 4], exponent_IK)
    assert bounded.tolist() == [[7, 0], [7, 5], [8, 4], [11, 7], [11, 7]]
    exponent_IK = numpy.array([[7, 0], [7, 5], [33, 33], [33, 33], [9, 5]])
    bounded = reputations.bounds([0, 1, 2, 3, 4], exponent_IK)
    assert bounded.tolist() == [[7, 0], [7, 5], [7, 3], [10, 6], [9, 5]]
    assert reputations.bounds([2], numpy.array([[0, 1]])).tolist() == [[0, 0]]


def test_one_of_four_does_not_raise_the_median():
    exponent_IK = numpy.array([[5], [7], [8], [33]])
    assert Reputations().bounds([0, 1, 2, 3], exponent_IK).tolist() == [[5], [7], [8], [8]]


def test_of_two_that_count_neither_silences_the_other():
    """A host whose loss was not finite sends zeros."""
    exponent_IK = numpy.array([[0], [7]])
    assert Reputations().bounds([0, 1], exponent_IK).tolist() == [[0], [7]]


@settings(max_examples=30, deadline=None)
@given(order=st.permutations(range(5)), seed=st.integers(0, 1000))
def test_the_order_in_which_updates_come_changes_nothing(order, seed):
    told_IF = signs(batches(np_rng(seed), hosts=5))
    told_IF[np_rng(seed).random(told_IF.shape) < 0.1] = 0
    one = Reputations().after(range(5), told_IF)
    other = Reputations().after(order, told_IF[list(order)])
    assert one.by_origin == other.by_origin


# A replica

STEPS = 30


def a_replica():
    return tiny_replica(estimate="gradient", learning_rate=1e-3, steps=STEPS + 6, clients=4)


def told_by_four(replica, *, liar=None):
    """Of each step four updates. liar: what the last host tells instead of a gradient."""
    rng = np_rng(4)
    common_F = rng.normal(size=replica.subspace.size)
    updates = []
    for step in range(STEPS):
        true_IF = batches(rng, hosts=4, size=len(common_F), common_F=common_F)
        for origin, value_F in enumerate(true_IF):
            told_F = value_F if liar is None or origin < 3 else liar(value_F)
            updates.append(Update(origin, step, quantise(replica.compression, told_F, 1.0)[0]))
    return updates


def replica_after(updates):
    replica = a_replica()
    replica.apply(updates)
    return replica


def test_steps_with_a_liar_end_the_same_in_any_order():
    updates = told_by_four(a_replica(), liar=lambda value_F: -1e6 * value_F)
    one, other = replica_after(updates), a_replica()
    for update in permuted(updates, 9):
        other.apply([update])
    assert other.digest() == one.digest()


def test_a_journal_that_gives_origin_by_origin_gives_the_same():
    updates = told_by_four(a_replica(), liar=lambda value_F: -1e6 * value_F)
    replica = a_replica()
    replica.replay([[update for update in updates if update.origin == origin] for origin in range(4)])
    assert replica.digest() == replica_after(updates).digest()


def test_epochs_that_were_put_aside_take_late_updates(monkeypatch):
    monkeypatch.setattr(aggregation, "KEPT_EPOCHS", 1)
    updates = told_by_four(a_replica())
    replica = a_replica()
    replica.apply([update for update in updates if update.origin])
    replica.apply([update for update in updates if not update.origin])
    assert replica.digest() == replica_after(updates).digest()


def test_a_preview_shows_a_step_as_it_will_be_and_changes_nothing():
    updates = [update for update in told_by_four(a_replica()) if update.step < 2]
    replica = a_replica()
    replica.apply(updates[:6])
    before = replica.digest()
    replica.preview(updates[6:])
    shown = [slot.a.clone() for slot in replica.slots]
    assert replica.digest() == before
    replica.apply(updates[6:])
    for slot, a in zip(replica.slots, shown, strict=True):
        torch.testing.assert_close(slot.a, a)


def test_what_comes_beside_a_sum_does_not_count():
    """Nothing bounds what one host tells alone."""
    updates = told_by_four(a_replica())
    donor = replica_after([update for update in updates if update.origin < 3 and update.step < 10])
    replica = a_replica()
    replica.adopt(0, donor.sum_epoch(0), [update for update in updates if update.origin == 3 and update.step < 5])
    replica.apply([update for update in updates if update.origin == 3 and 5 <= update.step < 10])
    assert replica.digest() == donor.digest()


def test_a_size_beyond_the_median_changes_nothing_more():
    replica = a_replica()
    large = replica_after(told_by_four(replica, liar=lambda value_F: -16 * value_F))
    larger = replica_after(told_by_four(replica, liar=lambda value_F: -256 * value_F))
    assert large.digest() == larger.digest()


def test_two_hosts_add_up_as_they_are():
    replica = a_replica()
    first, last = (update for update in told_by_four(replica) if update.step == 0 and update.origin in (0, 3))
    exponents = replica.compression.exponents
    weak = bytes(max(0, exponent - 9) for exponent in first.value[:exponents]) + first.value[exponents:]
    assert replica_after([first._replace(value=weak), last]).digest() != replica_after([first, last]).digest()


def test_signs_that_are_turned_do_not_stop_what_the_others_learn():
    """The cosine of what is learned with what is learned without the liar."""
    replica = a_replica()
    honest = told_by_four(replica)
    without = replica_after([update for update in honest if update.origin < 3])
    beside = replica_after(told_by_four(replica, liar=lambda value_F: -256 * value_F))
    one, other = (torch.cat([replica.change(index).flatten() for index in range(3)]) for replica in (without, beside))
    assert float(one @ other / one.norm() / other.norm()) > 0.6


def test_what_is_told_is_its_signs_times_its_sizes_and_may_have_others():
    replica = a_replica()
    told = quantise(replica.compression, np_rng(5).normal(size=replica.subspace.size))[0]
    exponent_K = decode_exponents(replica.compression, told)
    whole_F = decode_coefficients(replica.compression, told)
    half_F = decode_signs(replica.compression, told) * sizes_of(replica.compression, exponent_K - 1)
    assert (2 * half_F == whole_F).all()
