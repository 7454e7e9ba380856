"""Labels are spread over clients as a Dirichlet distribution says."""

import json
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seedflood.config import ObjectiveSettings
from seedflood.training.sources import read_data
from study.rows import Sizes, split
from study.skew import deal, split_rows


def rows_in(folder):
    """(rows to train on, rows to validate on)."""
    splits = read_data(str(folder))
    return splits.train.rows, splits.validation.rows


@given(
    labels=st.lists(st.integers(0, 3), max_size=60),
    count=st.integers(1, 10),
    seed=st.integers(0, 2**63 - 1),
    skew=st.floats(1e-3, 1e3),
)
def test_every_row_is_in_exactly_one_shard_and_none_is_empty_without_need(labels, count, seed, skew):
    shares = split_rows(labels, count, seed, skew)
    assert len(shares) == count
    assert sorted(row for share in shares for row in share) == list(range(len(labels)))
    assert sum(1 for share in shares if share) >= min(count, len(labels))


def test_a_small_concentration_skews_and_a_large_one_does_not():
    labels = [0, 1] * 500

    def largest_share_of_a_label(skew):
        counts = [Counter(labels[row] for row in share) for share in split_rows(labels, 4, 1, skew)]
        return max(count[label] for count in counts for label in (0, 1)) / 500

    assert largest_share_of_a_label(0.05) > 0.7
    assert largest_share_of_a_label(1000.0) < 0.33


def test_urn_shares_have_the_mean_and_variance_of_a_dirichlet():
    shares = [len(split_rows([0] * 200, 2, seed, 1.0)[0]) / 200 for seed in range(400)]
    mean = sum(shares) / len(shares)
    variance = sum((share - mean) ** 2 for share in shares) / len(shares)
    assert mean == pytest.approx(1 / 2, abs=0.05)
    assert variance == pytest.approx(1 / 12, rel=0.2)


def test_each_client_has_a_folder_with_its_rows_and_all_validation_rows(tmp_path):
    objective = ObjectiveSettings(task="embedded")
    found = split(objective, None, Sizes(train=40, validation=8, test=8), tmp_path)
    folders = deal(objective, found.tuning, 4, 1, 0.5, tmp_path / "rows")
    dealt = [rows_in(folder) for folder in folders]
    train, validation = rows_in(found.tuning)

    def spelled(rows):
        return sorted(json.dumps(dict(row.columns), sort_keys=True) for row in rows)

    assert spelled(row for rows, _ in dealt for row in rows) == spelled(train)
    assert all(spelled(rows) == spelled(validation) for _, rows in dealt)
