"""When a host goes on to the next run: with whom it waits, what it says, and what lets it go."""

from dataclasses import replace

import pytest

from seedflood.config import Settings, Stage, single
from seedflood.host.handover import Handover
from seedflood.protocol.swarm.messages import Member

SETTINGS = Settings.model_validate({"run": {"clients": 3, "steps": 40}})
FIRST = Stage(SETTINGS, SETTINGS.node.state, 0, ("first", "second"), ("one", "two"))


def word(name: str, last_step: int | None = 39) -> Member:
    return replace(Member(name.encode() * 8, name, 1), first_step=0, last_step=last_step)


def waiting(words: list[Member]) -> Handover:
    """Of a host that has ended its run."""
    made = Handover(FIRST, lambda: words)
    made.ended(100.0)
    return made


ALL = [word("abcd"), word("efgh"), word("ijkl")]


def test_a_run_that_nothing_follows_hands_nothing_over():
    assert Handover(FIRST, list).is_wanted
    assert not Handover(single(SETTINGS), list).is_wanted


def test_a_host_goes_on_when_all_have_ended():
    ended = waiting(ALL)
    assert ended.look()
    assert ended.is_passed
    assert ended.blockers() == ()


@pytest.mark.parametrize("last_step", [None, 38, -1])
def test_a_host_waits_for_one_that_has_not_ended_whether_it_trains_or_has_left(last_step):
    ended = waiting([*ALL[:2], word("ijkl", last_step)])
    assert not ended.look()
    assert [(one.kind, one.name, one.since) for one in ended.blockers()] == [("course", "ijkl", 100.0)]


def test_a_host_waits_for_hosts_that_never_came():
    ended = waiting(ALL[:1])
    assert not ended.look()
    assert [one.name for one in ended.blockers()] == ["2 more hosts"]


def test_a_host_that_trains_does_not_go_on_though_all_others_have_ended():
    assert not Handover(FIRST, lambda: ALL).look()


def test_a_host_of_the_next_run_proves_that_all_have_ended():
    ended = waiting(ALL[:1])
    ended.met("second", 101.0)
    assert ended.look()


def test_a_host_that_was_removed_is_not_waited_for():
    ended = Handover(FIRST, lambda: ALL[:2], lambda: 1)
    ended.ended(100.0)
    assert ended.look()
    assert not waiting(ALL[:2]).look()


def test_a_host_of_another_run_proves_nothing():
    ended = waiting(ALL[:1])
    ended.met("third", 101.0)
    assert not ended.look()


def test_it_is_said_now_and_then_who_is_waited_for():
    ended = waiting(ALL[:1])
    assert [second for second in range(100, 200, 5) if ended.is_due(float(second))] == [110, 130, 170]


def test_who_waits_for_long_is_told_what_to_do_if_a_host_is_gone_for_good():
    node = SETTINGS.node.model_copy(update={"export": SETTINGS.node.state / "model"})
    stage = replace(FIRST, settings=SETTINGS.model_copy(update={"node": node}))
    ended = Handover(stage, lambda: ALL[:1])
    assert ended.advice(1e9) is None
    ended.ended(100.0)
    assert ended.advice(159.0) is None
    assert f'model_path = "{node.export}"' in (ended.advice(160.0) or "")


def test_a_host_that_cannot_end_its_run_any_more_says_what_is_to_be_copied():
    node = SETTINGS.node.model_copy(update={"export": SETTINGS.node.state / "model"})
    behind = Handover(replace(FIRST, settings=SETTINGS.model_copy(update={"node": node})), list)
    assert behind.fault(1e9, 60.0) is None
    behind.met("second", 100.0)
    assert behind.fault(159.0, 60.0) is None
    fault = behind.fault(160.0, 60.0)
    assert fault is not None
    assert "seedflood-state/model" in str(fault)
    assert "seedflood-state/run-second" in str(fault)
    behind.ended(161.0)
    assert behind.fault(1e9, 60.0) is None
