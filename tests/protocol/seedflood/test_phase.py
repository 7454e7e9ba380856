"""One table says what may follow what in the life of a node."""

import itertools

import pytest

from seedflood.protocol.seedflood.phase import TRANSITIONS, Lifecycle, Phase

PATHS = {
    Phase.JOINING: (),
    Phase.MEASURING: (Phase.MEASURING,),
    Phase.COLLECTING: (Phase.COLLECTING,),
    Phase.FINISHING: (Phase.FINISHING,),
    Phase.FINISHED: (Phase.FINISHING, Phase.FINISHED),
    Phase.RELAYING: (),
    Phase.LEFT: (Phase.LEFT,),
}
"""One way to each phase."""


def life_in(phase):
    life = Lifecycle(is_relay=phase is Phase.RELAYING)
    for one in PATHS[phase]:
        life.enter(one)
    assert life.phase is phase
    return life


@pytest.mark.parametrize(("before", "after"), list(itertools.product(Phase, Phase)))
def test_a_phase_is_entered_only_from_where_the_table_allows(before, after):
    life = life_in(before)
    if after in TRANSITIONS[before]:
        life.enter(after)
        assert life.phase is after
        return
    with pytest.raises(AssertionError, match=f"{after.value} does not follow {before.value}"):
        life.enter(after)
    assert life.phase is before


def test_every_phase_has_its_line_and_one_may_leave_in_each():
    assert set(TRANSITIONS) == set(Phase)
    assert {phase for phase, after in TRANSITIONS.items() if Phase.LEFT not in after} == {Phase.LEFT}


@pytest.mark.parametrize("phase", [Phase.MEASURING, Phase.COLLECTING, Phase.FINISHING, Phase.FINISHED])
def test_who_has_begun_a_round_has_spoken_and_stays_so(phase):
    life = life_in(phase)
    assert not life.is_joining
    life.enter(Phase.LEFT)
    assert not life.is_joining


def test_who_leaves_while_it_joins_or_relays_has_never_spoken():
    assert life_in(Phase.JOINING).is_joining
    assert life_in(Phase.LEFT).is_joining
    assert life_in(Phase.RELAYING).is_joining
