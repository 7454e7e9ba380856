"""What operators see of how hosts agree: one word of each host, which an epoch takes over from the one before."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from seedflood.host.seedflood.contradictions import CONTRADICTS, COUNTS_AGAIN, Contradictions
from seedflood.protocol.view import MemberView
from seedflood.training.seedflood.reputation import FEWEST, Reputation, Reputations
from strangers import VIEW

NAMES = {1: "ada", 2: "bob", 3: "mallory"}


def record(reputation, *, steps=FEWEST, contradicts=False):
    return Reputation(steps, reputation * 10, 100, contradicts)


HONEST = {1: record(2), 2: record(1)}
LYING = Reputations({**HONEST, 3: record(-3, contradicts=True)})
AGREEING = Reputations({**HONEST, 3: record(1)})
BEGUN = Reputations({origin: record(1, steps=FEWEST - 1) for origin in NAMES})
"""An epoch of few steps."""


class Host:
    """What it tells, and what it shows."""

    def __init__(self):
        self.told = []
        hub = SimpleNamespace(log=lambda event, level, **facts: self.told.append((event, level, facts)))
        self.contradictions = Contradictions(hub, NAMES.__getitem__)

    def hear(self, *reputations):
        for step, one in enumerate(reputations, FEWEST):
            self.contradictions.update(step, one)

    def shown(self, **statuses):
        members = tuple(
            MemberView(origin, name, statuses.get(name, "linked"), 0, 0, None, 1, None)
            for origin, name in NAMES.items()
        )
        view = self.contradictions.add_to(replace(VIEW, members=members))
        return {member.name: (member.reputation, member.contradicts) for member in view.members}


@pytest.fixture
def host():
    return Host()


def test_who_contradicts_is_shown_and_all_others_with_their_reputations(host):
    host.hear(LYING)
    assert host.shown() == {"ada": (2.0, False), "bob": (1.0, False), "mallory": (-3.0, True)}


def test_it_is_told_once_when_a_host_begins_to_contradict_and_once_when_it_counts_again(host):
    host.hear(AGREEING, LYING, LYING, AGREEING, AGREEING)
    facts = {"member": "mallory", "origin": "0000000000000003"}
    assert host.told == [
        (CONTRADICTS, "warning", facts | {"step": FEWEST + 1, "reputation": -3.0}),
        (COUNTS_AGAIN, "info", facts | {"step": FEWEST + 3, "reputation": 1.0}),
    ]


def test_the_word_of_the_last_epoch_stands_until_a_new_one_has_some_steps(host):
    host.hear(LYING, Reputations(), BEGUN)
    assert host.shown()["mallory"] == (-3.0, True)
    assert len(host.told) == 1
    host.hear(AGREEING)
    assert host.shown()["mallory"] == (1.0, False)


def test_nothing_is_shown_before_some_steps_or_where_hosts_are_not_compared(host):
    host.hear(Reputations(), BEGUN)
    assert set(host.shown().values()) == {(None, None)}
    assert host.told == []


def test_where_half_of_the_hosts_contradict_nobody_is_accused(host):
    host.hear(Reputations({1: record(1), 2: record(-2, contradicts=True)}))
    assert host.shown()["bob"] == (-2.0, False)
    assert host.told == []


def test_who_has_left_is_still_shown_for_at_the_end_all_have_and_who_was_removed_is_not(host):
    host.hear(LYING)
    assert host.shown(mallory="left")["mallory"] == (-3.0, True)
    assert host.shown(mallory="removed")["mallory"] == (None, None)
