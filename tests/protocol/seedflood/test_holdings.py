from dataclasses import replace

import pytest
from nodes import (
    answer_pull,
    applied_steps,
    end_pulls,
    events,
    hear,
    linked,
    measure_of,
    orders,
    publish,
    sent,
    sent_bundles,
    started,
    tick,
    windows,
)
from origins import A, B, C, D, E, certified, epoch, standing

from seedflood.errors import PeerError
from seedflood.protocol.frontier import Frontier
from seedflood.protocol.seedflood import holdings
from seedflood.protocol.seedflood.algorithm import GATHER_SECONDS
from seedflood.protocol.seedflood.bundles import SCALAR_MAX
from seedflood.protocol.seedflood.messages import ClosedEpoch, Equivocation, FrontierDigest, Votes
from seedflood.protocol.seedflood.opening import WAITING_ROUNDS
from seedflood.protocol.seedflood.outputs import Compacted, CutOff, Measure, Rebuild, SumEpoch
from seedflood.protocol.seedflood.phase import Phase
from seedflood.protocol.seedflood.voting import OVERDUE_SECONDS
from seedflood.protocol.swarm.messages import Members, Pong

PERIOD = 4
FIRST = epoch(0, B.held(4), C.held(4), total=5)


def pulling(*held, journal=(), **settings):
    """A node that joins and pulls from B, which holds this."""
    node = started(clients=3, refresh_period=PERIOD, journal=journal, members=[B.member(), C.member()], **settings)
    node.connected(B.id, B.hello(held, members=[C.member()]), 0.0)
    assert [peer for peer, _ in node.collect().pull] == [B.id]
    return node


def hear_sums(node, peer, *closed, signers=(B, C), now=0.0):
    """The peer tells sums with the votes of these. What came of the last one."""
    return [hear(node, peer, certified(one, *signers), now) for one in closed][-1]


def spread(*origins, steps):
    return [origin.bundle(step) for step in steps for origin in origins]


# Adopting


def test_a_sum_takes_the_place_of_bundles():
    node = pulling(B.held(5), C.held(4))
    out = hear_sums(node, B, FIRST)
    assert out.adopt == [certified(FIRST, B, C)]
    assert out.bundles == []
    assert node.frontier == node.applied == Frontier([B.held(4), C.held(4)])


def test_what_a_sum_covers_is_applied_by_it_and_by_no_window():
    node = pulling(B.held(5), C.held(4), journal=spread(B, C, steps=[0, 1]), window="bounded")
    assert windows(hear_sums(node, B, FIRST)) == []
    out = answer_pull(node, B, B.updates(4))
    assert applied_steps(out) == []
    assert measure_of(out) == Measure(4, 1)
    publish(node)
    assert node.frontier.holds(B.id, 0, 4)


def test_bundles_of_other_epochs_still_wait_for_their_window():
    node = pulling(B.held(9), C.held(9), journal=spread(B, C, steps=[3, 4, 5]), window="bounded")
    out = hear_sums(node, B, FIRST)
    assert windows(out) == []
    assert not node.applied.holds(B.id, 4)
    out = answer_pull(node, B, B.updates(6, 7, 8), C.updates(6, 7, 8))
    assert applied_steps(out) == [((8, 7), sorted([4, 5, 6, 7] * 2))]


def test_what_is_known_already_is_not_adopted():
    node = pulling(B.held(5), C.held(4), journal=spread(B, C, steps=range(4)))
    assert hear_sums(node, B, FIRST).adopt == []


def test_a_sum_is_taken_only_from_whom_it_was_asked():
    node = pulling(B.held(5), C.held(4))
    node.connected(C.id, C.hello([B.held(5), C.held(4)]), 0.0)
    node.collect()
    assert hear_sums(node, C, FIRST).adopt == []
    assert hear_sums(node, B, FIRST).adopt == [certified(FIRST, B, C)]


