"""What a journal says that it holds is what can be read from it, however it came there."""

import hashlib
import random
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from journals import PERIOD, bundle, closed, open_journal

from seedflood.errors import DiskFullError
from seedflood.protocol.frontier import Frontier, Held
from seedflood.protocol.packing import pack
from seedflood.protocol.seedflood.bundles import Bundle
from seedflood.protocol.seedflood.opening import Inventory
from seedflood.storage.seedflood.journal import BundleJournal
from seedflood.storage.seedflood.survey import Survey
from seedflood.storage.seedflood.tables import Bundles


def as_read(journal: BundleJournal) -> Inventory:
    inventory = Inventory(sums={one.epoch: one.frontier for one in journal.closed_epochs()})
    for one in journal.replay():
        inventory.bundles.setdefault(one.step // PERIOD, Frontier()).add(*one.span)
    return inventory


def some(steps: range, rng: random.Random) -> list[Bundle]:
    """Bundles of two origins, some after steps that were skipped, some in another order."""
    bundles = []
    for origin in (1, 2):
        first = steps.start
        for step in steps:
            if rng.random() < 0.8:
                bundles.append(bundle(origin, step, skipped=step - first))
                first = step + 1
    for _ in range(3):
        k = rng.randrange(len(bundles) - 1)
        bundles[k], bundles[k + 1] = bundles[k + 1], bundles[k]
    return bundles


@settings(deadline=None, max_examples=25)
@given(st.randoms(use_true_random=False))
def test_an_inventory_is_what_is_read_before_and_after_opening(tmp_path_factory: pytest.TempPathFactory, rng) -> None:
    folder = tmp_path_factory.mktemp("journal")
    bundles = some(range(5 * PERIOD), rng)
    with open_journal(folder) as journal:
        for k in range(0, len(bundles), 30):
            journal.append(bundles[k : k + 30], durable=False)
        journal.compact(closed(0, bundles))
        journal.adopt(closed(2, bundles[: len(bundles) // 3]))
        assert journal.inventory() == as_read(journal)
    with open_journal(folder) as journal:
        assert journal.inventory() == as_read(journal)
        assert journal.count() >= sum(1 for _ in journal.replay())


def test_an_opened_journal_knows_what_it_holds_without_reading_it_again(tmp_path: Path, monkeypatch) -> None:
    with open_journal(tmp_path) as journal:
        journal.append([bundle(1, step) for step in range(50)], durable=True)
    with open_journal(tmp_path) as journal:
        monkeypatch.setattr(Bundles, "replay", lambda _: pytest.fail("all of it was read again"))
        monkeypatch.setattr(Survey, "is_whole", lambda _: pytest.fail("it was read again"))
        assert journal.inventory().of_bundles().held() == (Held(1, 50),)
        assert journal.count() == 50


def test_an_opened_journal_knows_the_digests_of_its_sums(tmp_path: Path) -> None:
    bundles = [bundle(1, step) for step in range(2 * PERIOD)]
    with open_journal(tmp_path) as journal:
        journal.append(bundles, durable=True)
        for epoch in (0, 1):
            journal.adopt(replace(closed(epoch, bundles), coefficients=pack(bytes([epoch] * 40))))
    with open_journal(tmp_path) as journal:
        digests = journal.inventory().digests
    assert digests == {epoch: hashlib.sha256(bytes([epoch] * 40)).digest() for epoch in (0, 1)}


def test_what_was_undone_does_not_count_and_nothing_is_counted_again(tmp_path: Path, monkeypatch) -> None:
    with open_journal(tmp_path) as journal:
        journal.append([bundle(1, step) for step in range(10)], durable=True)
        journal.append([bundle(1, step) for step in range(10, 15)], durable=False)
        insert = Bundles._insert
        monkeypatch.setattr(Bundles, "_insert", fail)
        with pytest.raises(DiskFullError):
            journal.append([bundle(1, 15)], durable=False)
        assert journal.count() == 10
        with pytest.raises(DiskFullError):
            journal.append([bundle(1, 10)], durable=False)
        monkeypatch.setattr(Bundles, "_insert", insert)
        assert journal.count() == 10
        journal.append([bundle(1, step) for step in range(10, 15)], durable=True)
        assert journal.count() == 15 == sum(1 for _ in journal.replay())


def fail(*_: object) -> None:
    raise DiskFullError("there is no space left; free some.")
