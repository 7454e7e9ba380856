"""Budgets are spent by what is of no use, and never by good news."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seedflood.protocol.frontier import Held
from seedflood.protocol.seedflood.bundles import Updates, make_bundle
from seedflood.protocol.seedflood.messages import FrontierDigest, Standing
from seedflood.protocol.swarm.messages import Member, Members, Opaque, Ping
from seedflood.transport.answer import EPOCH_PART_BYTES
from seedflood.transport.budget import (
    ALLOWANCES,
    BACK_OFF_SECONDS_MAX,
    MUTE_SECONDS_MAX,
    PEERS_REMEMBERED,
    Allowance,
    Bucket,
    Budgets,
    Conduct,
    Use,
    costs_of,
)
from seedflood.transport.codec import EpochPart, Pull, PullPart


@given(st.lists(st.tuples(st.floats(0, 10), st.floats(0, 100)), max_size=50))
def test_a_bucket_gives_no_more_than_its_burst_and_its_rate(takes: list[tuple[float, float]]) -> None:
    bucket = Bucket(Allowance(10, 50), 50, 0.0)
    now = taken = 0.0
    for pause, amount in takes:
        now += pause
        wait = bucket.take(amount, now)
        now += wait
        taken += amount
        assert taken <= 50 + 10 * now + 1e-6


@pytest.mark.parametrize("kind", ALLOWANCES)
def test_whoever_spends_a_bucket_is_muted_and_heard_again(kind) -> None:
    rate, burst = ALLOWANCES[kind]
    conduct = Conduct(0.0)
    assert conduct.take({kind: burst}, 0, 0.0) == 0.0
    assert conduct.take({kind: rate}, 0, 0.0) == pytest.approx(1.0)
    assert conduct.take({kind: 0}, 0, 1.0) == 0.0
    assert conduct.take({kind: 100 * rate}, 0, 1.0) == MUTE_SECONDS_MAX


def test_every_new_bundle_earns_every_peer_one_repeat() -> None:
    """A flood of 200,000 updates a second for a minute, each of which comes twice."""
    conduct = Conduct(0.0)
    for second in range(60):
        assert conduct.take({"repeats": 200_000}, 200_000 * (second + 1), float(second)) == 0.0


def test_replays_in_a_quiet_run_are_muted() -> None:
    conduct = Conduct(0.0)
    assert sum(conduct.take({"repeats": 4096}, 0, 0.0) for _ in range(100)) > 10.0


def test_a_peer_that_is_always_muted_becomes_unbearable_and_one_that_was_once_does_not() -> None:
    conduct, now = Conduct(0.0), 0.0
    while now < 300 and not conduct.is_unbearable(now):
        now += 0.001 + conduct.take({"digests": 100}, 0, now)
    assert 30 < now < 120
    once = Conduct(0.0)
    once.take({"digests": 2000}, 0, 0.0)
    assert not once.is_unbearable(0.0)
    assert once.score(600.0) < 0.01


def test_offences_are_answered_by_a_back_off_that_doubles_and_is_forgotten() -> None:
    conduct, now = Conduct(0.0), 0.0
    waits = []
    for _ in range(10):
        conduct.offend(now)
        began = now
        while conduct.is_refused(now):
            now += 0.25
        waits.append(now - began)
    assert waits[:4] == [0.5, 1.0, 2.0, 4.0]
    assert max(waits) == waits[-1] == BACK_OFF_SECONDS_MAX
    now += 2 * BACK_OFF_SECONDS_MAX
    conduct.offend(now)
    assert not conduct.is_refused(now + 1.0)


def test_good_news_costs_nothing() -> None:
    news = Updates((make_bundle(1, 0, ((1, 1),)),))
    assert not any(costs_of(news, 4_000_000, Use(news=1)).values())
    assert not any(costs_of(PullPart(1, news), 4_000_000, Use(news=1)).values())


def test_a_message_of_an_algorithm_costs_nothing_if_it_had_a_use_for_it() -> None:
    assert not any(costs_of(Opaque(b"x"), 200_000, Use(news=1)).values())
    assert not any(costs_of(PullPart(1, Opaque(b"x")), 200_000, Use()).values())
    in_vain = {"repeats": 0, "verifications": 1, "frames": 1, "bytes": 200_000}
    assert costs_of(Opaque(b"x"), 200_000, Use(in_vain=1)) == in_vain


def test_what_is_of_no_use_is_charged_by_its_kind() -> None:
    assert costs_of(FrontierDigest(bytes(32)), 40, Use())["digests"] == 1
    assert costs_of(Pull(1, (Held(1, 0, ((5, 5),) * 1024),)), 40, Use())["pulls"] == 2
    assert costs_of(Members((Member(bytes(32), "a", 1),) * 3), 40, Use())["statements"] == 3
    assert costs_of(Ping(1.0), 40, Use()).items() >= {"frames": 1, "bytes": 40}.items()
    assert costs_of(Updates((make_bundle(1, 0, ((1, 1),)),)), 90, Use(repeats=1, in_vain=2)) == {
        "repeats": 1,
        "verifications": 2,
    }


@pytest.mark.parametrize(
    "part",
    [Updates(()), Members(()), Standing((), bytes(32)), EpochPart(1, None, b"", is_last=False)],
)
def test_a_part_of_an_answer_that_holds_nothing_is_charged_like_any_frame(part) -> None:
    assert costs_of(PullPart(1, part), 20, Use())["frames"] == 1


@pytest.mark.parametrize(("size", "is_last"), [(EPOCH_PART_BYTES, False), (EPOCH_PART_BYTES, True), (3, True)])
def test_a_part_of_a_sum_as_donors_cut_it_costs_nothing(size, is_last) -> None:
    assert not any(costs_of(PullPart(1, EpochPart(1, None, bytes(size), is_last)), size, Use()).values())


def test_a_peer_keeps_its_budget_over_its_links_and_strangers_do_not_gather() -> None:
    budgets = Budgets()
    conduct = budgets.of("a", 1, 0.0)
    assert budgets.of("a", 1, 5.0) is conduct
    assert budgets.of("b", 1, 5.0) is not conduct
    for origin in range(2 * PEERS_REMEMBERED):
        budgets.of("c", origin, 5.0)
    assert len(budgets._of) == PEERS_REMEMBERED
