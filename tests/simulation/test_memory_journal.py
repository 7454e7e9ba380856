"""The disk of a simulated host keeps what a real one keeps, and loses what a real one may lose."""

import random

import pytest

from seedflood.errors import DiskFullError, JournalError
from seedflood.protocol.frontier import Frontier, Held
from seedflood.protocol.packing import pack
from seedflood.protocol.seedflood.bundles import make_bundle
from seedflood.protocol.seedflood.messages import ClosedEpoch
from seedflood.protocol.swarm.messages import Member
from simulation.seedflood.journal import MemoryBundleJournal

PERIOD = 4
SUM = pack(bytes(8))


class Owner:
    def __init__(self):
        self.said = []

    def writing(self):
        pass

    def kept(self, bundles):
        self.said += bundles


def bundle(origin, step):
    return make_bundle(origin, step, ((origin, step),))


def bundles(origin, steps):
    return [bundle(origin, step) for step in steps]


def closed(epoch, *held):
    return ClosedEpoch(epoch, held, SUM)


@pytest.fixture
def journal():
    return MemoryBundleJournal(PERIOD, Owner())


def test_what_is_not_committed_may_be_lost_by_a_crash(journal):
    journal.append([bundle(1, 0)], [], durable=False)
    journal.commit()
    journal.append(bundles(1, [1, 2]), [Member(b"a" * 32, "a", 1)], durable=False)
    journal.crash(random.Random(5))
    assert bundle(1, 0) in journal.replay()
    assert len(journal.bundles) < 3 or not journal.members()


def test_what_is_committed_may_be_lost_by_a_power_failure_only(journal):
    journal.append(bundles(1, range(20)), [], durable=False)
    journal.commit()
    assert journal.crash(random.Random(1)) == 0
    assert journal.tear(random.Random(1)) > 0


def test_something_durable_keeps_all_that_was_before_it(journal):
    journal.append(bundles(1, range(20)), [], durable=False)
    journal.append([bundle(2, 0)], [], durable=True)
    assert journal.tear(random.Random(1)) == 0
    assert len(journal.bundles) == 21


def test_only_what_is_durable_was_said(journal):
    journal.append([bundle(1, 0)], [], durable=False)
    journal.append([bundle(2, 0)], [], durable=True)
    assert journal._owner.said == [bundle(2, 0)]


def test_a_full_disk_undoes_the_open_group_and_takes_it_again_later(journal):
    journal.append([bundle(1, 0)], [], durable=False)
    journal.commit()
    journal.append([bundle(1, 1)], [], durable=False)
    journal.is_full = True
    for write in (
        lambda: journal.append([bundle(1, 2)], [], durable=True),
        lambda: journal.adopt(closed(0)),
        lambda: journal.compact(closed(0)),
    ):
        with pytest.raises(DiskFullError):
            write()
    assert list(journal.replay()) == [bundle(1, 0)]
    journal.is_full = False
    assert journal.append(bundles(1, [1, 2]), [], durable=True) == 2


def test_another_bundle_under_the_same_name_is_refused(journal):
    journal.append([bundle(1, 0)], [], durable=True)
    with pytest.raises(JournalError):
        journal.append([make_bundle(1, 0, ((7, 7),))], [], durable=True)


@pytest.mark.parametrize("keep", ["adopt", "compact"])
def test_a_closed_epoch_takes_the_place_of_what_it_covers(journal, keep):
    journal.append(bundles(1, range(6)), [], durable=False)
    told = getattr(journal, keep)(closed(0, Held(1, 3)))
    assert told == (bundles(1, [3]) if keep == "adopt" else 3)
    assert list(journal.replay()) == bundles(1, [3, 4, 5])
    assert list(journal.closed_epochs()) == [closed(0, Held(1, 3))]
    assert journal.tear(random.Random(1)) == 0


def test_an_epoch_that_is_closed_again_stands_for_what_the_later_sum_stands_for(journal):
    journal.adopt(closed(0, Held(1, 3)))
    journal.compact(closed(0, Held(1, 4), Held(2, 2)))
    assert [one.frontier for one in journal.closed_epochs()] == [(Held(1, 4), Held(2, 2))]


def test_who_lacks_a_closed_epoch_gets_its_sum_and_then_the_rest(journal):
    journal.append(bundles(1, range(6)), [], durable=True)
    journal.compact(closed(0, Held(1, 3)))
    assert list(journal.read_missing((), 2)) == [closed(0, Held(1, 3)), bundles(1, [3, 4]), bundles(1, [5])]
    assert list(journal.read_missing([Held(1, 4)], 2)) == [bundles(1, [4, 5])]


@pytest.mark.parametrize("seed", range(20))
def test_whoever_asks_ends_with_everything_in_either_form(journal, seed):
    rng = random.Random(seed)
    everything = [bundle(origin, step) for origin in (1, 2, 3) for step in range(12)]
    journal.append(everything, [], durable=True)
    for epoch in range(rng.randrange(3)):
        covered = tuple(Held(o, 0, ((epoch * PERIOD, rng.randrange(4) + epoch * PERIOD),)) for o in (1, 2, 3))
        journal.compact(closed(epoch, *covered))
    asker = Frontier(Held(o, rng.randrange(12)) for o in (1, 2, 3))
    for item in journal.read_missing(asker.held(), 4):
        if isinstance(item, ClosedEpoch):
            asker.add_held(item.frontier)
        else:
            for one in item:
                asker.add(one.origin, one.first_covered, one.last)
    assert asker.held() == tuple(Held(o, 12) for o in (1, 2, 3))


def test_damage_spares_one_author_and_says_how_much_it_took(journal):
    journal.append(bundles(1, range(50)) + bundles(2, range(50)), [], durable=True)
    lost = journal.damage(random.Random(1), share=0.5, spare=1)
    assert 10 < lost == 100 - len(journal.bundles)
    assert bundles(1, range(50)) == [b for b in journal.replay() if b.origin == 1]
