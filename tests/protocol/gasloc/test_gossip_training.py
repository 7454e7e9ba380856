"""Nodes train together, and nothing goes wrong."""

from fractions import Fraction
from math import inf
from statistics import mean

import pytest
from gossip import World

from seedflood.protocol.gasloc.matching import weight
from seedflood.protocol.gasloc.messages import Progress, decode, encode
from seedflood.protocol.gasloc.orders import Opened
from seedflood.protocol.gasloc.rules import Bounds
from seedflood.protocol.origin import STEP_MAX
from seedflood.protocol.swarm.messages import Opaque
from seedflood.protocol.swarm.rules import Patience


def spread(world):
    values = [host.values[0] for host in world.hosts]
    return max(values) - min(values)


def make_world(hosts=4, shape="ring", *, how=None, link=None, **rules):
    """how: of each host, in turn."""
    world = World(clients=hosts, **rules)
    for k in range(hosts):
        world.add(**(how or [{}])[k % len(how or [{}])])
    getattr(world, shape)(**(link or {}))
    return world


@pytest.mark.parametrize("matching", ["one", "two", "full"])
@pytest.mark.parametrize("delay_steps", [0, 2, 4])
def test_hosts_come_closer_to_each_other_and_their_mean_stays(matching, delay_steps):
    world = make_world(steps=80, matching=matching, delay_steps=delay_steps)
    world.finish()
    assert world.total() == world.initial
    assert spread(world) < Fraction(1, 2)
    assert world.reasons() == set()


@pytest.mark.parametrize("start_seconds", [59.0, 60.0, 61.0])
def test_hosts_that_have_waited_long_for_another_one_do_not_take_each_other_for_silent(start_seconds):
    """They have said nothing of rounds until then."""
    world = World(clients=4, steps=16, patience=Patience(start_seconds=start_seconds, linger_seconds=30.0))
    for _ in range(3):
        world.add()
    world.complete()
    world.finish()
    for host in world.hosts:
        assert len(host.mixes) == 4
    mixed = [{round_ for round_, pulls in host.mixes if pulls} for host in world.hosts]
    assert set.union(*mixed) == {0, 1, 2, 3}, "in each round some two are matched, and exchange"


def test_every_host_does_all_local_steps():
    world = make_world(steps=40, how=[{"drift": Fraction(1)}], delay_steps=3)
    world.finish()
    assert {host.drifted for host in world.hosts} == {40}
    assert world.total() == world.initial + 4 * 40


def test_on_a_complete_graph_a_full_exchange_makes_the_mean():
    world = make_world(5, "complete", steps=4, matching="full")
    world.finish()
    assert {host.values[0] for host in world.hosts} == {Fraction(2)}


def test_what_is_mixed_is_what_the_laplacian_of_the_pairs_says():
    """A dense reference: theta = phi - L phi + gamma (phi - phi_prev), by the pairs that were mixed."""
    world = make_world(6, steps=24, matching="two", gamma=0.25, how=[{"drift": Fraction(1, 8)}])
    world.finish()
    rounds = [dict(host.mixes) for host in world.hosts]
    index = {host.origin: k for k, host in enumerate(world.hosts)}
    values, previous = [Fraction(k) for k in range(6)], None
    for round_ in range(6):
        phi = [one + 4 * Fraction(1, 8) for one in values]
        pull = [
            sum((phi[k] - phi[index[other]]) * Fraction(weight(2)).limit_denominator(100) for other in mixed[round_])
            for k, mixed in enumerate(rounds)
        ]
        values = [
            one - back + Fraction(1, 4) * (one - before)
            for one, back, before in zip(phi, pull, previous or phi, strict=True)
        ]
        previous = phi
    assert [host.compute.replica.before_closing[0] for host in world.hosts] == values


def test_pairs_are_what_both_of_their_ends_mix():
    world = make_world(7, steps=80)
    world.finish()
    pairs = {(round_, host.origin, other) for host in world.hosts for round_, others in host.mixes for other in others}
    assert pairs
    assert {(round_, b, a) for round_, a, b in pairs} == pairs


