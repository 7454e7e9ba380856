"""A score from a file, in a process of its own."""

import hashlib
import os
import resource
import select
import signal
import subprocess
import sys

import pytest

from seedflood.errors import ConfigError
from seedflood.training.rewards.local import Limits, LocalScore, read_source
from seedflood.training.rewards.scorer import Guarded

FILE = """
import ctypes, math, multiprocessing, os, shutil, socket, subprocess, sys, threading, time

def score(prompt, completion, row):
    print("this goes nowhere")
    return eval(completion)

def forget(): globals().clear()
"""
LIMITS = Limits(cpu_seconds=1, seconds=20.0, memory_bytes=1 << 29)


@pytest.fixture(scope="module")
def local(tmp_path_factory):
    """The score whose value is what the completion says."""
    return LocalScore(tmp_path_factory.mktemp("scores") / "file.py", FILE.encode(), "score", LIMITS)


@pytest.fixture
def score(local):
    return Guarded("file.py:score", local)


def test_the_function_sees_prompt_completion_and_row(score, caplog):
    assert score("abc", "len(prompt) / 10", {}) == 0.3
    assert score("", "row['a'][1]", {"a": [0.25, 0.5]}) == 0.5
    assert score("", "True", {}) == 1.0
    assert caplog.messages == []


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("1 / 0", "ZeroDivisionError"),
        ("float('nan')", "not a number"),
        ("math.inf", "out of range"),
        ("1.01", "out of range"),
        ("-1", "out of range"),
        ("None", "TypeError"),
        ("sys.exit()", "SystemExit"),
        ("row['none']", "KeyError"),
        ("bytearray(1 << 31)", "MemoryError"),
        ("os._exit(3)", "ended its process"),
        ("os.kill(os.getpid(), 9)", "ended its process"),
        ("any(iter(int, 1))", "took too long"),
        ("socket.socket()", "PermissionError"),
        ("socket.create_connection(('127.0.0.1', 9))", "PermissionError"),
        ("subprocess.run(['true'])", "PermissionError"),
        ("os.system('true')", "PermissionError"),
        ("os.fork()", "PermissionError"),
        ("[one := multiprocessing.get_context('spawn').Process(), one.start()]", "PermissionError"),
        ("os.remove('/none')", "PermissionError"),
        ("os.mkdir('/none')", "PermissionError"),
        ("shutil.rmtree('/none')", "PermissionError"),
    ],
)
def test_what_goes_wrong_counts_as_nothing_is_told_once_and_the_next_text_is_scored(score, caplog, text, kind):
    assert score("", text, {}) == 0.0
    assert score("", "0.5", {}) == 0.5
    assert score("", text, {}) == 0.0
    assert len(caplog.messages) == 1
    assert caplog.messages[0].startswith(f"score file.py:score: {kind}")


def test_what_waits_too_long_is_ended(caplog):
    local = LocalScore("file.py", FILE.encode(), "score", LIMITS._replace(seconds=0.5))
    score = Guarded("file.py:score", local)
    assert score("", "threading.Event().wait()", {}) == 0.0
    assert caplog.messages == ["score file.py:score: took too long (more than 0.5 s); such a text counts as 0"]