def test_a_sum_that_goes_on_while_ours_is_being_taken_is_not_adopted():
    node = linked(B, clients=2, steps=4, refresh_period=PERIOD)
    for step in range(4):
        hear(node, B, B.updates(step))
        out = publish(node)
    assert SumEpoch(0, node.frontier.held()) in out.orders
    node.connected(B.id, B.hello([B.held(4), A.held(4), C.held(4)], members=[C.member()]), 0.0)
    node.collect()
    out = hear_sums(node, B, epoch(0, A.held(4), B.held(4), C.held(4)))
    assert out.adopt == []
    assert "epoch not adopted" in events(out)


def test_an_adopted_sum_is_not_summed_again():
    node = pulling(B.held(40), C.held(40), window="bounded")
    hear_sums(node, B, *(epoch(number, B.held(4 * number + 4), C.held(4 * number + 4)) for number in range(9)))
    out = answer_pull(node, B, B.updates(*range(36, 40)), C.updates(*range(36, 40)))
    assert measure_of(out) == Measure(39, 1)
    assert not any(isinstance(order, SumEpoch) for order in out.orders)


def test_nobody_is_sent_a_bundle_that_a_donor_has_told_as_a_sum():
    node = pulling(B.held(5), C.held(4))
    hear_sums(node, B, FIRST)
    node.connected(C.id, C.hello(), 0.0)
    node.collect()
    assert sent_bundles(hear(node, C, B.updates(0)), B) == []
    assert node.duplicates == 1


# Refusing


@pytest.mark.parametrize(
    ("closed", "reason"),
    [
        (epoch(0, D.held(4)), "unknown origin"),
        (epoch(0, B.held(5)), "beyond the run"),
        (epoch(0, B.held(4), C.held(4), total=6), "coefficients"),
        (epoch(0, B.held(4), total=5), "coefficients"),
        (ClosedEpoch(0, FIRST.frontier, b"not packed"), "coefficients"),
        (ClosedEpoch(0, FIRST.frontier, FIRST.coefficients + bytes(99)), "coefficients"),
    ],
)
def test_sums_that_cannot_be_of_this_run_or_are_not_what_was_signed_are_the_fault_of_who_sends_them(closed, reason):
    node = pulling(B.held(5), C.held(4))
    closed = replace(closed, certificate=certified(FIRST, B, C).certificate)
    with pytest.raises(PeerError) as caught:
        node.received(B.id, closed, 0.0)
    assert caught.value.reason == reason
    assert node.admission.refused == {reason: 1}
    assert node.collect().adopt == []
    assert node.frontier == Frontier()


def test_a_sum_is_refused_that_so_many_updates_cannot_add_up_to():
    node = pulling(B.held(5), C.held(4))
    assert hear_sums(node, B, epoch(0, B.held(4), C.held(4), total=8 * SCALAR_MAX)).adopt != []
    for total in (8 * SCALAR_MAX + 1, -8 * SCALAR_MAX - 1, 1 << 62):
        node = pulling(B.held(5), C.held(4))
        with pytest.raises(PeerError, match="coefficients"):
            hear_sums(node, B, epoch(0, B.held(4), C.held(4), total=total))


@pytest.mark.parametrize("signers", [(), (B,)])
def test_a_sum_that_most_have_not_signed_is_not_taken(signers):
    node = pulling(B.held(5), C.held(4))
    out = hear_sums(node, B, FIRST, signers=signers)
    assert (out.adopt, events(out)) == ([], ["epoch not adopted"])
    assert node.admission.refused == {"unsigned sum": 1}


def test_a_running_node_does_not_take_a_sum_of_an_epoch_that_is_not_over_for_it():
    """The critical fault: one sum with all steps of everybody, and the victim never spoke again."""
    node = linked(B, clients=2, refresh_period=PERIOD)
    publish(node)
    hear(node, B, FrontierDigest(b"x" * 32, before=1))
    assert node.frontier == Frontier([A.held(1)])
    out = hear_sums(node, B, epoch(0, A.held(4), B.held(4), total=1), signers=[B])
    assert (out.adopt, node.frontier) == ([], Frontier([A.held(1)]))
    assert measure_of(hear(node, B, B.updates(0))) == Measure(1, 1)