def test_hosts_with_other_numbers_of_local_steps_share_rounds():
    how = [{"local_steps": 4, "step_seconds": 0.25}, {"local_steps": 1, "step_seconds": 1.0}]
    world = make_world(how=how, steps=80)
    world.finish()
    assert world.reasons() == set()
    assert world.total() == world.initial
    assert mean(len(others) for host in world.hosts for _, others in host.mixes) == 1


def test_a_host_alone_trains_without_waiting():
    world = make_world(1, steps=40, how=[{"drift": Fraction(1)}])
    world.finish()
    assert world.hosts[0].values[0] == 40
    assert world.hosts[0].finished_at < 12


def test_a_host_that_finds_nobody_begins_alone_after_some_time():
    world = World(clients=2, steps=8)
    host = world.add()
    world.run(10)
    assert [one.kind for one in host.node.blockers(world.now)] == ["no link"]
    assert not host.node.is_ready
    world.run(5)
    assert [event.facts["why"] for event in host.named("waiting")] == [["no link"]]
    world.run(85)
    assert host.finished_at is not None


def test_a_slower_host_is_left_out_now_and_then_and_nobody_waits_beyond_the_bound():
    how = [{}, {}, {}, {"step_seconds": 2.0}]
    world = make_world(how=how, steps=160)
    world.finish()
    slow = world.hosts[3]
    fast_seconds = 40 * (4 * 0.25)
    assert max(host.finished_at for host in world.hosts[:3]) < 2 * fast_seconds
    assert slow.drifted == 0
    assert sum(len(others) for _, others in slow.mixes) >= 3
    assert slow.named("behind the others")
    assert world.total() == world.initial
    assert all(seconds <= allowed for host in world.hosts for seconds, allowed in host.waits)


def test_rounds_of_one_quick_step_are_exchanged_one_by_one():
    """Statements tell of rounds every two seconds only: far behind, and no reason to leave a host out."""
    how, bounds = [{"step_seconds": 0.02, "checkpoint_rounds": 50}], Bounds(slow_share=inf)
    world = make_world(6, steps=300, local_steps=1, how=how, bounds=bounds)
    world.finish()
    skipped = sum(len(host.named("exchange skipped")) for host in world.hosts)
    mixed = sum(len(others) for host in world.hosts for _, others in host.mixes)
    assert mixed > 0.97 * 8 / 9 * 6 * 300  # so many find a partner on a ring of six
    assert skipped < 0.02 * mixed
    assert world.total() == world.initial


def test_a_host_that_hangs_is_matched_with_nobody_after_a_while():
    world = make_world(4, steps=400)
    world.run(20)
    hung = world.hosts[1]
    hung.compute.put = lambda order: None
    world.run(100)
    before = len([event for host in world.hosts for event in host.named("exchange skipped")])
    world.run(30)
    assert len([event for host in world.hosts for event in host.named("exchange skipped")]) == before
    assert hung.node.phase == "exchanging"


def test_a_slightly_slower_host_is_waited_for():
    world = make_world(how=[{}, {"step_seconds": 0.4}], steps=80)
    world.finish()
    assert world.reasons() == set()


def test_a_slow_link_exchanges_less_often():
    bounds = Bounds(throughput_min=1e4)
    world = World(steps=1200, clients=3, bounds=bounds)
    for _ in range(3):
        world.add(padding=100_000)
    a, b, c = world.hosts
    world.plan(a, b)
    world.plan(b, c)
    world.plan(a, c, rate=2.5e4)
    world.finish(20_000)
    assert max(host.gasloc.pace.slow.get(other.origin, 0) for host, other in ((a, c), (c, a))) >= 2
    of_slow = sum(others == (c.origin,) for _, others in a.mixes)
    of_fast = sum(others == (b.origin,) for _, others in a.mixes)
    assert 0 < of_slow < of_fast / 3
    assert a.node.view(world.now).figures["slow_links"] == 1
    assert world.total() == world.initial


