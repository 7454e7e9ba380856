"""A journal can be copied while a node writes it."""

import shutil
import tempfile
from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from journals import bundle, open_journal

from seedflood.errors import JournalError
from seedflood.storage import copying, store
from seedflood.storage.copying import copy_journal

UPDATES = 64
"""Of a bundle: it takes a page or more, so that groups write different pages."""


@settings(deadline=None, max_examples=50)
@given(st.integers(0, 20), st.lists(st.integers(0, 20), max_size=4))
def test_a_copy_has_all_that_was_committed_before_whatever_is_written_meanwhile(first, meanwhile):
    """first: groups before the copy. meanwhile: after each file that is copied. A checkpoint comes every few groups."""
    copyfile, copied = shutil.copyfile, iter(meanwhile)
    with (
        tempfile.TemporaryDirectory() as folder,
        tempfile.TemporaryDirectory() as other,
        patch.object(store, "CHECKPOINT_PAGES", 8),
        open_journal(folder) as journal,
    ):

        def write(groups):
            for step in range(journal.last_step(1) + 1, UPDATES * groups + journal.last_step(1) + 1, UPDATES):
                journal.append([bundle(1, step, updates=UPDATES)], durable=False)
                journal.commit()

        def copy(*paths):
            copyfile(*paths)
            write(next(copied, 0))

        write(first)
        with patch.object(copying.shutil, "copyfile", copy):
            copy_journal(journal.path, Path(other))
        with open_journal(other) as found:
            assert found.damaged is None
            steps = [one.step for one in found.replay()]
        assert steps == list(range(0, UPDATES * len(steps), UPDATES))
        assert UPDATES * first <= UPDATES * len(steps) <= journal.last_step(1) + 1


def test_a_journal_whose_log_always_begins_anew_is_one_sentence(tmp_path, monkeypatch):
    open_journal(tmp_path).close()
    (tmp_path / "copy").mkdir()
    headers = (bytes([number]) for number in range(255))
    monkeypatch.setattr(copying, "_header", lambda _: next(headers))
    with pytest.raises(JournalError, match="changes too fast"):
        copy_journal(tmp_path / "journal", tmp_path / "copy")
