"""An epoch is kept as bundles or as their sum: never as neither, and counted once."""

import sqlite3
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from journals import PERIOD, bundle, closed, open_journal

from seedflood.errors import JournalError
from seedflood.protocol.frontier import Frontier, Held
from seedflood.protocol.seedflood.bundles import Bundle
from seedflood.protocol.seedflood.messages import ClosedEpoch
from seedflood.storage.seedflood.journal import BundleJournal
from seedflood.storage.seedflood.tables import LOOKS_MAX, Bundles

EPOCH_0 = [bundle(origin, step) for step in range(PERIOD) for origin in (1, 2**64 - 1)]
EPOCH_1 = [bundle(origin, step) for step in range(PERIOD, 2 * PERIOD) for origin in (1, 2**64 - 1)]


def frontier_of(bundles: list[Bundle]) -> tuple[Held, ...]:
    frontier = Frontier()
    for one in bundles:
        frontier.add(one.origin, one.first_covered, one.last)
    return frontier.held()


def by_step(bundles: Iterable[Bundle]) -> list[Bundle]:
    return sorted(bundles, key=lambda one: (one.step, one.origin))


def fail(*_: object) -> None:
    raise sqlite3.OperationalError("disk I/O error")


def answer(journal: BundleJournal, held: tuple[Held, ...] = ()) -> tuple[list[ClosedEpoch], list[Bundle]]:
    epochs, bundles = [], []
    for part in journal.read_missing(held, 7):
        if isinstance(part, ClosedEpoch):
            epochs.append(part)
        else:
            bundles += part
    return epochs, bundles


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[BundleJournal]:
    with open_journal(tmp_path) as journal:
        journal.append(EPOCH_0 + EPOCH_1, durable=True)
        yield journal


def test_who_holds_most_sums_is_answered_with_pauses_in_which_others_are_served(tmp_path: Path) -> None:
    with open_journal(tmp_path) as journal:
        bundles = [bundle(1, step) for step in range(3 * LOOKS_MAX * PERIOD)]
        for epoch in range(3 * LOOKS_MAX):
            journal.adopt(closed(epoch, bundles[epoch * PERIOD : (epoch + 1) * PERIOD]))
        parts = list(journal.read_missing([Held(1, len(bundles) - 1)]))
    assert parts[:-1] == [[], []]
    assert isinstance(parts[-1], ClosedEpoch)


def test_a_sum_takes_the_place_of_its_bundles(journal: BundleJournal) -> None:
    assert journal.compact(closed(0, EPOCH_0)) == len(EPOCH_0)
    assert list(journal.closed_epochs()) == [closed(0, EPOCH_0)]
    assert by_step(journal.replay()) == EPOCH_1
    assert answer(journal, frontier_of(EPOCH_1[:-1])) == ([closed(0, EPOCH_0)], EPOCH_1[-1:])


def test_what_is_replaced_is_deleted_with_the_commits_that_follow(journal: BundleJournal) -> None:
    journal.compact(closed(0, EPOCH_0))
    journal.commit()
    assert journal.count() == len(EPOCH_1)


def test_what_is_not_deleted_when_the_process_ends_is_deleted_after_the_restart(tmp_path: Path) -> None:
    with open_journal(tmp_path) as journal:
        journal.append(EPOCH_0 + EPOCH_1, durable=True)
        journal.compact(closed(0, EPOCH_0))
    with open_journal(tmp_path) as journal:
        assert by_step(journal.replay()) == EPOCH_1
        journal.commit()
        assert journal.count() == len(EPOCH_1)


def test_bundles_that_are_appended_after_their_sum_do_not_count(journal: BundleJournal) -> None:
    journal.adopt(closed(0, EPOCH_0))
    journal.append(EPOCH_0[:3], durable=True)
    assert by_step(journal.replay()) == EPOCH_1
    assert answer(journal, frontier_of(EPOCH_0 + EPOCH_1)) == ([], [])