def test_a_host_that_joins_late_takes_a_copy_of_a_neighbour():
    world = make_world(3, steps=200, how=[{"padding": 300_000}])
    world.run(30)
    late = world.add(1000, padding=300_000)
    world.plan(late, world.hosts[0], rate=1e5)
    world.run(1.0)
    view = late.node.view(world.now)
    assert (view.phase, view.is_ready, view.blockers[0].kind) == ("joining", False, "donor")
    assert view.catching_up.donor == world.hosts[0].origin
    assert 0 < view.catching_up.held < view.catching_up.wanted
    world.finish()
    assert late.adopted == 1
    assert late.mixes
    assert late.mixes[0][0] > 20
    assert late.values[0] < 10


def test_a_host_that_dies_after_it_took_a_copy_has_it():
    world = make_world(3, steps=200)
    world.run(30)
    late = world.add(1000, checkpoint_rounds=20)
    world.plan(late, world.hosts[0])
    world.run(10, until=lambda: late.adopted)
    world.run(0.3)
    late.kill()
    world.revive(late)
    world.finish()
    assert late.adopted == 1
    assert late.values[0] < 10


def test_a_copy_goes_on_where_the_link_broke():
    world = make_world(2, steps=200, how=[{"padding": 400_000}], link={"rate": 1e7})
    world.run(30)
    donor, late = world.hosts[0], world.add(1000)
    world.plan(late, donor, rate=1e5)
    world.run(2.0)
    held = late.node.view(world.now).catching_up.held
    world.cut(late, donor)
    sent = donor.gasloc.carrier.bytes_sent
    world.run(6.0)
    assert late.adopted == 1
    assert held > 100_000
    again = donor.gasloc.carrier.bytes_sent - sent - 400_000 * len([1 for at, _ in donor.mixes if at > 20])
    assert again < 400_000 - held + 100_000


def test_a_donor_that_has_gone_is_replaced_by_another():
    world = make_world(2, steps=200, how=[{"padding": 400_000}])
    world.run(30)
    late = world.add(1000)
    for donor in world.hosts[:2]:
        world.plan(late, donor, rate=1e5)
    world.run(2.0)
    first = late.gasloc.fetch.donor
    world.by_origin(first).kill()
    world.run(60.0)
    assert late.adopted == 1
    assert late.gasloc.fetch.donor is None


def forget_replica(host):
    host.disk.checkpoints, host.disk.records = [], {}


def test_when_nobody_is_left_who_has_a_copy_hosts_begin_with_what_they_have():
    """They know that the run was far, from the last word of a host that is gone for good."""
    world = make_world(3, "complete", steps=200)
    world.run(40)
    assert world.hosts[0].gasloc.round > 5
    for host in world.hosts:
        host.kill()
    survivors = world.hosts[1:]
    for host in survivors:
        forget_replica(host)
        world.revive(host)
    world.run(15)
    assert [one.kind for host in survivors for one in host.node.blockers(world.now)] == ["donor", "donor"]
    world.run(300)
    assert all(host.finished_at for host in survivors)
    warned = [len(host.named("nobody has a copy: begins with its own parameters")) for host in survivors]
    assert sum(warned) >= 1
    assert sum(warned) + sum(host.adopted for host in survivors) == 2


def test_who_joins_behind_one_that_joins_waits_for_the_copy_of_that_one():
    """It takes longer than hosts wait where nobody has a copy."""
    world = make_world(2, steps=2000, how=[{"padding": 400_000}])
    world.run(30)
    first, second = (world.add(1000, padding=400_000) for _ in range(2))
    world.plan(first, world.hosts[0], rate=1e4)
    world.plan(second, first)
    world.run(39)
    assert (first.adopted, second.adopted) == (0, 0)
    assert second.node.phase == "joining"
    world.run(60)
    assert (first.adopted, second.adopted) == (1, 1)


def test_without_a_link_nobody_knows_that_no_copy_is_left():
    world = make_world(2, steps=2000)
    world.run(40)
    host, other = world.hosts
    for one in (host, other):
        one.kill()
    forget_replica(host)
    world.revive(host)
    world.run(200)
    assert [one.kind for one in host.node.blockers(world.now)] == ["no link"]
    world.revive(other)
    world.run(20)
    assert host.adopted == 1