def test_a_node_with_very_many_connections_scores_too(tmp_path):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 1400:
        pytest.skip("this user may not open so many files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 1400), hard))
    taken = [os.open(os.devnull, os.O_RDONLY) for _ in range(1100)]
    try:
        score = LocalScore(tmp_path / "file.py", FILE.encode(), "score", LIMITS)
        assert score("", "0.5", {}) == 0.5
        score.close()
    finally:
        for descriptor in taken:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_one_process_scores_many_texts_and_another_one_follows_a_crash(score):
    first, second = (score("", "os.getpid() / 2**40", {}) for _ in range(2))
    assert first == second
    score("", "os._exit(0)", {})
    assert score("", "os.getpid() / 2**40", {}) not in (0.0, first)


@pytest.mark.parametrize("opens", ["open({!r}, 'w')", "open({!r}, 'r+')", "os.open({!r}, os.O_WRONLY | os.O_TRUNC)"])
def test_nothing_is_written_and_what_is_there_stays(score, tmp_path, caplog, opens):
    (tmp_path / "file").write_text("kept")
    assert score("", opens.format(str(tmp_path / "file")), {}) == 0.0
    assert caplog.messages[0].startswith("score file.py:score: PermissionError (a score may not use open to write)")
    assert (tmp_path / "file").read_text() == "kept"
    assert score("", f"len(open({str(tmp_path / 'file')!r}).read()) / 10", {}) == 0.4


@pytest.mark.parametrize("said", ["'a' * 99_999", "'nothing' + chr(10)"])
def test_what_writes_where_answers_belong_is_ended_and_the_next_text_is_scored(score, caplog, said):
    """The pipe of the answers is a file like any other, for who looks for it."""
    frames = "sys._getframe(3).f_locals['answers']"
    assert score("", f"[{frames}.write({said}), {frames}.flush()]", {}) == 0.0
    assert caplog.messages[0].startswith("score file.py:score: wrote where only answers belong")
    assert score("", "0.5", {}) == 0.5


def test_what_a_score_starts_in_spite_of_all_ends_with_it():
    """A library in C asks nobody."""
    local = LocalScore("file.py", FILE.encode(), "score", LIMITS)
    started = os.pidfd_open(round(local("", "ctypes.CDLL(None).fork() or time.sleep(99)", {})))
    local.close()
    assert select.select([started], [], [], 20.0)[0]


def test_the_kernel_refuses_the_network_too(score):
    """By a namespace: Python alone would not stop a library in C."""
    unshare = "import ctypes, sys; sys.exit(ctypes.CDLL(None).unshare(0x10000000 | 0x40000000) != 0)"
    if subprocess.run([sys.executable, "-c", unshare], check=False).returncode:
        pytest.skip("the kernel gives no namespaces to this user")
    assert score(os.readlink("/proc/self/ns/net"), "float(os.readlink('/proc/self/ns/net') != prompt)", {}) == 1.0


def test_equal_texts_have_equal_hashes_in_every_process(local):
    first = local("", "hash('abc') / 2**64", {})
    local.close()
    assert local("", "hash('abc') / 2**64", {}) == first


def test_the_process_ends_with_the_score():
    local = LocalScore("file.py", FILE.encode(), "score", LIMITS)
    pid = round(local("", "os.getpid()", {}))
    os.kill(pid, signal.SIGCONT)  # it is there
    del local
    with pytest.raises(ProcessLookupError):
        os.kill(pid, signal.SIGCONT)


SLEEPER = """
import threading
from pathlib import Path
from seedflood.training.rewards.local import LocalScore
local = LocalScore(Path("f.py"), b"import time\\ndef score(*_): time.sleep(1e6)", "score")
threading.Thread(target=local, args=("", "", {}), daemon=True).start()
print(local._process.pid, flush=True)
input()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends a process with the one that started it")
def test_the_process_ends_with_a_node_that_is_killed_while_a_text_takes_for_ever():
    with subprocess.Popen([sys.executable, "-c", SLEEPER], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as node:
        process = os.pidfd_open(int(node.stdout.readline()))
        node.kill()
        assert select.select([process], [], [], 20)[0]
        os.close(process)


@pytest.mark.parametrize(
    ("source", "fault"),
    [
        ("def score(:", "SyntaxError"),
        ("import not_there", "ModuleNotFoundError"),
        ("score = 3", "NameError"),
        ("import os; os._exit(1)", "ended its process"),
        ("import socket; socket.socket()", "PermissionError"),
    ],
)
def test_a_file_that_cannot_be_loaded_is_refused_at_once(source, fault):
    with pytest.raises(ConfigError, match=rf"^file.py gives no score score \({fault}.*\): correct the file.$"):
        LocalScore("file.py", source.encode(), "score", LIMITS)


def test_only_the_file_that_the_run_names_is_read(tmp_path):
    path = tmp_path / "file.py"
    path.write_text(FILE)
    digest = hashlib.sha256(FILE.encode()).hexdigest()
    assert read_source(path, digest) == FILE.encode()
    for other, named in ((None, "has none"), ("0" * 64, "names 000000000000...")):
        with pytest.raises(ConfigError, match=f'{digest}, and .* {named}: write score_sha256 = "{digest}" if'):
            read_source(path, other)
    with pytest.raises(ConfigError, match=r"Cannot read .*none.py \(No such file or directory\)"):
        read_source(tmp_path / "none.py", digest)
