import datasets
import pytest

from seedflood.errors import DataError
from seedflood.training.formats import BuiltIn
from seedflood.training.rows import choose_splits
from seedflood.training.sources import read_data, read_hub

EMPTY, WHOLE = (
    datasets.DatasetDict({split: datasets.Dataset.from_list(rows) for split in ("train", "validation")})
    for rows in ([], [{"sentence": "good", "label": 1}])
)


@pytest.fixture
def answers(monkeypatch):
    """What `datasets` answers, one after the other."""
    told = []
    monkeypatch.setattr(datasets, "load_dataset", lambda *_: told.pop(0))
    monkeypatch.setattr("seedflood.training.hub.find_fault", lambda *_: None)
    return told


def test_a_cache_that_has_no_rows_yet_is_not_believed(answers):
    answers += [EMPTY, WHOLE]
    splits = choose_splits(read_hub("any/rows", None), (), "any/rows")
    for table in (splits.train, splits.validation):
        assert [row.columns for row in table.rows] == [{"sentence": "good", "label": 1}]


def test_a_data_set_without_rows_is_refused_in_one_sentence(answers):
    answers += [EMPTY, EMPTY]
    with pytest.raises(DataError, match=r"\(it has no rows\)"):
        read_hub("any/rows", None)


def test_splits_of_the_hub_are_named_behind_the_data_set(answers):
    splits = {name: datasets.Dataset.from_list([{"text": name}]) for name in ("train", "test", "more")}
    answers += [datasets.DatasetDict(splits)] * 2
    chosen = read_data("any/rows#more, test")
    assert [table.rows[0].columns["text"] for table in (chosen.train, chosen.validation)] == ["more", "test"]
    with pytest.raises(DataError, match='any/rows has no split "other": it has train, test, more'):
        read_data("any/rows#other")


def test_a_task_of_the_hub_knows_its_splits(answers):
    answers.append(
        datasets.DatasetDict({one: datasets.Dataset.from_list([{"text": one}]) for one in ("train", "test")})
    )
    assert BuiltIn((), "any/rows", validation_split="test").read().validation.rows[0].columns == {"text": "test"}
