"""Whatever stands behind the seam `seams.Journal` keeps the same promises: sqlite, memory, and the tests' own disk.

One of them in the place of another must make no difference to a node, else the simulation and the tests show nothing.
"""

import random
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from disks import Disk
from seedflood.errors import JournalError
from seedflood.protocol.frontier import Frontier, Held
from seedflood.protocol.packing import pack
from seedflood.protocol.seedflood.bundles import make_bundle
from seedflood.protocol.seedflood.messages import ClosedEpoch, EpochDigest, Vote
from seedflood.protocol.seedflood.opening import Inventory
from seedflood.storage.seedflood.journal import BundleJournal
from simulation.seedflood.journal import MemoryBundleJournal, is_cut

PERIOD = 6
ORIGINS = (1, 2, 1 << 63)


class Owner:
    def writing(self):
        pass

    def kept(self, bundles):
        pass


MAKERS = {
    "sqlite": lambda folder: BundleJournal.open(Path(folder) / "journal", b"r" * 32, b"b" * 32, refresh_period=PERIOD),
    "memory": lambda folder: MemoryBundleJournal(PERIOD, Owner()),
    "the tests' disk": lambda folder: Disk(PERIOD),
}


@pytest.fixture(params=MAKERS)
def make(request):
    return MAKERS[request.param]


def bundle(origin, step, skipped=0):
    return make_bundle(origin, step, ((step, origin % 997),), skipped, bytes(64))


def closed(epoch, bundles):
    """A sum of those of the epoch."""
    frontier = Frontier()
    for one in bundles:
        if one.step // PERIOD == epoch:
            frontier.add(*one.span)
    return ClosedEpoch(epoch, frontier.held(), pack(bytes(8)))


@st.composite
def said(draw):
    """Bundles of each origin, each behind the last one and some after a pause; in some order."""
    bundles = []
    for origin in ORIGINS:
        step = 0
        for skipped in draw(st.lists(st.sampled_from([0, 0, 0, 1, 4]), max_size=15)):
            bundles.append(bundle(origin, step + skipped, skipped))
            step += skipped + 1
    return draw(st.permutations(bundles))


