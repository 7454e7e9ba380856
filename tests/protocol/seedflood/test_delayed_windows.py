"""With `delay = D` a round is measured while the windows of the D rounds before it are open; they close in order."""

from nodes import applied_steps, hear, linked, measure_of, publish, started, tick, windows
from origins import A, B, C, D

from seedflood.protocol.seedflood.outputs import Pulled
from seedflood.protocol.seedflood.phase import Phase
from seedflood.protocol.swarm.liveness import SUSPICION_SECONDS_MAX
from seedflood.protocol.swarm.messages import Members


def measured(out):
    order = measure_of(out)
    return None if order is None else order.step


def test_the_next_rounds_are_measured_before_anything_of_others_has_come():
    node = linked(B, delay=2)
    assert [measured(publish(node)) for _ in range(3)] == [1, 2, None]
    assert node.phase is Phase.COLLECTING


def test_a_window_closes_when_it_is_in_the_way_of_the_next_round_and_never_before():
    node = linked(B, delay=1)
    assert applied_steps(hear(node, B, B.updates(0))) == []
    assert applied_steps(publish(node)) == []  # round 1 is measured on nothing, whatever has come
    assert applied_steps(hear(node, B, B.updates(1))) == []
    out = publish(node)
    assert (applied_steps(out), measured(out)) == ([((0, 0), [0, 0])], 2)


def test_what_has_come_of_later_rounds_waits_for_its_own_window():
    node = linked(B, delay=1)
    publish(node)
    publish(node)
    out = hear(node, B, B.updates(0, 1, 2))
    assert (applied_steps(out), measured(out)) == ([((0, 0), [0, 0])], 2)
    out = publish(node)
    assert (applied_steps(out), measured(out)) == ([((1, 1), [1, 1])], 3)


def test_all_windows_close_at_the_end_of_the_run():
    node = linked(B, steps=3, delay=2)
    for _ in range(3):
        publish(node)
    out = hear(node, B, B.updates(0, 1, 2))
    assert [steps for steps, _ in applied_steps(out)] == [(0, 0), (1, 1), (2, 2)]
    assert node.phase is Phase.FINISHING


def test_a_run_shorter_than_its_delay_ends():
    node = linked(B, steps=1, delay=5)
    publish(node)
    assert applied_steps(hear(node, B, B.updates(0))) == [((0, 0), [0, 0])]
    assert node.phase is Phase.FINISHING


def test_a_restart_opens_the_windows_again_that_may_not_have_been_applied():
    journal = [A.bundle(step) for step in range(5)] + [B.bundle(step) for step in range(4)]
    node = started(journal=journal, members=[A.member(), B.member()], incarnation=2, delay=2)
    node.connected(B.id, B.hello([B.held(4)]), 0.0)
    node.collect()
    node.answer(Pulled(B.id), 0.0)
    out = node.collect()
    assert applied_steps(out) == [((2, 1), [0, 0, 1, 1]), ((2, 2), [2, 2])]
    assert measured(out) == 5
    assert [window.first for window in node.seedflood.windows._open] == [3, 4]


def test_whoever_joins_while_no_window_can_have_closed_begins_with_the_others():
    node = started(clients=3, delay=2)
    hello = B.hello([B.held(2), C.held(2)], members=[C.member()])
    node.connected(B.id, hello, 0.0)
    node.collect()
    node.received(B.id, B.updates(0, 1), 0.0)
    node.received(B.id, C.updates(0, 1), 0.0)
    node.answer(Pulled(B.id), 0.0)
    assert measured(node.collect()) == 0


def test_whoever_joins_later_keeps_the_windows_open_that_the_others_keep_open():
    node = started(clients=2, window="bounded", delay=2)
    node.connected(B.id, B.hello([B.held(10)]), 0.0)
    node.collect()
    node.received(B.id, B.updates(*range(10)), 0.0)
    node.answer(Pulled(B.id), 0.0)
    out = node.collect()
    assert measured(out) == 9
    assert sorted(step for _, steps in applied_steps(out) for step in steps) == list(range(7))
    assert [window.first for window in node.seedflood.windows._open] == [7, 8]


def test_who_was_left_behind_closes_what_is_open_and_goes_on_where_the_others_are():
    node = linked(B, C, window="bounded", delay=1)
    publish(node)
    hear(node, B, B.updates(*range(9)))
    hear(node, C, C.updates(*range(9)))
    out = publish(node)
    assert [window.steps for window in windows(out)] == [(0, 0), (1, 1), (7, 6)]
    assert measured(out) == 8


def test_of_several_windows_the_oldest_decides_when_time_closes_one():
    node = linked(B, window="bounded", delay=1)
    publish(node, now=0.49)
    publish(node, now=0.5)
    tick(node, 0.5)
    at = node.next_tick(0.5)
    assert 0.5 < at < 1.1
    out = tick(node, at)
    assert ([window.steps for window in windows(out)], measured(out)) == ([(0, 0)], 2)


def test_an_origin_is_waited_for_again_after_its_word_on_an_earlier_round():
    node = linked(B, delay=2)
    publish(node)
    publish(node)
    hear(node, B, B.updates(0), now=5.0)
    assert node.view(5.0).window.waiting == ()
    publish(node, now=5.0)
    tick(node, 100.0)
    assert node.view(100.0).members[1].status == "silent" or node.view(100.0).members[0].status == "silent"


def test_whoever_is_heard_of_while_a_window_is_open_and_never_speaks_is_suspected_one_day():
    node = linked(B, window="bounded")
    publish(node)
    hear(node, B, Members((C.member(neighbours=[B], hop_milliseconds=8192), B.member(1, 1, hop_milliseconds=8192))))
    hear(node, B, Members((D.member(neighbours=[C]),)))
    hear(node, B, B.updates(0), now=1.0)
    assert node.phase is Phase.COLLECTING
    tick(node, SUSPICION_SECONDS_MAX - 1.0)
    assert node.phase is Phase.COLLECTING
    tick(node, SUSPICION_SECONDS_MAX + 1.0)
    assert node.step == 1
    publish(node, SUSPICION_SECONDS_MAX + 1.0)
    hear(node, B, B.updates(1), now=SUSPICION_SECONDS_MAX + 1.0)
    assert node.step == 2  # nobody waits for them again


def test_whoever_speaks_of_less_than_is_waited_for_is_suspected_all_the_same():
    node = linked(B, window="strict")
    hear(node, B, B.updates(0))
    publish(node)
    publish(node)
    hear(node, B, B.updates(0), now=1.0)
    hear(node, B, B.updates(3), now=1.0)  # and nothing of step 1
    tick(node, 100.0)
    assert B.id in node.seedflood.windows._liveness.suspects
