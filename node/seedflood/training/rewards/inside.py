"""The process of a local score: a script of its own, which `local` starts. Standard library only.

What it reads is one JSON object per line: first what to load and within which limits, then texts to score. It answers
each with one line. The kernel holds the limits. Programs and changes to files are refused by Python; so is the network,
and once more by a namespace where the kernel gives one to a user.
"""

import _posixsubprocess
import ctypes
import json
import math
import os
import resource
import signal
import sys
import time
from typing import Any, TextIO

CLONE_NEWUSER, CLONE_NEWNET, PR_SET_PDEATHSIG = 0x10000000, 0x40000000, 1
REFUSED = (
    *("socket.", "subprocess.", "os.system", "os.exec", "os.fork", "os.posix_spawn", "os.spawn", "pty.spawn"),
    *("os.remove", "os.rename", "os.rmdir", "os.mkdir", "os.link", "os.symlink", "os.truncate", "os.chmod", "os.chown"),
    "shutil.",
)
"""Audit events of Python."""
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
DETAIL_CHARACTERS_MAX = 200


def main() -> None:
    questions, answers = os.fdopen(os.dup(0)), os.fdopen(os.dup(1), "w")
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in range(3):  # what the score itself reads and prints goes nowhere
        os.dup2(nothing, descriptor)
    first = json.loads(questions.readline())
    limits = first["limits"]
    scope: dict[str, Any] = {"__name__": "score", "__file__": first["path"]}

    def load() -> float:
        _confine(limits["memory_bytes"])
        exec(compile(first["source"], first["path"], "exec"), scope)  # what the operator has allowed
        if not callable(scope.get(first["function"])):
            raise NameError(f"there is no function {first['function']}")
        return 0.0

    _answer(answers, load)
    for line in questions:
        asked = json.loads(line)
        _limit(resource.RLIMIT_CPU, math.ceil(time.process_time()) + limits["cpu_seconds"])
        _answer(answers, lambda: scope[first["function"]](asked["prompt"], asked["completion"], asked["row"]))  # noqa: B023


def _answer(answers: TextIO, score: Any) -> None:
    try:
        answer: dict[str, Any] = {"score": float(score())}
    except BaseException as error:  # also of exit(), which is no answer
        answer = {"kind": type(error).__name__, "detail": str(error)[:DETAIL_CHARACTERS_MAX]}
    answers.write(json.dumps(answer) + "\n")
    answers.flush()


def _confine(memory_bytes: int) -> None:
    _limit(resource.RLIMIT_AS, memory_bytes)
    _limit(resource.RLIMIT_FSIZE, 0)
    _limit(resource.RLIMIT_CORE, 0)
    if sys.platform == "linux":
        ctypes.CDLL(None).unshare(CLONE_NEWUSER | CLONE_NEWNET)
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # a node that is killed leaves nobody behind
    vars(_posixsubprocess)["fork_exec"] = lambda *args: _refuse("subprocess.fork_exec", args)  # it has no audit event
    sys.addaudithook(_refuse)


def _limit(kind: int, value: int) -> None:
    """The soft limit alone, for that of the CPU moves on."""
    hard = resource.getrlimit(kind)[1]
    resource.setrlimit(kind, (value if hard == resource.RLIM_INFINITY else min(value, hard), hard))


def _refuse(event: str, args: tuple[Any, ...]) -> None:
    is_write = event == "open" and args[0] != os.devnull and args[2] & WRITES
    if is_write or event.startswith(REFUSED):
        raise PermissionError(f"a score may not use {event}{' to write' if is_write else ''}")


if __name__ == "__main__":
    main()