class Checked:
    """A journal, and what was put into it."""

    def __init__(self, journal):
        self.journal = journal
        self.bundles = {}

    def append(self, bundles, *, durable):
        new = [one for one in bundles if one not in self.bundles and not self.is_summed(one)]
        told = self.journal.append(bundles, [], durable=durable)
        assert told == len(new) or self.sums()  # what a sum has replaced may be gone, and is new again
        self.bundles |= dict.fromkeys(bundles)

    def sums(self):
        return {one.epoch: Frontier(one.frontier) for one in self.journal.closed_epochs()}

    def is_summed(self, one):
        summed = self.sums().get(one.step // PERIOD)
        return summed is not None and summed.holds(*one.span)

    def check(self):
        sums = self.sums()
        single = [one for one in self.bundles if not self.is_summed(one)]
        assert sorted(self.journal.replay()) == sorted(single)
        inventory = Inventory({}, {epoch: summed.held() for epoch, summed in sums.items()})
        for one in single:
            inventory.bundles.setdefault(one.step // PERIOD, Frontier()).add(*one.span)
        assert self.journal.inventory() == inventory

    def check_answer(self, asked, limit):
        asker, sums, later = Frontier(asked.held()), self.sums(), -1
        for part in self.journal.read_missing(asked.held(), limit):
            if isinstance(part, ClosedEpoch):
                assert not asked.covers(part.frontier)
                assert part.epoch > later, "sums come in the order of their epochs"
                later = part.epoch
                asker.add_held(part.frontier)
            else:
                assert len(part) <= limit
                assert not any(asked.holds(*one.span) or self.is_summed(one) for one in part)
                for one in part:
                    assert asker.add_new(*one.span), "it was told before"
        everything = Frontier()
        for summed in sums.values():
            everything.add_held(summed.held())
        for one in self.bundles:
            everything.add(*one.span)
        assert asker.covers(everything.held())
        return asker


@settings(deadline=None, max_examples=25)
@given(st.data())
@pytest.mark.parametrize("kind", MAKERS)
def test_nothing_is_lost_told_twice_or_hidden_whatever_is_appended_compacted_and_adopted(kind, data):
    with tempfile.TemporaryDirectory() as folder:
        checked = Checked(MAKERS[kind](folder))
        bundles = data.draw(said())
        while bundles:
            count = data.draw(st.integers(1, len(bundles)))
            checked.append(bundles[:count], durable=data.draw(st.booleans()))
            bundles = bundles[count:]
            match data.draw(st.sampled_from(["commit", "compact", "adopt", "nothing"])):
                case "commit":
                    checked.journal.commit()
                case "compact":
                    epoch = data.draw(st.integers(0, 3))
                    if epoch not in checked.sums():
                        checked.journal.compact(closed(epoch, checked.bundles))
                case "adopt":
                    epoch = data.draw(st.integers(0, 3))
                    if epoch not in checked.sums():
                        checked.journal.adopt(closed(epoch, checked.bundles))
            checked.check()
        asked = Frontier()
        for one in checked.bundles:
            if data.draw(st.booleans()):
                asked.add(*one.span)
        checked.check_answer(asked, data.draw(st.sampled_from([1, 3, 1000])))
        close(checked.journal)


def test_an_epoch_is_a_sum_once_the_node_has_compacted_it_however_large_the_sum_is(make, tmp_path):
    """Else the node would count on a sum that is not there when it starts again."""
    journal, bundles = make(tmp_path), [bundle(1, step) for step in range(PERIOD)]
    journal.append(bundles, [], durable=True)
    large = replace(closed(0, bundles), coefficients=random.Random(1).randbytes(10_000))
    assert journal.compact(large) == PERIOD
    assert list(journal.closed_epochs()) == [large]
    assert list(journal.replay()) == []


@pytest.mark.parametrize("way", ["adopt", "compact"])
def test_a_sum_is_told_with_its_certificate(make, tmp_path, way):
    journal = make(tmp_path)
    bundles = [bundle(1, step) for step in range(PERIOD)]
    journal.append(bundles, [], durable=True)
    votes = (Vote(k, 0, EpochDigest(bytes([k]) * 32, bytes([k + 9]) * 32), bytes([k]) * 64) for k in (1, 2))
    summed = replace(closed(0, bundles), certificate=tuple(votes))
    getattr(journal, way)(summed)
    assert list(journal.closed_epochs()) == [summed]
    assert [part for part in journal.read_missing((), 9) if isinstance(part, ClosedEpoch)] == [summed]
    close(journal)


def test_what_is_there_is_not_new(make, tmp_path):
    journal = make(tmp_path)
    assert journal.append([bundle(1, 0), bundle(1, 1)], [], durable=False) == 2
    assert journal.append([bundle(1, 1), bundle(1, 2)], [], durable=True) == 1
    assert sorted(journal.replay()) == [bundle(1, step) for step in range(3)]
    close(journal)


def test_another_bundle_under_the_same_name_is_refused(make, tmp_path):
    journal = make(tmp_path)
    journal.append([bundle(1, 0)], [], durable=True)
    with pytest.raises(JournalError, match="another bundle"):
        journal.append([bundle(1, 0).with_signature(b"x" * 64)], [], durable=True)
    assert list(journal.replay()) == [bundle(1, 0)]
    close(journal)


def test_a_sum_that_is_adopted_leaves_what_it_does_not_stand_for(make, tmp_path):
    journal = make(tmp_path)
    bundles = [bundle(origin, step) for step in range(PERIOD + 2) for origin in (1, 2)]
    journal.append(bundles, [], durable=True)
    others = journal.adopt(closed(0, [one for one in bundles if one.origin == 1]))
    assert sorted(others) == [bundle(2, step) for step in range(PERIOD)]
    assert sorted(journal.replay()) == sorted(one for one in bundles if one.origin == 2 or one.step >= PERIOD)
    assert [one.frontier for one in journal.closed_epochs()] == [(Held(1, PERIOD),)]
    close(journal)


def test_what_covers_a_step_that_another_bundle_covers_is_found_but_not_in_sums(make, tmp_path):
    journal = make(tmp_path)
    told = [bundle(1, 0), bundle(1, 1), bundle(1, 5, skipped=3), bundle(1, PERIOD + 1, skipped=1), bundle(2, 3)]
    journal.append(told, [], durable=True)
    assert list(journal.overlapping(bundle(1, 3))) == [told[2]]
    assert list(journal.overlapping(bundle(1, PERIOD + 2))) == []
    assert list(journal.overlapping(bundle(1, PERIOD, skipped=PERIOD))) == [told[0], told[1], told[2], told[3]]
    journal.adopt(closed(0, told[:3]))
    assert list(journal.overlapping(bundle(1, PERIOD, skipped=PERIOD))) == [told[3]]
    close(journal)


@pytest.mark.parametrize("step", [0, 7])
def test_a_bundle_is_told_to_who_lacks_no_more_than_what_it_skips(make, tmp_path, step):
    """Who told the asker another bundle of its step contradicts itself."""
    journal = make(tmp_path)
    told = [bundle(1, 4, skipped=4), bundle(1, 5), bundle(1, 6), bundle(1, 9, skipped=2), bundle(1, 10)]
    journal.append(told, [], durable=True)
    asked = Frontier()
    for first, last in ((0, 6), (9, 10)) if step else ((4, 10),):
        asked.add(1, first, last)
    lacking = [one for part in journal.read_missing(asked.held(), 9) for one in part]
    assert lacking == [one for one in told if one.first_covered == step]
    close(journal)


def test_an_answer_goes_on_while_others_write(make, tmp_path):
    journal = make(tmp_path)
    journal.append([bundle(1, step) for step in range(40)], [], durable=True)
    answer = journal.read_missing((), 3)
    told = list(next(answer))
    journal.append([bundle(2, 0)], [], durable=True)
    told += [one for part in answer for one in part]
    assert {bundle(1, step) for step in range(40)} <= set(told)
    close(journal)


def close(journal):
    if isinstance(journal, BundleJournal):
        journal.close()


@settings(deadline=None, max_examples=25)
@given(st.data())
@pytest.mark.parametrize("kind", MAKERS)
def test_what_is_cut_off_is_gone_and_all_else_stays(kind, data):
    with tempfile.TemporaryDirectory() as folder:
        checked = Checked(MAKERS[kind](folder))
        checked.append(data.draw(said()), durable=True)
        if data.draw(st.booleans()):
            checked.journal.adopt(closed(1, checked.bundles))
        origin, first = data.draw(st.sampled_from(ORIGINS)), data.draw(st.integers(0, 20))
        spans = [(origin, first, first + data.draw(st.integers(0, 9))), (origin, 30, 2**53 - 1)]
        gone = [one for one in checked.bundles if is_cut(one, spans) and not checked.is_summed(one)]
        assert sorted(checked.journal.cut(spans)) == sorted(gone)
        for one in gone:
            del checked.bundles[one]
        checked.check()
        assert checked.journal.cut(spans) == []
        checked.append(gone, durable=True)
        checked.check()
        close(checked.journal)