@pytest.mark.parametrize("is_measured", [True, False])
def test_who_has_measured_takes_a_sum_of_the_rounds_that_its_next_one_begins_with(is_measured):
    """With rounds that overlap by one: perhaps nobody has the bundles of the round before any more."""
    node = linked(B, clients=3, refresh_period=1, delay=1)
    hear(node, B, Members((C.member(),)))
    publish(node)
    if is_measured:
        publish(node)
    hear(node, B, FrontierDigest(b"x" * 32, before=1))
    out = hear_sums(node, B, epoch(0, A.held(1), B.held(1), C.held(1)), signers=[B, C])
    assert [closed.epoch for closed in out.adopt] == [0] * is_measured
    assert measure_of(out) == (Measure(2, 1) if is_measured else None)


# Starting from a journal


def test_what_the_journal_keeps_as_a_sum_counts_as_held_and_applied():
    node = started(refresh_period=PERIOD, journal=[B.bundle(4)], kept={"closed": [epoch(0, B.held(4))]})
    assert node.frontier == Frontier([B.held(5)])
    assert node.applied == Frontier([B.held(4)])


def test_our_last_round_is_known_even_from_a_sum():
    kept = {"closed": [epoch(0, A.held(4), B.held(4))]}
    node = started(
        refresh_period=PERIOD, members=[A.member(), B.member()], kept=kept, journal=[B.bundle(4)], incarnation=2
    )
    assert node.step == 3
    node.connected(B.id, B.hello([A.held(4), B.held(5)]), 0.0)
    node.collect()
    out = answer_pull(node, B)
    assert applied_steps(out) == [((3, 3), [])]
    assert measure_of(out) == Measure(4, 1)


# One life after the other


def test_a_sum_is_voted_for_once_and_compacted_when_all_have_voted_for_it():
    node = linked(B, clients=2, steps=40, refresh_period=PERIOD)
    sums, ours = [], []
    for step in range(20):
        hear(node, B, B.updates(step))
        for order in publish(node).orders:
            if isinstance(order, SumEpoch):
                sums.append(epoch(order.epoch, *order.frontier, total=order.epoch))
                node.answer(sums[-1], 0.0)
                out = node.collect()
                assert out.is_durable
                ours += [vote for message in sent(out, B, Votes) for vote in message.votes]
    assert ours == [A.vote(one) for one in sums] != []
    out = hear(node, B, Votes(tuple(B.vote(one) for one in sums)))
    assert [closed.epoch for closed in out.compact] == [one.epoch for one in sums]
    assert set(out.compact[0].certificate) == {A.vote(sums[0]), B.vote(sums[0])}


def closing(**kept):
    """A node that has summed the first epoch. Returns the sum, too, and what came of it."""
    node = started(clients=2, steps=4, refresh_period=PERIOD, **kept)
    node.connected(B.id, B.hello([B.held(4)]), 0.0)
    node.collect()
    answer_pull(node, B, B.updates(*range(4)))
    while node.phase is Phase.MEASURING:
        out = publish(node)
    (order,) = [one for one in out.orders if isinstance(one, SumEpoch)]
    closed = epoch(0, *order.frontier, total=7)
    node.answer(closed, 0.0)
    return node, closed, node.collect()


def test_votes_are_on_the_disk_and_a_later_life_casts_no_others():
    _, closed, out = closing()
    (record,) = out.records
    _, _, out = closing(kept={"records": {record.key: record.value}})
    assert (out.records, sent(out, B, Votes)) == ([], [])
    _, _, out = closing(kept={"records": {}})
    assert sent(out, B, Votes) == [Votes((A.vote(closed),))]


