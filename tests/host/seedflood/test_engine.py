"""What a process starts from: the journal's sums, and the weights of a snapshot if these are in them."""

import pytest

from seedflood.config import RunSettings, load_settings
from seedflood.host.places import JOURNAL_FILE, SNAPSHOTS_FOLDER
from seedflood.host.seedflood.engine import load_sums
from seedflood.protocol.frontier import Held
from seedflood.protocol.seedflood.messages import Bundle, ClosedEpoch, Update
from seedflood.storage.seedflood.journal import BundleJournal
from seedflood.storage.snapshots import Snapshots
from seedflood.training.seedflood.trainer import Trainer

RUN = {"model": "embedded", "task": "embedded", "rank": 4, "refresh_period": 4, "train_examples": 16}
UPDATES = [Update(1, step, (7 * step, 1 << 20)) for step in range(14)]
LAST = Bundle(1, 13, ((5, 5),), signature=bytes(64))


@pytest.fixture
def node(tmp_path):
    """Settings, snapshots and an open journal."""
    settings = load_settings(
        None, {"run": RunSettings.place(RUN), "node": {"state": tmp_path, "device": "cpu", "threads": 1}}
    )
    base_digest = Trainer(settings.run, settings.node).base_digest
    snapshots = Snapshots(tmp_path / SNAPSHOTS_FOLDER, keep=2)
    with BundleJournal.open(tmp_path / JOURNAL_FILE, settings.run.run_id(), base_digest, refresh_period=4) as journal:
        yield settings, journal, snapshots


@pytest.fixture
def writer(node):
    """A trainer that has written a snapshot when epochs 1 and 2 had been folded, and one when epoch 3 had."""
    settings, _, snapshots = node
    trainer = Trainer(settings.run, settings.node)
    trainer.replica.apply(UPDATES)
    for epoch in (2, 3):
        trainer.replica.open_epoch(epoch)
        arrays, facts = trainer.snapshot()
        snapshots.save(epoch, arrays, facts)
    return trainer


def started(node, writer, closed, origin=1):
    """The trainer of an origin whose journal holds these sums of the writer, and a last bundle of origin 1."""
    settings, journal, snapshots = node
    for epoch in closed:
        held = Held(1, 0, ((4 * epoch, 4 * epoch + 3),)) if epoch else Held(1, 4)
        journal.adopt(ClosedEpoch(epoch, (held,), writer.replica.sum_epoch(epoch)))
    journal.append([LAST], durable=True)
    trainer = Trainer(settings.run, settings.node)
    load_sums(trainer, journal, snapshots, origin)
    return trainer


@pytest.mark.parametrize(
    ("closed", "opened"), [((), 0), ((0,), 0), ((1,), 0), ((0, 1), 2), ((0, 2), 0), ((0, 1, 2), 3), ((0, 1, 2, 3), 3)]
)
def test_the_newest_snapshot_is_taken_whose_epochs_are_all_in_the_journal(node, writer, closed, opened):
    trainer = started(node, writer, closed)
    assert trainer.replica.epoch == opened
    assert {epoch: trainer.replica.sum_epoch(epoch) for epoch in closed} == {
        epoch: writer.replica.sum_epoch(epoch) for epoch in closed
    }


def test_a_node_that_goes_on_before_the_snapshot_does_not_take_it(node, writer):
    assert started(node, writer, (0, 1, 2), origin=2).replica.epoch == 0


def test_a_sum_of_other_updates_than_the_snapshots_is_not_passed_over(node, writer):
    writer.replica.apply([Update(2, 9, (1, 1))])
    trainer = started(node, writer, (0, 1, 2))
    assert trainer.replica.epoch == 2
    assert trainer.replica.sum_epoch(2) == writer.replica.sum_epoch(2)
