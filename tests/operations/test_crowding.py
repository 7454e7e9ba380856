"""A port that is full is told, with who holds most of it, and not again and again."""

from collections import Counter

import pytest

from seedflood.listening import Room
from seedflood.operations import crowding
from seedflood.operations.crowding import Crowding


@pytest.fixture
def told():
    return []


@pytest.fixture
def watch(monkeypatch, told):
    monkeypatch.setattr(crowding, "room", lambda: Room(links=100, http=20))
    return Crowding(7071, lambda event, level, **facts: told.append(facts))


def held(port, **by):
    return {port: Counter({name.replace("_", "."): count for name, count in by.items()})}


def test_a_full_port_is_told_once_with_the_address_that_holds_most(watch, told):
    for _ in range(3):
        watch.look(held(7070, a=15, b=80))
    assert told == [{"port": 7070, "connections": 95, "most_from": "b", "of_these": 80}]


def test_it_is_told_again_after_the_port_was_calm(watch, told):
    for count in (95, 60, 95, 40, 95):
        watch.look(held(7070, a=count))
    assert len(told) == 2
    watch.look({})
    watch.look(held(7070, a=100))
    assert len(told) == 3


def test_http_has_less_room_and_what_has_room_is_not_told(watch, told):
    watch.look(held(7070, a=80) | held(7071, a=17) | held(40_000, a=1))
    assert told == []
    watch.look(held(7071, a=18))
    assert told[0]["port"] == 7071