def test_a_vote_of_ours_that_a_neighbour_remembers_is_ours():
    node = linked(B, clients=2, refresh_period=PERIOD)
    vote = A.vote(FIRST)
    out = hear(node, B, Votes((vote,)))
    assert node.seedflood.holdings.certificates.ours_on(0) == vote
    assert len(out.records) == 1


def test_votes_are_passed_on_once_and_forged_ones_are_the_fault_of_who_sends_them():
    node = linked(B, C, clients=3, refresh_period=PERIOD)
    vote = B.vote(FIRST)
    assert sent(hear(node, B, Votes((vote,))), C, Votes) == [Votes((vote,))]
    assert sent(hear(node, C, Votes((vote,))), B, Votes) == []
    with pytest.raises(PeerError, match="a vote of cyd has a wrong signature"):
        node.received(B.id, Votes((C.vote(FIRST)._replace(signature=bytes(64)),)), 0.0)
    with pytest.raises(PeerError, match="signature"):
        node.received(B.id, Votes((C.vote(FIRST)._replace(epoch=1),)), 0.0)


def test_votes_that_come_within_a_moment_are_passed_on_together_and_not_to_those_who_have_told_them():
    node = linked(B, C, D, clients=4, refresh_period=PERIOD)
    tick(node, 2.0)
    told, other = B.vote(FIRST), C.vote(FIRST)
    assert hear(node, B, Votes((told,)), 2.1).send == []
    assert hear(node, C, Votes((told, other)), 2.2).send == []
    at = node.next_tick(2.2)
    assert 2.2 < at <= 2.1 + GATHER_SECONDS
    out = tick(node, at)
    assert {peer.name: sent(out, peer, Votes) for peer in (B, C, D)} == {
        "bob": [Votes((other,))],
        "cyd": [],
        "dan": [Votes((told, other))],
    }
    assert node.next_tick(at) == 4.0


def test_who_votes_twice_is_told_of_and_its_first_vote_stays():
    node = linked(B, C, clients=3, refresh_period=PERIOD)
    hear(node, B, Votes((B.vote(FIRST),)))
    out = hear(node, C, Votes((B.vote(epoch(0)),)))
    assert events(out) == ["a host votes twice"]
    assert sent(out, B, Votes) == [Votes((B.vote(epoch(0)),))]
    assert hear(node, C, Votes((B.vote(epoch(0)),))).send == []


def test_a_replica_is_doubted_if_as_many_others_have_voted_for_another_sum_of_the_same_steps():
    node, closed, _ = closing()
    other = epoch(0, *closed.frontier, total=8)
    assert "replicas differ" in events(hear(node, B, Votes((B.vote(other),))))
    node, closed, _ = closing()
    assert events(hear(node, B, Votes((B.vote(closed),)))) == []


def test_what_comes_beside_a_sum_of_ours_is_put_behind_it_by_a_rebuild():
    """In the coefficients it may stand among the steps of the sum."""
    node, closed, _ = closing()
    (agreed,) = hear(node, B, Votes((B.vote(closed),))).compact
    node.answer(Compacted(agreed), 1.0)
    assert orders(tick(node, 3.0), Rebuild) == []
    hear(node, B, Members((C.member(last_step=3),)))
    assert hear(node, B, C.updates(0)).bundles != []
    assert len(orders(tick(node, 6.0), Rebuild)) == 1
    assert orders(tick(node, 9.0), Rebuild) == []


def holding_a_late_step():
    """A node that holds a step of D that the others had not when they voted. Returns the sum that they voted for."""
    node = linked(B, C, E, steps=12, refresh_period=PERIOD)
    hear(node, B, Members((D.member(last_step=0),)))
    hear(node, B, D.updates(0))
    while node.phase is not Phase.FINISHING:
        for peer, step in zip((B, C, E), 3 * [node.step], strict=True):
            hear(node, peer, peer.updates(step))
        for order in orders(publish(node), SumEpoch):
            node.answer(epoch(order.epoch, *order.frontier), 0.0)
    others = epoch(0, A.held(4), B.held(4), C.held(4), E.held(4), total=5)
    hear(node, C, Votes((B.vote(others), C.vote(others), E.vote(others))))
    return node, others


