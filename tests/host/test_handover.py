"""When a host goes on to the next run: with whom it waits, what it says, and what lets it go."""

from dataclasses import replace

import pytest

from seedflood.config import Settings, Stage
from seedflood.host.handover import Handover, keep_farewell, read_farewells
from seedflood.host.places import FAREWELL_FILE
from seedflood.protocol.frontier import Held
from seedflood.protocol.swarm.messages import Hello, Member

SETTINGS = Settings.model_validate({"run": {"clients": 3, "steps": 40}})
ONLY = Stage(SETTINGS, SETTINGS.node.state, 0, ("only",), ("one",))
FIRST = Stage(SETTINGS, SETTINGS.node.state, 0, ("first", "second"), ("one", "two"))


NOBODY: list[tuple[int | None, str]] = []
GAMMA = [(3, "gamma")]


def waiting(unended: list[tuple[int | None, str]]) -> Handover:
    """Of a host that has ended its run."""
    made = Handover(FIRST, lambda: unended)
    made.ended(100.0)
    return made


def test_a_run_that_nothing_follows_hands_nothing_over():
    assert Handover(FIRST, list).is_wanted
    assert not Handover(ONLY, list).is_wanted


def test_a_host_goes_on_when_all_have_ended():
    ended = waiting(NOBODY)
    assert ended.look()
    assert ended.is_passed
    assert ended.blockers() == ()


def test_a_host_waits_for_one_that_has_not_ended_and_names_it():
    ended = waiting(GAMMA)
    assert not ended.look()
    assert [(one.kind, one.name, one.since) for one in ended.blockers()] == [("course", "gamma", 100.0)]


def test_a_host_that_trains_does_not_go_on_though_all_others_have_ended():
    assert not Handover(FIRST, lambda: NOBODY).look()


def test_it_is_said_now_and_then_who_is_waited_for():
    ended = waiting(GAMMA)
    assert [second for second in range(100, 200, 5) if ended.is_due(float(second))] == [110, 130, 170]


def test_who_waits_for_long_is_told_what_to_do_if_a_host_is_gone_for_good():
    node = SETTINGS.node.model_copy(update={"export": SETTINGS.node.state / "model"})
    stage = replace(FIRST, settings=SETTINGS.model_copy(update={"node": node}))
    ended = Handover(stage, lambda: GAMMA)
    assert ended.advice(1e9) is None
    ended.ended(100.0)
    assert ended.advice(159.0) is None
    assert f'model_path = "{node.export}"' in (ended.advice(160.0) or "")
    run = SETTINGS.run.model_copy(update={"operator": "00" * 32})
    ended = Handover(replace(FIRST, settings=SETTINGS.model_copy(update={"run": run})), lambda: GAMMA)
    ended.ended(100.0)
    assert "roster remove" in (ended.advice(160.0) or "")


def test_a_host_that_lost_what_it_ended_with_says_what_is_to_be_copied():
    node = SETTINGS.node.model_copy(update={"export": SETTINGS.node.state / "model"})
    stage = replace(FIRST, settings=SETTINGS.model_copy(update={"node": node}))
    behind = Handover(stage, lambda: NOBODY, lambda: True)
    assert behind.fault(100.0, 60.0) is None
    assert behind.fault(159.0, 60.0) is None
    fault = behind.fault(160.0, 60.0)
    assert fault is not None
    assert "seedflood-state/model" in str(fault)
    assert "seedflood-state/run-second" in str(fault)
    behind.ended(161.0)
    assert behind.fault(1e9, 60.0) is None


@pytest.mark.parametrize(("unended", "is_forgetful"), [(NOBODY, False), (GAMMA, True)])
def test_who_has_its_journal_or_others_that_train_is_not_behind_however_long_it_takes(unended, is_forgetful):
    behind = Handover(FIRST, lambda: unended, lambda: is_forgetful)
    assert [behind.fault(now, 0.0) for now in (0.0, 1e9)] == [None, None]


def test_the_last_hello_of_a_run_is_kept_for_hosts_that_come_late(tmp_path):
    first = replace(FIRST, key_folder=tmp_path, settings=SETTINGS.model_copy(deep=True))
    first.settings.node.__dict__["state"] = tmp_path
    members = tuple(Member(k.to_bytes(32), f"host{k}", k, signature=bytes(64)) for k in range(1, 300))
    last = Hello(bytes(32), b"base", members[0], members[1:], (Held(7, 9),))
    keep_farewell(first, last)
    assert read_farewells(replace(first, position=1)) == {"first": last}
    assert read_farewells(first) == {}


@pytest.mark.parametrize("damaged", [b"", b"\0\0\0\1", b"\0\0\0\7garbage", b"\xff"])
def test_a_kept_hello_that_is_damaged_is_left_out(tmp_path, damaged):
    (tmp_path / FAREWELL_FILE).write_bytes(damaged)
    assert read_farewells(replace(FIRST, key_folder=tmp_path, position=1)) == {}