def test_the_first_round_waits_for_hosts_that_start_a_little_later():
    world = World(clients=3, steps=40)
    for _ in range(3):
        world.add()
        world.ring()
        world.run(6)
    world.finish()
    assert {host.encoded[0][0] for host in world.hosts} == {0}
    assert world.reasons() == set()
    assert [len(host.mixes) for host in world.hosts] == [10] * 3


def test_the_first_round_waits_for_hosts_that_never_come_no_longer_than_the_start_may_take():
    world = World(clients=3, steps=40)
    world.add()
    world.add()
    world.ring()
    world.run(20.5)
    assert [host.node.phase for host in world.hosts] == ["training", "training"]
    assert all(host.encoded == [] for host in world.hosts)


def test_whoever_joins_right_after_the_start_begins_with_the_base_model():
    world = World(clients=2, steps=40, fresh_rounds=2)
    world.add()
    world.run(21.5)
    late = world.add()
    world.plan(*world.hosts)
    world.finish()
    assert late.adopted == 0
    assert world.total() == world.initial


def test_a_host_that_returns_goes_on_from_its_checkpoint():
    world = make_world(3, steps=200, how=[{"drift": Fraction(1), "checkpoint_rounds": 3}])
    world.run(21.5)
    host = world.hosts[1]
    host.kill()
    world.run(3)
    world.revive(host)
    world.finish()
    assert host.adopted == 0
    lost = world.initial + sum(other.drifted for other in world.hosts) - world.total()
    assert 0 < lost <= 3 * 4
    again = [round_ for round_, _ in host.mixes]
    assert again == sorted(set(again))


def make_run_with_a_stale_host(**changes):
    """Each local step of the others, but not of the last host, adds one to each value."""
    world = make_world(3, steps=400, how=[{"drift": Fraction(1)}, {"drift": Fraction(1)}, {}], **changes)
    world.run(5)
    return world, world.hosts[2]


def test_a_host_that_was_down_for_most_of_the_run_takes_a_copy_in_place_of_its_checkpoint():
    world, host = make_run_with_a_stale_host()
    host.kill()
    world.run(60)
    reached = min(other.gasloc.round for other in world.hosts[:2])
    assert reached > 40
    world.revive(host)
    world.run(5)
    assert host.adopted == 1
    assert min(other.values[0] for other in world.hosts) > 4 * reached * 0.9
    world.finish()
    assert host.adopted == 1


def test_a_host_that_was_suspended_for_most_of_the_run_takes_a_copy_and_is_met_again():
    world, host = make_run_with_a_stale_host()
    put, waiting = host.compute.put, []
    host.compute.put = waiting.append
    world.run(75)
    reached = min(other.gasloc.round for other in world.hosts[:2])
    assert reached > 40
    host.compute.put = put
    for order in waiting:
        put(order)
    world.run(5)
    assert host.adopted == 1
    assert min(other.values[0] for other in world.hosts) > 4 * reached * 0.9
    world.finish()
    assert host.adopted == 1
    assert any(round_ > reached for round_, _ in host.mixes)


def test_a_stale_host_to_which_nobody_gives_a_copy_goes_on_with_what_it_has():
    world, host = make_run_with_a_stale_host()
    host.kill()
    world.run(60)
    for other in world.hosts[:2]:
        other.compute.opencopy = lambda order, other=other: other.answer(Opened(order.peer, None, 0))
    world.revive(host)
    world.run(25)
    assert host.named("nobody has a copy: begins with its own parameters")
    world.finish()
    assert host.adopted == 0
    assert host.mixes[-1][0] > 60


def test_a_host_that_leaves_is_matched_with_nobody_any_more():
    world = make_world(4, steps=200)
    world.run(20)
    host = world.hosts[2]
    host.do(host.node.leave)
    left_at = world.now
    world.run(5)
    assert host.node.phase == "left"
    assert not host.node.is_ready
    assert host.disk.checkpoints[-1].round >= 15
    rounds = {round_ for other in world.hosts for round_, others in other.mixes if host.origin in others}
    world.run(300)
    assert {round_ for other in world.hosts for round_, others in other.mixes if host.origin in others} == rounds
    assert all(other.finished_at and other.finished_at > left_at for other in world.hosts if other is not host)
    assert world.total() == world.initial


