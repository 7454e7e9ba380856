from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seedflood.errors import ConfigError
from seedflood.training.shards import Shard, choose_rows, parse_shard, split_rows


def test_a_shard_is_written_as_the_second_of_sixteen():
    assert parse_shard("2/16") == Shard(1, 16)


@pytest.mark.parametrize("text", ["0/4", "5/4", "1", "1/0", "a/b", "-1/4", ""])
def test_what_is_no_shard_is_refused(text):
    with pytest.raises(ConfigError, match="is no share"):
        parse_shard(text)


@given(
    labels=st.lists(st.integers(0, 3), max_size=60),
    count=st.integers(1, 10),
    seed=st.integers(0, 2**63 - 1),
    skew=st.none() | st.floats(1e-3, 1e3),
)
def test_every_row_is_in_exactly_one_shard_and_none_is_empty_without_need(labels, count, seed, skew):
    shares = split_rows(labels, count, seed, skew)
    assert len(shares) == count
    assert sorted(row for share in shares for row in share) == list(range(len(labels)))
    assert sum(1 for share in shares if share) >= min(count, len(labels))


def test_equal_shares_differ_by_one_row_at_most():
    assert {len(share) for share in split_rows([0] * 50, 16, 1)} == {3, 4}


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


@given(rows=st.integers(0, 100), examples=st.none() | st.integers(1, 120), seed=st.integers(0, 2**63 - 1))
def test_the_rows_of_a_run_are_distinct_and_as_many_as_wanted(rows, examples, seed):
    chosen = choose_rows(rows, examples, seed)
    assert len(set(chosen)) == len(chosen) == (rows if examples is None else min(rows, examples))
