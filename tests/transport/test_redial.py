import pytest

from seedflood.transport.owner import LinkSettings
from seedflood.transport.redial import Dialled, Redial

FAILED, REFUSED, LINKED = Dialled("failed", "no answer"), Dialled("refused", "another run"), Dialled("linked")


@pytest.fixture
def redial() -> Redial:
    settings = LinkSettings("", redial_seconds_min=1.0, redial_seconds_max=10.0)
    return Redial(settings)


def pauses(redial: Redial, dialled: Dialled, count: int, seconds: float = 0.0) -> list[float]:
    return [redial.pause_seconds_max(dialled, seconds) for _ in range(count)]


def test_the_pause_doubles_up_to_a_limit_however_often_a_dial_fails(redial):
    assert pauses(redial, FAILED, 6) == [1.0, 2.0, 4.0, 8.0, 10.0, 10.0]
    assert pauses(redial, FAILED, 5000)[-1] == 10.0


def test_a_link_that_lasted_begins_the_pauses_anew_and_one_that_broke_at_once_does_not(redial):
    pauses(redial, FAILED, 3)
    assert pauses(redial, LINKED, 1, seconds=5.0) == [8.0]
    assert pauses(redial, LINKED, 1, seconds=11.0) == [1.0]


def test_who_does_not_fit_is_dialled_seldom(redial):
    assert pauses(redial, REFUSED, 2) == [10.0, 10.0]


def test_why_there_is_no_link_is_told_once(redial):
    assert redial.is_news("no answer")
    assert not redial.is_news("no answer")
    assert redial.is_news("another run")
    assert not redial.is_news("")
    assert redial.is_news("another run")
