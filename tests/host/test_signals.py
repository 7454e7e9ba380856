"""What a process does first: signals are heard, and no stream is missing, before anything is imported."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

SLOW = """
import sys
class Slow:
    @staticmethod
    def find_spec(name, *_):
        if name == "seedflood.cli.faults":
            print("importing", flush=True)
            sys.stdin.readline()
sys.meta_path.insert(0, Slow)
from seedflood import cli
sys.argv = {words}
cli.{entry}()
"""


def starting(entry, *words, inside=()):
    """A command that has just begun; it goes on when it is told so."""
    program = SLOW.format(words=[entry, *words], entry=entry)
    process = subprocess.Popen(
        [*inside, sys.executable, "-c", program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline() == "importing\n"
    return process


AS_FIRST = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]
"""As process 1 of a container, to which the kernel delivers no signal without a handler."""


@pytest.mark.parametrize(("entry", "words"), [("node_main", ()), ("main", ("relay",))])
def test_sigterm_in_the_first_moment_ends_a_daemon_with_0(entry, words):
    process = starting(entry, *words)
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 0
    assert json.loads(errors)["event"] == "stopped while loading"


def test_sigterm_in_the_first_moment_interrupts_any_other_command_as_ctrl_c_does():
    process = starting("main", "local")
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 75
    assert errors.split() == ["seedflood:", "interrupted"]


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to make a namespace of processes")
def test_the_first_process_of_a_container_hears_sigterm():
    process = starting("node_main", inside=AS_FIRST)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    os.kill(int(children.read_text()), signal.SIGTERM)
    process.communicate(timeout=60)
    assert process.returncode == 0


def test_sighup_in_the_first_moment_is_remembered():
    program = (
        "import os, signal\nfrom seedflood.host import signals\n"
        "with signals.begin(is_daemon=True):\n"
        "    os.kill(os.getpid(), signal.SIGHUP)\n"
        "    print(signals.take_reload(), signals.take_reload())\n"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == ["True", "False"]


@pytest.mark.parametrize("closed", ["2>&-", "<&-", "<&- >&- 2>&-", ">&- 2>&-", "<&- 2>&-"])
def test_streams_that_are_closed_are_no_numbers_for_other_files(tmp_path, closed):
    program = (
        "import os\nfrom seedflood.host import signals\n"
        "with signals.begin(is_daemon=False):\n"
        "    names = [os.open(os.devnull, os.O_RDONLY)]\n"
        f"    open({str(tmp_path / 'said')!r}, 'w').write(str(names))\n"
    )
    shell = f'exec "$0" -c "$1" {closed}'
    subprocess.run(["sh", "-c", shell, sys.executable, program], check=True)
    (number,) = json.loads((tmp_path / "said").read_text())
    assert number >= 3


@pytest.mark.parametrize(
    ("words", "code"), [("config check", 0), ("config check --peers no.toml", 78), ("local --nods 3", 2)]
)
def test_a_closed_stderr_changes_no_exit_code(tmp_path, words, code):
    (tmp_path / "peers.toml").write_text("[run]\n")
    shell = f'exec "$0" -c "from seedflood.cli import main; main()" {words} 2>&-'
    ran = subprocess.run(["sh", "-c", shell, sys.executable], cwd=tmp_path, capture_output=True, check=False)
    assert ran.returncode == code


def test_a_process_may_open_as_many_files_as_its_user():
    program = (
        "import resource\nfrom seedflood.host import signals\n"
        "with signals.begin(is_daemon=False):\n"
        "    print(*resource.getrlimit(resource.RLIMIT_NOFILE))\n"
    )
    shell = 'ulimit -Sn 200; ulimit -Hn 900; exec "$0" -c "$1"'
    ran = subprocess.run(["sh", "-c", shell, sys.executable, program], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == ["900", "900"]


def test_a_stream_that_a_fork_has_moved_to_a_pipe_is_taken_as_it_is():
    program = (
        "import os\nfrom seedflood.host import signals\n"
        "os.dup2(os.pipe()[1], 1)\n"  # a node of `seedflood local >&-` was forked with /dev/null there
        "with signals.begin(is_daemon=True): print('heard', flush=True)\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False
    )
    assert (ran.returncode, ran.stderr) == (0, "")
