import datasets
import pytest

from seedflood.errors import DataError
from seedflood.training.rows import read_hub

EMPTY, WHOLE = (
    datasets.DatasetDict({split: datasets.Dataset.from_list(rows) for split in ("train", "validation")})
    for rows in ([], [{"sentence": "good", "label": 1}])
)


def test_a_cache_that_has_no_rows_yet_is_not_believed(monkeypatch):
    answers = iter([EMPTY, WHOLE])
    monkeypatch.setattr(datasets, "load_dataset", lambda *_: next(answers))
    monkeypatch.setattr("seedflood.training.hub.find_fault", lambda *_: None)
    train, validation = read_hub("any/rows", None, "validation")
    assert train[0].columns == validation[0].columns == {"sentence": "good", "label": 1}


def test_a_data_set_without_rows_is_refused_in_one_sentence(monkeypatch):
    monkeypatch.setattr(datasets, "load_dataset", lambda *_: EMPTY)
    monkeypatch.setattr("seedflood.training.hub.find_fault", lambda *_: None)
    with pytest.raises(DataError, match=r"\(it has no rows\)"):
        read_hub("any/rows", None, "validation")
