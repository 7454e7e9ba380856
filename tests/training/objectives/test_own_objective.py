"""An objective of one's own needs no change of what is there: it is registered, learned, and measured in pieces."""

import pytest
import torch
from ratings import RatedBatch, RatingEncoder, RatingFormat
from reference import make_task, tiny_base, tiny_settings, tiny_tokenizer

from seedflood.errors import DataError
from seedflood.training.evaluation import evaluate
from seedflood.training.seedflood.replica import Replica
from seedflood.training.tasks import ENCODERS

ROWS = [{"text": "a b c d e"[: 2 * k + 1], "number": k / 2} for k in range(5)] * 4


@pytest.fixture
def task(monkeypatch):
    monkeypatch.setitem(ENCODERS, RatingFormat, RatingEncoder)

    def make(rows=ROWS):
        return make_task(
            tiny_settings(batch_size=4), tiny_tokenizer(), RatingFormat("{text}", ("bad", "good")), rows, ROWS[:5]
        )

    return make


def test_its_rows_become_its_own_examples_and_batches(task):
    batch = task().batch(0, 0)
    assert isinstance(batch, RatedBatch)
    pieces = batch.split(1)
    assert sorted(number for piece in pieces for number in piece.number_B.tolist()) == sorted(batch.number_B.tolist())


def test_a_batch_measured_in_pieces_gives_the_same_sums(task):
    made, base = task(), tiny_base()
    batch = made.batch(0, 0)
    whole = made.objective.measure(base.causal, batch)
    parts = [made.objective.measure(base.causal, piece) for piece in batch.split(1)]
    for name, sum_P in whole.sums.items():
        torch.testing.assert_close(sum(part.sums[name] for part in parts), sum_P, rtol=1e-5, atol=1e-5)
    assert made.objective.count(batch) == int(whole.count_P[0])


def test_its_slopes_are_measured_and_its_figures_told(task):
    made, base = task(), tiny_base()
    replica = Replica(base, tiny_settings(batch_size=4))
    measured = replica.measure(0, 7, made.objective, made.batch(0, 0))
    assert measured.is_finite
    found = evaluate(replica.causal, made)
    assert (tuple(found.figures), found.minimised) == (("error", "within_one"), "error")


def test_a_row_without_a_number_is_named(task):
    with pytest.raises(DataError, match='training rows, line 1: no number in column "number"'):
        task([{"text": "a"}])
