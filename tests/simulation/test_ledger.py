"""The ledger is a replica in miniature: order does not matter, and nothing can hide in a sum."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seedflood.protocol.frontier import Frontier, Held
from seedflood.protocol.packing import pack
from seedflood.protocol.seedflood.bundles import make_bundle
from seedflood.protocol.seedflood.messages import ClosedEpoch
from simulation.seedflood.ledger import EPOCH_BYTES, Chronicle, Ledger
from simulation.seedflood.optimisers import OPTIMIZERS, after_steps, wrapped

SAID = [make_bundle(origin, step, ((10 * origin + step, step + 1),)) for origin in (1, 2) for step in range(6)]


@pytest.fixture(params=OPTIMIZERS)
def chronicle(request):
    chronicle = Chronicle(refresh_period=4, optimizer=request.param)
    for bundle in SAID:
        chronicle.say(bundle)
    return chronicle


def ledger_of(chronicle, bundles):
    ledger = Ledger(chronicle)
    for bundle in bundles:
        ledger.apply(bundle.updates())
    return ledger


def test_a_ledger_does_not_depend_on_order_and_tells_updates_apart(chronicle):
    forth, back = ledger_of(chronicle, SAID), ledger_of(chronicle, reversed(SAID))
    assert forth.digest() == back.digest() != ledger_of(chronicle, SAID[1:]).digest()


def test_the_chronicle_knows_what_a_ledger_must_be(chronicle):
    held = [bundle for bundle in SAID if bundle.step < 3 or bundle.origin == 2]
    assert ledger_of(chronicle, held).digest() == chronicle.digest(Frontier([Held(1, 3), Held(2, 6)]), {})


def test_a_plain_sum_can_be_adopted_in_part_and_added_to():
    chronicle = Chronicle(refresh_period=4)
    for bundle in SAID:
        chronicle.say(bundle)
    taker = ledger_of(chronicle, [SAID[0], SAID[6]])
    taker.adopt(ClosedEpoch(0, (Held(1, 3),), ledger_of(chronicle, SAID[:3]).coefficients(0)), [SAID[6]])
    assert taker.digest() == ledger_of(chronicle, [*SAID[:3], SAID[6]]).digest()
    assert taker.mistakes == []


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_only_an_optimiser_that_goes_by_steps_minds_which_step_it_was(optimizer):
    forth, back = ({0: told, 1: 50 - told} for told in (20, 30))
    is_same = after_steps(optimizer, 0, forth) == after_steps(optimizer, 0, back)
    assert is_same == (optimizer == "sgd")


@given(total=st.integers(), sums=st.dictionaries(st.integers(0, 9), st.integers(-(1 << 540), 1 << 540)))
def test_what_an_optimiser_comes_to_fits_in_the_coefficients(total, sums):
    assert wrapped(after_steps("adam", wrapped(total), sums)) == after_steps("adam", wrapped(total), sums)


def test_by_adam_an_update_adds_something_else_beside_another_one_and_nothing_beside_a_sum():
    one, other = (after_steps("adam", 0, {0: told}) for told in (3, 5))
    assert after_steps("adam", 0, {0: 3 + 5}) != one + other
    chronicle = Chronicle(refresh_period=4, optimizer="adam")
    for bundle in SAID:
        chronicle.say(bundle)
    donor = ledger_of(chronicle, SAID[:3])
    taker = ledger_of(chronicle, [SAID[6]])
    taker.adopt(ClosedEpoch(0, (Held(1, 3),), donor.coefficients(0)), [SAID[6]])
    assert taker.digest() == donor.digest()
    assert taker.applied[2, 0] == 1


def test_the_chronicle_knows_that_beside_a_sum_nothing_counts_but_what_only_adds_up(chronicle):
    donor = ledger_of(chronicle, SAID[:3])
    taker = ledger_of(chronicle, SAID[1:7])
    taker.adopt(ClosedEpoch(0, (Held(1, 3),), donor.coefficients(0)), [SAID[3], SAID[6]])
    held = Frontier([Held(1, 6), Held(2, 1)])
    assert taker.digest() == chronicle.digest(held, {0: Frontier([Held(1, 3)])})
    assert (taker.digest() == chronicle.digest(held, {})) == (chronicle.optimizer == "sgd")


def test_an_adopted_sum_counts_as_the_updates_that_it_covers(chronicle):
    donor = ledger_of(chronicle, SAID[:3])
    closed = ClosedEpoch(0, (Held(1, 3),), donor.coefficients(0))
    taker = ledger_of(chronicle, [SAID[0], SAID[4]])
    taker.adopt(closed, ())
    assert taker.digest() == ledger_of(chronicle, [*SAID[:3], SAID[4]]).digest()
    assert set(taker.applied.values()) == {1}
    assert taker.mistakes == []


def test_a_sum_that_is_not_that_of_its_updates_is_seen(chronicle):
    ledger = Ledger(chronicle)
    ledger.adopt(ClosedEpoch(0, (Held(1, 3),), pack((5).to_bytes(EPOCH_BYTES, "little"))), [])
    assert len(ledger.mistakes) == 1


def test_a_rebuilt_ledger_forgets_what_it_was(chronicle):
    ledger = ledger_of(chronicle, SAID)
    ledger.sums[0] += 1
    ledger.rebuild([], [update for bundle in SAID for update in bundle.updates()])
    assert ledger.digest() == ledger_of(chronicle, SAID).digest()


def test_whoever_speaks_twice_about_a_step_is_named(chronicle):
    chronicle.say(SAID[0])
    assert chronicle.contradictions == []
    chronicle.say(make_bundle(1, 0, ((3, 3),)))
    chronicle.say(make_bundle(2, 5, ((3, 3),), skipped=1))
    assert len(chronicle.contradictions) == 2


@pytest.mark.parametrize("order", [1, -1])
def test_a_liar_that_measures_what_it_skips_makes_sums_uncertain_and_no_other_skip_does(chronicle, order):
    chronicle.liars = {3}
    chronicle.say(make_bundle(3, 2, ((3, 3),), skipped=2))
    chronicle.say(make_bundle(3, 3, ((3, 3),)))
    assert not chronicle.is_tainted
    for bundle in (make_bundle(3, 5, ((3, 3),)), make_bundle(3, 7, ((3, 3),), skipped=2))[::order]:
        assert not chronicle.is_tainted
        chronicle.say(bundle)
    assert chronicle.is_tainted
    assert chronicle.contradictions == []
