"""Hosts of one machine that fetch the same at once: none reads what another is still fetching."""

import fcntl
import threading

import datasets
import pytest

from seedflood.training import hub, models
from seedflood.training.sources import read_hub


@pytest.fixture
def cache(monkeypatch, tmp_path):
    monkeypatch.setattr(hub.constants, "HF_HUB_CACHE", str(tmp_path))
    return tmp_path


def test_what_is_being_fetched_is_read_when_it_is_there(cache, monkeypatch):
    waits, order = threading.Event(), []

    def read() -> None:
        with hub.reading("model", "any/model"):
            order.append("read")

    monkeypatch.setattr(hub._log, "warning", lambda *_: waits.set())
    with hub.reading("model", "any/model", fetches=True):
        reader = threading.Thread(target=read)
        reader.start()
        assert waits.wait(20)
        order.append("fetched")
    reader.join(20)
    assert order == ["fetched", "read"]


def test_all_read_at_once_what_is_there(cache):
    with hub.reading("model", "any/model"), hub.reading("model", "any/model"):
        pass


def test_a_cache_in_which_nothing_can_be_written_is_read(cache):
    (cache / ".locks").write_text("not a folder")
    with hub.reading("dataset", "any/rows", fetches=True):
        pass


def read_model() -> None:
    models._read("any/model")


def read_rows() -> None:
    read_hub("any/rows", None)


@pytest.mark.parametrize("read", [read_model, read_rows])
def test_models_and_rows_are_fetched_alone_and_read_together(cache, monkeypatch, read):
    turns = []

    def note(*_, **__):
        (lock,) = (cache / ".locks").iterdir()
        with lock.open("ab") as other:
            turns.append([may_have(other, how) for how in (fcntl.LOCK_SH, fcntl.LOCK_EX)])
        if len(turns) == 1:
            raise FileNotFoundError
        return datasets.DatasetDict({"train": datasets.Dataset.from_list([{"text": "good"}])})

    monkeypatch.setattr(hub, "find_fault", lambda *_: None)
    monkeypatch.setattr(models, "_read_files", note)
    monkeypatch.setattr(datasets, "load_dataset", note)
    read()
    assert turns == [[True, False], [False, False]]


def may_have(lock, how: int) -> bool:
    try:
        fcntl.flock(lock, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    fcntl.flock(lock, fcntl.LOCK_UN)
    return True
