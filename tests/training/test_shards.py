import pytest
from hypothesis import given
from hypothesis import strategies as st

from seedflood.config import load_settings
from seedflood.errors import ConfigError
from seedflood.training.shards import Shard, choose_rows, parse_shard


def test_a_shard_is_written_as_the_second_of_sixteen():
    assert parse_shard("2/16") == Shard(1, 16)


@pytest.mark.parametrize("text", ["0/4", "5/4", "1", "1/0", "a/b", "-1/4", ""])
def test_what_is_no_shard_is_refused(text):
    with pytest.raises(ConfigError, match="is no share"):
        load_settings(None, {"node": {"shard": text}})


@given(rows=st.integers(0, 100), examples=st.none() | st.integers(1, 120), seed=st.integers(0, 2**63 - 1))
def test_the_rows_of_a_run_are_distinct_and_as_many_as_wanted(rows, examples, seed):
    chosen = choose_rows(rows, examples, seed)
    assert len(set(chosen)) == len(chosen) == (rows if examples is None else min(rows, examples))