def test_what_is_stated_at_the_end_is_that_it_is_over():
    world = make_world(2, steps=40)
    world.finish()
    for host in world.hosts:
        for member in host.node.membership.all():
            assert (member.first_step, member.last_step) == (0, 39)
        assert host.node.step == 40
        assert host.node.phase == "finished"


def test_until_it_begins_a_host_states_no_step():
    world = World(clients=2)
    host = world.add()
    assert host.node.membership.get(host.origin).first_step == STEP_MAX
    assert [one.kind for one in host.node.blockers(0.0)] == ["own replica"]


def test_a_view_tells_what_is_going_on():
    world = make_world(2, steps=400, how=[{"padding": 1000}])
    world.run(30)
    view = world.hosts[0].node.view(world.now)
    assert view.phase in ("training", "exchanging")
    assert view.is_ready
    assert view.step == 4 * view.figures["round"] > 0
    marks = {member.origin: member.mark for member in view.members}
    assert marks[world.hosts[0].origin] == view.step
    assert abs(marks[world.hosts[1].origin] - view.step) <= 4
    assert view.figures["exchanges"] > 10
    assert view.figures["bytes_received"] > 10 * 1000
    assert 0 < view.figures["exchange_seconds"] < 1
    assert view.figures["local_seconds"] == pytest.approx(1.0, abs=0.01)
    assert view.catching_up is None


def test_messages_that_move_a_transfer_on_are_counted():
    world = make_world(2, steps=4, how=[{"padding": 100_000}])
    host, heard = world.hosts[0], []

    def watch(sender, receiver, message):
        if receiver is host and isinstance(message, Opaque):
            heard.append(type(decode(message.data)).__name__)
        return message

    world.change = watch
    world.finish()
    assert heard.count("Chunk") >= 8
    assert len(heard) - host.node.news < 7


def test_who_exchanges_after_every_step_costs_a_neighbour_next_to_nothing():
    """A neighbour may send 500 messages in a second that move nothing on (`transport/budget`), and quick rounds have
    more than that."""
    how = [{"step_seconds": 0.01, "checkpoint_rounds": 50}]
    link = {"delay": 0.0001}
    world = make_world(2, steps=400, local_steps=1, how=how, link=link, bounds=Bounds(slow_share=inf))
    host, heard = world.hosts[0], []
    world.change = lambda sender, receiver, message: heard.append(receiver) or message
    world.finish()
    of_host = sum(receiver is host for receiver in heard)
    assert of_host > 4 * 400
    assert of_host - host.node.news < 0.15 * 400


def test_who_says_the_same_rounds_again_and_again_is_charged_for_it():
    world = make_world(2, steps=400)
    world.run(30, until=lambda: world.hosts[0].gasloc.round == 3)
    host, liar = world.hosts
    for round_ in (1, 2, 1, 2, 3, 2, 3):
        host.node.received(liar.origin, Opaque(encode(Progress(round_, True, True))), world.now)
    news = host.node.news
    for round_ in (1, 2, 1, 2, 3, 2, 3):
        host.node.received(liar.origin, Opaque(encode(Progress(round_, True, True))), world.now)
    assert host.node.news == news


def test_while_a_partner_is_waited_for_it_is_named():
    world = make_world(2, steps=400, how=[{}, {"step_seconds": 0.4}])
    world.run(
        200, until=lambda: world.hosts[0].node.phase == "exchanging" and not world.hosts[0].gasloc.course.is_computing
    )
    (blocker,) = world.hosts[0].node.blockers(world.now)
    assert (blocker.kind, blocker.name, blocker.since) == ("partner", "h1", world.now)


def test_what_became_due_before_the_shell_asks_is_due_at_once():
    """A clock goes on between the last event and the question when to call again."""
    world = make_world(2, steps=8, how=[{"padding": 100_000}])
    _, other = world.hosts
    world.run(300, until=lambda: other.gasloc.carrier._receiving)
    (receiving,) = other.gasloc.carrier._receiving.values()
    receiving.ask_at = world.now + 3.0  # the disk was full
    assert other.gasloc.wake_at(world.now + 3.001) == world.now + 3.0
