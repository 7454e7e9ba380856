"""A refused export never loses a run: it is told before, or what was learned is kept."""

import json
import resource
import subprocess
from pathlib import Path

import pytest
from forks import programs

from seedflood.errors import ExitCode

pytestmark = pytest.mark.system

FILE_BYTES_MAX = 420_000
"""Of the process: less than the weights of the embedded model take, and more than any other file."""


def local(home, *words, file_bytes_max=resource.RLIM_INFINITY):
    command = [programs() / "seedflood", "local", "--nodes", "2", "--steps", "4", *map(str, words)]
    return subprocess.run(
        command,
        env={"PATH": "/usr/bin:/bin", "TMPDIR": str(home), "HF_HUB_OFFLINE": "1", "HOME": str(home)},
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (file_bytes_max, file_bytes_max)),
    )


def test_a_run_whose_export_fails_at_its_end_is_kept_and_exported_by_the_command_that_is_told(tmp_path):
    """Without --folder it lay in a temporary folder that nobody named, and had no result."""
    ran = local(tmp_path, "--export", tmp_path / "out", file_bytes_max=FILE_BYTES_MAX)
    assert ran.returncode == ExitCode.CONFIG, ran.stderr
    sentence = ran.stderr.strip().splitlines()[-1]
    assert f"Cannot export to {tmp_path / 'out'}" in sentence
    (home,) = tmp_path.glob("seedflood-*")
    assert f"What the nodes have learned is kept in {home}" in sentence
    result = json.loads((home / "node-1/state/result.json").read_text())["result"]
    other = json.loads((home / "node-2/state/result.json").read_text())["result"]
    assert (result["steps"], result["digest"]) == (4, other["digest"])
    told = sentence.rpartition(" export ")[2].replace("FOLDER", str(tmp_path / "out")).split()
    made = subprocess.run([programs() / "seedflood", "export", *told], capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stderr
    assert result["digest"] in (tmp_path / "out/README.md").read_text()


def test_an_export_for_which_there_is_no_space_is_told_before_the_run(tmp_path):
    full = tmp_path / "full"
    full.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=100k", "tmpfs", full], capture_output=True, check=False
    )
    if mounted.returncode != 0:
        pytest.skip("this user may mount no small disk")
    try:
        ran = local(tmp_path, "--export", full / "out")
    finally:
        subprocess.run(["umount", full], check=True)
    assert ran.returncode == ExitCode.DISK, ran.stderr
    assert f"no space to export to {full / 'out'}: the model takes" in ran.stderr
    assert "learned is kept" not in ran.stderr, "nothing was trained"
    assert not any(Path(tmp_path).glob("seedflood-*/node-1/state/journal.sqlite"))
