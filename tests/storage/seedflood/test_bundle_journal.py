"""The journal loses nothing, gives back what it was given, and says clearly why it cannot be used."""

import contextlib
import os
import sqlite3
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from journals import BASE, PERIOD, RUN, bundle, closed, open_journal

import seedflood
from seedflood.errors import JournalError
from seedflood.protocol.frontier import Frontier, Held
from seedflood.protocol.origin import STEP_MAX
from seedflood.protocol.seedflood.bundles import BATCH_BYTES, BUNDLE_STEP_MAX, make_bundle, payload_bytes
from seedflood.protocol.seedflood.messages import ClosedEpoch
from seedflood.storage.opening import PAGE_BYTES
from seedflood.storage.seedflood.journal import BundleJournal
from seedflood.storage.seedflood.records import SEGMENT_BYTES_MAX
from seedflood.storage.seedflood.tables import LOOKS_MAX, PAGE_SEGMENTS, Bundles

RELAXED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # two shared cores

ORIGINS = [0, 5, 2**63 - 1, 2**63, 2**64 - 1]

runs = st.tuples(st.sampled_from(ORIGINS), st.integers(0, 30) | st.just(BUNDLE_STEP_MAX - 7), st.integers(1, 8))
"""(origin, first step, bundles)."""
appends = st.lists(st.tuples(st.lists(runs, max_size=6), st.booleans(), st.booleans()), max_size=6)


@settings(RELAXED, max_examples=100)
@given(appends)
def test_replay_equals_a_list_without_duplicates_whatever_the_order_and_the_reopenings(script) -> None:
    model: dict[tuple[int, int], int] = {}
    with tempfile.TemporaryDirectory() as folder:
        journal = open_journal(folder)
        for turn, (said, durable, is_reopened) in enumerate(script):
            pairs = [(origin, first + k) for origin, first, count in said for k in range(count)]
            new = journal.append([bundle(*pair) for pair in pairs], durable=durable)
            before = len(model)
            for pair in pairs:
                model.setdefault(pair, turn)
            assert new == len(model) - before
            if is_reopened:
                journal.close()
                journal = open_journal(folder)
        replayed = list(journal.replay())
        assert sorted(replayed, key=str) == sorted([bundle(*pair) for pair in model], key=str)
        turns = [model[one.origin, one.step] for one in replayed]
        assert turns == sorted(turns)
        assert journal.count() == len(model)
        for origin in ORIGINS:
            assert journal.last_step(origin) == max((step for one, step in model if one == origin), default=-1)
        journal.close()


@settings(RELAXED, max_examples=100)
@given(
    st.lists(st.tuples(st.sampled_from(ORIGINS[:2]), st.integers(0, 3), st.integers(1, 2)), max_size=30),
    st.lists(st.integers(0, 29), max_size=8),
    st.lists(st.tuples(st.sampled_from(ORIGINS[:2]), st.integers(0, 90)), max_size=4),
    st.integers(1, 9),
)
def test_bundles_that_declare_skipped_steps_are_kept_and_found_whatever_their_order(said, swaps, held, limit) -> None:
    """said: (origin, steps it skipped, updates), each behind the last of its origin."""
    bundles, ends = [], dict.fromkeys(ORIGINS, 0)
    for origin, skipped, updates in said:
        bundles.append(bundle(origin, ends[origin] + skipped, updates, skipped))
        ends[origin] += skipped + updates
    for k in swaps:
        if k + 1 < len(bundles):
            bundles[k], bundles[k + 1] = bundles[k + 1], bundles[k]
    frontier = Frontier()
    for one in bundles:
        if (one.origin, one.step) in held:
            frontier.add(*one.span)
    with tempfile.TemporaryDirectory() as folder, open_journal(folder) as journal:
        cut = len(bundles) // 2
        assert journal.append(bundles[:cut], durable=False) == cut
        assert journal.append(bundles, durable=False) == len(bundles) - cut
        assert sorted(journal.replay()) == sorted(bundles)
        found = [one for batch in journal.read_missing(frontier.held(), limit) for one in batch]
        assert sorted(found) == sorted(one for one in bundles if not frontier.holds(*one.span))


