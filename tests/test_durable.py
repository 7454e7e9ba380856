"""A file is there whole and on the disk, or not at all."""

import errno
import os
import stat
from pathlib import Path

import pytest

from seedflood import durable


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_written_file_is_there_alone_with_its_mode(tmp_path):
    path = tmp_path / "result.json"
    for data, mode in ((b"first", 0o600), (b"second", 0o644)):
        durable.write(path, data, mode=mode)
        assert path.read_bytes() == data
        assert stat.S_IMODE(path.stat().st_mode) == mode & ~umask()
    assert names(tmp_path) == ["result.json"]


@pytest.mark.parametrize("is_contested", [False, True])
def test_what_fails_while_it_is_written_leaves_all_as_it_was(tmp_path, is_contested):
    path = tmp_path / "result.json"
    durable.write(path, b"before")
    with pytest.raises(KeyboardInterrupt):
        write_half(path, is_contested)
    assert path.read_bytes() == b"before"
    assert names(tmp_path) == ["result.json"]


def test_the_draft_of_a_crash_is_in_nobodys_way(tmp_path):
    (tmp_path / "result.json.draft").write_bytes(b"half of something longer")
    durable.write(tmp_path / "result.json", b"whole")
    assert (tmp_path / "result.json").read_bytes() == b"whole"
    assert names(tmp_path) == ["result.json"]


@pytest.mark.parametrize("is_contested", [False, True])
def test_the_content_is_on_the_disk_before_the_name_and_the_name_before_it_returns(tmp_path, monkeypatch, is_contested):
    done = []

    def noted(call):
        def noting(what, *others):
            done.append(Path(os.readlink(f"/proc/self/fd/{what}")).name if call is fsync else "in its place")
            return call(what, *others)

        return noting

    fsync, replace, link = os.fsync, os.replace, os.link
    monkeypatch.setattr(os, "fsync", noted(fsync))
    monkeypatch.setattr(os, "replace", noted(replace))
    monkeypatch.setattr(os, "link", noted(link))
    with durable.draft(tmp_path / "key", is_contested=is_contested) as draft:
        draft.write_bytes(b"content")
    assert done == [draft.name, "in its place", tmp_path.name]


def test_of_two_that_make_one_file_the_first_stays(tmp_path):
    path = tmp_path / "key"
    with pytest.raises(FileExistsError):
        write_two(path)
    assert path.read_bytes() == b"first"
    assert names(tmp_path) == ["key"]


@pytest.mark.parametrize("number", [errno.EINVAL, errno.ENOTSUP, errno.ENOSYS, errno.EBADF])
def test_a_file_system_that_forces_no_folders_is_good_enough(tmp_path, monkeypatch, number):
    refuse_folders(monkeypatch, number)
    durable.write(tmp_path / "result.json", b"whole")
    assert (tmp_path / "result.json").read_bytes() == b"whole"


def test_a_disk_that_fails_is_told(tmp_path, monkeypatch):
    refuse_folders(monkeypatch, errno.EIO)
    with pytest.raises(OSError, match="Input/output error"):
        durable.write(tmp_path / "result.json", b"whole")


@pytest.mark.parametrize("number", [errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS])
def test_without_hard_links_too_the_first_stays(tmp_path, monkeypatch, number):
    def refuse(*_):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "link", refuse)
    test_of_two_that_make_one_file_the_first_stays(tmp_path)


def refuse_folders(monkeypatch, number):
    fsync = os.fsync

    def refuse(file):
        if stat.S_ISDIR(os.fstat(file).st_mode):
            raise OSError(number, os.strerror(number))
        fsync(file)

    monkeypatch.setattr(os, "fsync", refuse)


def write_half(path, is_contested):
    with durable.draft(path, is_contested=is_contested) as draft:
        draft.write_bytes(b"half")
        raise KeyboardInterrupt


def write_two(path):
    with durable.draft(path, is_contested=True) as late:
        late.write_bytes(b"late")
        with durable.draft(path, is_contested=True) as first:
            first.write_bytes(b"first")


def umask():
    mask = os.umask(0)
    os.umask(mask)
    return mask