def test_bundles_of_several_updates_belong_to_the_epoch_of_their_first(tmp_path: Path) -> None:
    bundles = [bundle(1, step, updates=3, skipped=3) for step in range(3, 60, 6)]
    with open_journal(tmp_path) as journal:
        journal.append(bundles, durable=True)
        journal.compact(closed(1, bundles))
        left = [one for one in bundles if one.step // PERIOD != 1]
        assert by_step(journal.replay()) == left
        assert answer(journal) == ([closed(1, bundles)], left)


def test_what_is_adopted_takes_the_place_of_what_it_covers(tmp_path: Path) -> None:
    with open_journal(tmp_path) as journal:
        journal.append(EPOCH_0[:30] + EPOCH_1, durable=True)
        assert by_step(journal.adopt(closed(0, EPOCH_0[10:]))) == EPOCH_0[:10]
        assert journal.count() == 10 + len(EPOCH_1)
    with open_journal(tmp_path) as journal:
        assert by_step(journal.replay()) == EPOCH_0[:10] + EPOCH_1
        assert list(journal.closed_epochs()) == [closed(0, EPOCH_0[10:])]


def test_a_sum_that_stands_for_more_replaces_the_one_that_is_there(journal: BundleJournal) -> None:
    journal.compact(closed(0, EPOCH_0[2:]))
    assert journal.adopt(closed(0, EPOCH_0)) == []
    assert list(journal.closed_epochs()) == [closed(0, EPOCH_0)]
    assert by_step(journal.replay()) == EPOCH_1


def test_what_would_lose_updates_is_not_adopted(journal: BundleJournal) -> None:
    journal.adopt(closed(0, EPOCH_0))
    with pytest.raises(AssertionError):
        journal.adopt(closed(0, EPOCH_0[1:]))
    assert list(journal.closed_epochs()) == [closed(0, EPOCH_0)]


def test_who_lacks_anything_of_a_sum_is_given_the_sum_and_its_late_bundles(journal: BundleJournal) -> None:
    late = bundle(5, 3)
    journal.adopt(closed(0, EPOCH_0, size=100_000))
    journal.append([late], durable=True)
    assert answer(journal, frontier_of(EPOCH_0[:-1] + EPOCH_1)) == ([closed(0, EPOCH_0, size=100_000)], [late])
    assert answer(journal, frontier_of(EPOCH_0 + EPOCH_1)) == ([], [late])


def test_the_last_step_of_an_origin_is_found_in_sums_and_in_bundles(journal: BundleJournal) -> None:
    assert [journal.last_step(origin) for origin in (1, 2**64 - 1, 9)] == [2 * PERIOD - 1, 2 * PERIOD - 1, -1]
    journal.compact(closed(1, EPOCH_1))
    journal.commit()
    assert journal.last_step(2**64 - 1) == 2 * PERIOD - 1


@settings(max_examples=80)
@given(
    everything=st.sets(st.tuples(st.sampled_from([1, 7, 2**63]), st.integers(0, 3 * PERIOD - 1)), min_size=1),
    late=st.sets(st.integers(0, 60), max_size=9),
    asker_holds=st.sets(st.integers(0, 60)),
    size=st.sampled_from([0, 500, 5000]),
)
def test_an_asker_that_adopts_the_answer_has_all_that_the_donor_has(everything, late, asker_holds, size) -> None:
    bundles = [bundle(*pair) for pair in sorted(everything)]
    on_time = [one for k, one in enumerate(bundles) if k not in late]
    own = [one for k, one in enumerate(bundles) if k in asker_holds]
    with tempfile.TemporaryDirectory() as folder, open_journal(folder) as donor:
        donor.append(on_time, durable=False)
        for epoch in (0, 1):
            donor.compact(closed(epoch, on_time, size))
        donor.append([one for one in bundles if one not in on_time], durable=False)
        epochs, answered = answer(donor, frontier_of(own))
    with tempfile.TemporaryDirectory() as folder, open_journal(folder) as asker:
        asker.append(own, durable=False)
        for epoch in epochs:
            asker.adopt(epoch)
        asker.append(answered, durable=False)
        kept = Frontier(frontier_of(list(asker.replay())))
        for held in (held for epoch in asker.closed_epochs() for held in epoch.frontier):
            held_spans = [(0, held.mark - 1), *held.beyond] if held.mark else held.beyond
            assert not any(kept.holds_any(held.origin, *span) for span in held_spans)
            kept.add_held([held])
    assert kept.held() == frontier_of(bundles)


def test_a_commit_never_has_much_to_tidy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Few rows and many origins: looking for what begins in a slice of steps is work, too."""
    looks: list[int] = []
    delete = Bundles.delete
    monkeypatch.setattr(Bundles, "delete", lambda self, found: looks.append(len(found)) or delete(self, found))
    bundles = [bundle(origin, step) for origin in range(600) for step in range(PERIOD)]
    with open_journal(tmp_path) as journal:
        journal.append(bundles, durable=True)
        assert journal.compact(closed(0, bundles)) == len(bundles)
        while journal.count():
            looks.clear()
            journal.commit()
            assert 0 < sum(looks) <= 2 * 600


def test_an_adoption_that_fails_is_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bundles = [bundle(1, step) for step in range(PERIOD)]
    late = [bundles[3], bundles[17]]
    with open_journal(tmp_path) as journal:
        journal.append(bundles, durable=True)
        with monkeypatch.context() as broken:
            broken.setattr(Bundles, "add", fail)
            with pytest.raises(JournalError):
                journal.adopt(closed(0, [one for one in bundles if one not in late]))
        assert journal.append(bundles, durable=True) == 0
        assert journal.count() == len(bundles)
        assert list(journal.replay()) == bundles


def test_a_journal_that_is_compacted_does_not_grow(tmp_path: Path) -> None:
    sizes = []
    with open_journal(tmp_path) as journal:
        for epoch in range(12):
            steps = range(epoch * PERIOD, (epoch + 1) * PERIOD)
            bundles = [bundle(origin, step) for step in steps for origin in range(200)]
            journal.append(bundles, durable=True)
            journal.compact(closed(epoch, bundles))
            for _ in steps:
                journal.commit()
            sizes.append(journal.path.stat().st_size)
    assert max(sizes) < 2 * sizes[5]