@settings(RELAXED, max_examples=60)
@given(
    st.sets(st.tuples(st.sampled_from(ORIGINS), st.integers(0, 12)), max_size=40),
    st.lists(st.tuples(st.sampled_from(ORIGINS), st.integers(0, 50), st.integers(0, 9)), max_size=12),
    st.sampled_from([1, 3, 4096]),
    st.booleans(),
)
def test_read_missing_equals_a_filter_over_everything(stored, held, limit, is_in_order) -> None:
    updates = 4  # per bundle: steps 4 k .. 4 k + 3
    frontier = Frontier()
    for origin, first, more in held:
        frontier.add(origin, first // updates * updates, (first + more) // updates * updates + updates - 1)
    bundles = [bundle(origin, k * updates, updates) for origin, k in (sorted(stored) if is_in_order else stored)]
    with tempfile.TemporaryDirectory() as folder, open_journal(folder) as journal:
        journal.append(bundles, durable=False)
        batches = list(journal.read_missing(frontier.held(), limit))
    expected = [one for one in bundles if not frontier.holds(one.origin, one.step, one.last)]
    found = [one for batch in batches for one in batch]
    assert sorted(found, key=str) == sorted(expected, key=str)
    assert all(len(batch) <= limit for batch in batches)
    for origin in ORIGINS:
        steps = [one.step for one in found if one.origin == origin]
        assert steps == sorted(steps)


def test_whoever_reads_gets_a_turn_between_thousands_of_gaps_with_nothing_in_them(tmp_path: Path) -> None:
    """A neighbour may say that it holds every other step."""
    statements: list[str] = []
    with open_journal(tmp_path) as journal:
        journal.append([bundle(origin, step) for origin in (1, 2) for step in (0, 40_000)], durable=False)
        beyond = tuple((k, k) for k in range(2, 20_000, 2))
        frontier = [Held(origin, 1, beyond) for origin in (1, 2)]
        journal._store.connection.set_trace_callback(statements.append)
        most, batches = 0, []
        for batch in journal.read_missing(frontier):
            most = max(most, len(statements))
            statements.clear()
            batches.append(batch)
    assert [one for batch in batches for one in batch] == [bundle(1, 40_000), bundle(2, 40_000)]
    assert most < 500


def test_a_frontier_of_unknown_origins_lacks_everything(tmp_path: Path) -> None:
    with open_journal(tmp_path) as journal:
        journal.append([bundle(1, 0)], durable=False)
        assert list(journal.read_missing([Held(77, 10)])) == [[bundle(1, 0)]]
        assert list(journal.read_missing([Held(1, STEP_MAX + 1)])) == []


def test_replay_and_reading_continue_while_bundles_are_appended(tmp_path: Path) -> None:
    with open_journal(tmp_path) as journal:
        journal.append([bundle(1, step) for step in range(5000)], durable=False)
        replayed, missing = journal.replay(), journal.read_missing((), 100)
        next(replayed)
        next(missing)
        journal.append([bundle(1, 5000)], durable=True)
        assert sum(1 for _ in replayed) == 5000
        assert sum(map(len, missing)) == 4901


def test_a_different_bundle_in_the_middle_of_others_is_refused(tmp_path: Path) -> None:
    with open_journal(tmp_path) as journal:
        journal.append([bundle(1, step) for step in range(9)], durable=True)
        with pytest.raises(JournalError, match="another bundle at step 4"):
            journal.append([make_bundle(1, 4, ((9, 9),), 0, bytes(64))], durable=False)


def test_bundles_that_follow_each_other_share_rows(tmp_path: Path) -> None:
    """What is pulled takes little more room than its bytes, 80 per bundle: epochs of 20 steps leave pages unfilled."""
    bundles = [bundle(origin, step) for origin in range(4) for step in range(5000)]
    with open_journal(tmp_path) as journal:
        journal.append(bundles, durable=True)
        together = journal.path.with_name("journal-wal").stat().st_size
    assert together < 1.35 * 80 * len(bundles)


def test_a_different_bundle_under_one_name_is_refused_and_nothing_is_written(tmp_path: Path) -> None:
    with open_journal(tmp_path) as journal:
        journal.append([bundle(1, 1)], durable=True)
        with pytest.raises(JournalError, match="another bundle at step 1"):
            journal.append([bundle(1, 0), make_bundle(1, 1, ((9, 9),), 0, bytes(64))], durable=False)
        assert list(journal.replay()) == [bundle(1, 1)]
        assert journal.count() == 1
        journal.append([bundle(1, 2)], durable=True)


CRASH = """
import os, sys
from seedflood.protocol.seedflood.bundles import make_bundle
from seedflood.storage.seedflood.journal import BundleJournal

journal = BundleJournal.open(sys.argv[1], b"r" * 32, b"b" * 32, refresh_period=20)
step = 0
while True:
    batch = [make_bundle(7, step + k, ((step + k, 7),), 0, b"%64d" % (step + k)) for k in range(50)]
    step += 50
    if step > 1000:
        def dying():
            for one in batch[:20]:
                yield one
            os._exit(9)
        batch_bundles = list(batch)
        class Dying(list):
            def __iter__(self):
                return dying()
        journal.append(Dying(batch_bundles), durable=False)
    journal.append(batch, durable=step % 200 == 0)
    journal.commit()
    os.write(1, b"%d\\n" % step)
"""


def test_a_process_that_dies_in_an_append_loses_nothing_committed_and_leaves_no_half_group(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    ended = subprocess.run(
        [sys.executable, "-c", CRASH, str(path)],
        capture_output=True,
        check=False,
        env=os.environ | {"PYTHONPATH": _node()},
    )
    assert ended.returncode == 9, ended.stderr
    assert ended.stdout.split()[-1] == b"1000"
    with open_journal(tmp_path) as journal:
        assert [one.step for one in journal.replay()] == list(range(1000))


def _node() -> str:
    return str(Path(seedflood.__file__).parent.parent)


def test_who_is_cut_off_between_sums_and_bundles_holds_no_range_per_sum(tmp_path: Path) -> None:
    """Epochs are sums and bundles in turn: given all sums first, the asker would hold 100 ranges of the origin."""
    bundles = [bundle(1, step) for step in range(200 * PERIOD)]
    with open_journal(tmp_path) as journal:
        journal.append(bundles, durable=False)
        for epoch in range(1, 200, 2):
            journal.adopt(closed(epoch, bundles))
        asker = Frontier()
        for found in journal.read_missing((), 7):
            if isinstance(found, ClosedEpoch):
                asker.add_held(found.frontier)
            for one in [] if isinstance(found, ClosedEpoch) else found:
                asker.add(*one.span)
            assert sum(len(one.beyond) for one in asker.held()) <= 1
    assert asker.held() == (Held(1, 200 * PERIOD),)


def test_a_frontier_of_many_ranges_costs_a_look_per_page_not_one_per_range(tmp_path: Path, monkeypatch) -> None:
    with open_journal(tmp_path) as journal:
        for origin in range(1, 5):
            journal.append([bundle(origin, step) for step in range(2048)], durable=False)
        looks = []
        page = Bundles._page
        monkeypatch.setattr(Bundles, "_page", lambda *args: looks.append(args) or page(*args))
        asked = [Held(origin, 0, tuple((step, step) for step in range(1, 2048, 2))) for origin in range(1, 5)]
        found = [one.step for batch in journal.read_missing(asked) for one in batch]
    assert found == 4 * list(range(0, 2048, 2))
    assert len(looks) < 100


def test_who_looks_in_vain_for_long_is_let_go_now_and_then(tmp_path: Path) -> None:
    steps = range(0, 2 * (2 * LOOKS_MAX * PAGE_SEGMENTS + 1), 2)
    with open_journal(tmp_path) as journal:
        journal.append([bundle(1, step) for step in steps], durable=False)  # each is a segment of its own
        asked = [Held(1, 1, tuple((step, step) for step in steps[1:]))]
        assert list(journal.read_missing(asked)) == [[], []]


def test_a_bundle_that_a_sum_stands_for_is_not_found(tmp_path) -> None:
    with open_journal(tmp_path) as journal:
        journal.append([bundle(1, 0)], durable=False)
        journal.adopt(closed(0, [bundle(1, 0)]))
        assert journal.find(1, 0) is None


@pytest.mark.parametrize(("size", "count"), [(5, 400), (2000, 100), (28_000, 20), (256 << 10, 5)])
def test_payloads_of_any_size_come_back_in_parts_of_64_kib_or_one_bundle(tmp_path, size, count) -> None:
    said = [
        make_bundle(7, step, (step.to_bytes(4, "big") + bytes(size - 4),), 0, b"%64d" % step) for step in range(count)
    ]
    with open_journal(tmp_path) as journal:
        assert journal.append(said, durable=True) == count
        assert journal.append(said[::3], durable=False) == 0
    with open_journal(tmp_path) as journal:
        assert journal.damaged is None
        assert list(journal.replay()) == said
        parts = [part for part in journal.read_missing([Held(7, 2)]) if isinstance(part, list)]
        assert [bundle for part in parts for bundle in part] == said[2:]
        assert all(payload_bytes(part) <= BATCH_BYTES or len(part) == 1 for part in parts)


@pytest.mark.parametrize("updates", [1, 2, 19])
def test_what_was_learned_together_is_in_rows_that_fill_a_page_each(tmp_path, updates) -> None:
    said = [make_bundle(7, step, ((1, 2),) * updates, 0, b"%64d" % step) for step in range(0, 400 * updates, updates)]
    with BundleJournal.open(tmp_path / "journal", RUN, BASE, refresh_period=10_000) as journal:
        assert journal.append(said, durable=True) == 400
    with contextlib.closing(sqlite3.connect(tmp_path / "journal")) as connection:
        *full, _ = [len(record) for (record,) in connection.execute("SELECT record FROM segments ORDER BY number")]
    assert all(SEGMENT_BYTES_MAX - len(said[0].data) < size <= SEGMENT_BYTES_MAX < PAGE_BYTES for size in full)
