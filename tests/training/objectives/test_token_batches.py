import pytest
import torch
from reference import tiny_batch

from seedflood.training.objectives.batches import pad


def as_rows(batch):
    labels = getattr(batch, "label_B", torch.zeros(len(batch.lengths_B)))
    columns = zip(batch.tokens_BT.tolist(), batch.lengths_B.tolist(), labels.tolist(), strict=True)
    return [(tuple(tokens[:length]), label) for tokens, length, label in columns]


def test_rows_are_padded_to_the_longest():
    tokens_BT, lengths_B = pad([(1, 2, 3), (4,)], 9)
    assert tokens_BT.tolist() == [[1, 2, 3], [4, 9, 9]]
    assert lengths_B.tolist() == [3, 1]


@pytest.mark.parametrize("labelled", [True, False])
def test_some_rows_keep_their_own_labels_and_lose_padding(labelled):
    batch = tiny_batch(labelled=labelled)
    picked = batch.rows(torch.tensor([4, 1]))
    assert as_rows(picked) == [as_rows(batch)[4], as_rows(batch)[1]]
    assert picked.tokens_BT.shape[1] == int(picked.lengths_B.max())


@pytest.mark.parametrize("labelled", [True, False])
def test_a_split_has_every_row_once(labelled):
    batch = tiny_batch(9, labelled=labelled)
    pieces = batch.split(0)
    assert len(pieces) == len(set(batch.lengths_B.tolist()))
    assert sorted(row for piece in pieces for row in as_rows(piece)) == sorted(as_rows(batch))


@pytest.mark.parametrize("labelled", [True, False])
def test_copies_stand_one_below_the_other(labelled):
    batch = tiny_batch(labelled=labelled)
    assert as_rows(batch.repeated(3)) == as_rows(batch) * 3
