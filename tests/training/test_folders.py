"""Folders of exports."""

import errno
import stat

import pytest
from safetensors import SafetensorError

from seedflood.errors import DiskFullError, ExhaustedError, ModelError
from seedflood.training.folders import writing_folder


def test_everybody_may_read_what_is_exported_also_in_folders_below(tmp_path):
    with writing_folder(tmp_path / "model", "config.json", "A card.") as beside:
        (beside / "config.json").touch(mode=0o600)
        (beside / "additional_chat_templates").mkdir()
        (beside / "additional_chat_templates" / "tools.jinja").touch(mode=0o600)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "model").rglob("*")}
    assert modes == {"README.md": 0o644, "config.json": 0o644, "additional_chat_templates": 0o755, "tools.jinja": 0o644}


@pytest.mark.parametrize("kind", [SafetensorError, Exception])
def test_a_full_disk_is_told_as_such_whichever_library_has_found_it(tmp_path, kind):
    """tokenizers raises a plain Exception."""
    with (
        pytest.raises(DiskFullError, match=r"no space to export to .*model: free some"),
        writing_folder(tmp_path / "model", "config.json", "A card."),
    ):
        raise kind("Error while serializing: I/O error: No space left on device (os error 28)")
    assert not any(tmp_path.iterdir())


def test_a_full_disk_is_told_apart_from_other_faults_of_it(tmp_path):
    for number, told in (
        (errno.ENOSPC, DiskFullError),
        (errno.EDQUOT, DiskFullError),
        (errno.EIO, ModelError),
        (errno.EMFILE, ExhaustedError),
    ):
        with pytest.raises(told), writing_folder(tmp_path / "model", "config.json", "A card."):
            raise OSError(number, "no luck")


def test_what_is_no_fault_of_the_disk_is_not_told_as_one(tmp_path):
    with pytest.raises(ZeroDivisionError), writing_folder(tmp_path / "model", "config.json", "A card."):
        raise ZeroDivisionError
