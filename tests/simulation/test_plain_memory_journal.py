"""A disk in memory loses what a real one may lose of any algorithm, and nothing that it promised to keep."""

import random

import pytest

from seedflood.protocol.swarm.messages import Member
from seedflood.protocol.swarm.outputs import Record
from simulation.journal import MemoryJournal


class Owner:
    def writing(self):
        pass


@pytest.fixture
def journal():
    return MemoryJournal(Owner())


def record(name, value):
    return Record(name.encode(), value.encode())


def left_by(fault):
    """What may be found of two groups, the second of which is open."""
    found = set()
    for seed in range(30):
        journal = MemoryJournal(Owner())
        journal.keep([], [record("a", "old"), record("b", "old")], durable=True)
        journal.keep([Member(b"m" * 32, "m", 1)], [record("a", "new")], durable=False)
        journal.commit()
        journal.keep([], [record("b", "new")], durable=False)
        assert journal.is_open(b"a")
        fault(journal, random.Random(seed))
        found.add((len(journal.members()), *(journal.records()[key].decode() for key in (b"a", b"b"))))
    return found


def test_a_crash_takes_the_end_of_the_open_group_alone():
    assert left_by(MemoryJournal.crash) == {(1, "new", "old"), (1, "new", "new")}


def test_a_power_failure_takes_the_end_of_what_was_committed_and_brings_back_what_was_there_before():
    assert left_by(MemoryJournal.tear) == {(0, "old", "old"), (1, "old", "old"), (1, "new", "old"), (1, "new", "new")}


def test_what_was_replaced_comes_back_in_its_place(journal):
    journal.keep([], [record("a", "old"), record("b", "old")], durable=True)
    journal.keep([], [record("a", "new")], durable=False)
    assert list(journal.records()) == [b"b", b"a"]
    journal._lose(0)
    assert journal.records() == {b"a": b"old", b"b": b"old"}
    assert list(journal.records()) == [b"a", b"b"]


def test_something_durable_keeps_all_that_was_before_it(journal):
    journal.keep([], [record("a", "first")], durable=False)
    journal.keep([], [record("b", "first")], durable=True)
    assert not journal.is_open(b"a")
    assert journal.tear(random.Random(1)) == 0
    assert set(journal.records()) == {b"a", b"b"}


def test_every_write_is_an_instant_at_which_the_process_may_end(journal):
    instants = []
    journal._owner.writing = lambda: instants.append("write")
    journal.keep([], [record("a", "first")], durable=False)
    journal.commit()
    journal.commit()
    assert instants == ["write", "write"]