def test_who_holds_a_step_that_came_too_late_for_the_votes_of_others_takes_their_sum():
    node, others = holding_a_late_step()
    assert [pull for at in (2.0, 4.0) for pull in tick(node, at).pull] == []
    ((peer, _),) = tick(node, 6.0).pull
    donor = next(one for one in (B, C, E) if one.id == peer)
    out = hear_sums(node, donor, others, signers=(B, C, E), now=6.0)
    assert out.adopt == [certified(others, B, C, E)]
    assert node.applied.holds(D.id, 0)
    assert len(orders(tick(node, 8.0), Rebuild)) == 1


def test_who_has_no_sum_sends_only_a_bundle_of_each_origin_again():
    node, _ = holding_a_late_step()
    tick(node, 2.0)
    ((_, frontier),) = tick(node, 6.0).pull
    lacking = [(one.id, Frontier(frontier).gaps(one.id, 11)) for one in (A, B, C, E)]
    assert lacking == [(one.id, [(0, 0)]) for one in (A, B, C, E)]


def test_a_sum_of_what_is_not_over_here_is_not_looked_for():
    node = linked(B, C, window="bounded", refresh_period=PERIOD)
    hear(node, B, B.updates(0))
    hear(node, C, Votes((B.vote(FIRST), C.vote(FIRST))))
    assert [pull for at in range(2, 40, 2) for pull in tick(node, float(at)).pull] == []


def test_no_sum_is_looked_for_while_the_disk_is_full():
    node, _ = holding_a_late_step()
    node.seedflood.note_disk(is_full=True)
    assert [pull for at in range(2, 40, 2) for pull in tick(node, float(at)).pull] == []


def test_a_sum_is_looked_for_at_one_neighbour_after_the_other_and_less_and_less_often():
    node, _ = holding_a_late_step()
    asked = []
    for at in range(2, 62, 2):
        pull = tick(node, float(at)).pull
        asked += [(at, peer) for peer, _ in pull]
        end_pulls(node, B, C, E, now=float(at))
    assert [at for at, _ in asked] == [6, 10, 18, 34]
    assert len({peer for _, peer in asked[:3]}) == 3


def test_who_misses_votes_for_long_asks_for_them():
    node, closed, _ = closing()
    assert [sent(tick(node, at), B, Votes) for at in (2.0, 4.0)] == [[], []]
    assert sent(tick(node, 8.0), B, Votes) == [Votes((A.vote(closed),))]


def test_who_tells_its_own_vote_again_is_told_those_of_others_and_nobody_else_is():
    node = linked(B, C, clients=3, refresh_period=PERIOD)
    first, other = B.vote(FIRST), C.vote(FIRST)
    assert sent(hear(node, B, Votes((first,))), B, Votes) == []
    hear(node, C, Votes((other,)))
    assert sent(hear(node, B, Votes((first,))), B, Votes) == [Votes((first, other))]
    assert sent(hear(node, C, Votes((first, other))), C, Votes) == []
    assert sent(hear(node, C, Votes((first,))), C, Votes) == []


def test_who_tells_its_own_vote_again_and_again_is_answered_no_more_often_than_honest_hosts_ask():
    node = linked(B, C, clients=3, refresh_period=PERIOD)
    first, other = B.vote(FIRST), C.vote(FIRST)
    hear(node, B, Votes((first,)))
    hear(node, C, Votes((other,)))
    answers = [sent(hear(node, B, Votes((first,)), at), B, Votes) for at in (0.0, 0.002, 3.9, 4.0, 4.1)]
    assert [bool(one) for one in answers] == [True, False, False, True, False]


def told_overdue(node, *seconds):
    told = [event for second in seconds for event in tick(node, second).events]
    return [event.facts for event in told if event.name == "an epoch is not compacted"]


def test_the_log_says_once_why_an_epoch_is_not_compacted_if_that_takes_long():
    node, closed, _ = closing()
    facts = {"epoch": 0, "why": "votes are missing", "waiting_for": ["bob"]}
    assert told_overdue(node, 10.0, 10.0 + OVERDUE_SECONDS - 1) == []
    assert told_overdue(node, 10.0 + OVERDUE_SECONDS, 200.0, 300.0) == [facts]
    hear(node, B, Votes((B.vote(closed),)))
    node, closed, _ = closing()
    hear(node, B, Votes((B.vote(closed),)))
    assert told_overdue(node, 10.0, 100.0) == []


def test_an_epoch_of_which_nothing_is_missing_is_not_said_to_lack_updates_while_it_is_summed():
    node = started(clients=2, steps=4, refresh_period=PERIOD)
    node.connected(B.id, B.hello([B.held(4)]), 0.0)
    answer_pull(node, B, B.updates(*range(4)))
    while node.phase is Phase.MEASURING:
        publish(node)
    assert told_overdue(node, 10.0, 10.0 + OVERDUE_SECONDS, 200.0) == []


def test_a_sum_whose_votes_are_not_all_for_it_is_not_taken():
    for wrong in (C.vote(epoch(0)), C.vote(epoch(1, *FIRST.frontier, total=5))):
        node = pulling(B.held(5), C.held(4))
        closed = replace(FIRST, certificate=(B.vote(FIRST), wrong))
        assert hear(node, B, closed).adopt == []
        assert node.admission.refused == {"unsigned sum": 1}


def test_of_a_certificate_only_the_votes_that_were_checked_are_kept():
    """Also of a sum whose votes were all told before, so that a sum brings nothing but itself."""
    for told in ((), (B.vote(FIRST), C.vote(FIRST))):
        node = pulling(B.held(5), C.held(4))
        if told:
            hear(node, B, Votes(told))
        closed = replace(FIRST, certificate=(B.vote(FIRST), C.vote(FIRST), D.vote(FIRST)._replace(serial=1 << 40)))
        (adopted,) = hear(node, B, closed).adopt
        assert {vote.origin for vote in adopted.certificate} == {B.id, C.id}


@pytest.mark.parametrize("window", ["strict", "bounded"])
def test_a_long_pull_does_not_pile_up_until_the_node_may_speak(window, monkeypatch):
    monkeypatch.setattr(holdings, "WAITING_BUNDLES", 100)
    node = started(clients=2, steps=2000, window=window)
    node.seedflood.holdings._settle_at = 100
    goal = [B.held(1000), C.held(1000)]
    node.connected(B.id, B.hello(goal, members=[C.member()]), 0.0)
    applied = []
    for origin in (B, C):
        for step in range(0, 1000, 50):
            node.received(B.id, origin.updates(*range(step, step + 50)), 0.0)
            assert len(node.seedflood.holdings.pending) <= 100 + 2 * (2 * WAITING_ROUNDS + 50)
            applied += windows(node.collect())
    assert node.phase is Phase.JOINING
    assert len({(u.origin, u.step) for one in applied for u in one.updates}) > 1500
    assert node.applied.last(B.id) < 1000 - WAITING_ROUNDS
    outs = [answer_pull(node, B, standing(*goal)), hear(node, B, Pong(0.0))]  # strict windows: B knows of us
    assert node.applied.covers([B.held(999), C.held(999)])  # strict windows: the next round is not applied yet
    assert any(map(measure_of, outs))


def test_a_window_hears_that_an_origin_has_ended():
    node = linked(B, steps=9)
    publish(node)
    assert node.step == 0
    node.ends.prove(Equivocation(B.bundle(0, scalar=7), B.bundle(0, scalar=8)))
    node.ends.follow(0.0)
    node.answer(CutOff(B.id, []), 1.0)
    assert node.step == 1
