"""The process that forks the nodes of `seedflood local`: PyTorch is imported once, and not by each of them.

A node that is forked is a process like any other, with an id, signals, an exit code and outputs of its own. It runs the
command of `seedflood-node` from its first line on; only the modules are there already. Nothing is computed before: a
process in which PyTorch has threads, or has touched a GPU, must not be forked. If a library has started a thread when
it was imported, every node imports for itself. Nodes that nobody watches any more get a signal to end.

The argument is a list of nodes in JSON: the words of each command, the file of its stdout, and the number of the pipe
that is its stderr. What stdout was at first gets a line for each fact: number of the node, "pid" or "code", value.
Whatever a module prints while it is imported goes to stderr.
"""

import contextlib
import json
import os
import signal
import sys
from typing import Any

from seedflood.cli import node_main
from seedflood.host import garbage, signals

BLOCKED = {signal.SIGTERM, signal.SIGCHLD}
LOOK_SECONDS = 1.0
"""How often the nodes' parent looks whether somebody watches them."""


def main() -> None:
    """Forks all nodes, and waits for them. In a node it returns when the node has ended."""
    for of_terminal in (signal.SIGINT, signal.SIGHUP):  # Ctrl-C is for the nodes and for whoever watches them
        signal.signal(of_terminal, signal.SIG_IGN)
    nodes, parent, facts = json.loads(sys.argv[1]), os.getppid(), os.dup(1)
    os.dup2(2, 1)
    garbage.defer()
    with contextlib.suppress(Exception):  # a node says itself what it cannot import
        _import_all()
    if os.getppid() != parent:
        return None  # nobody watches any more
    numbers, has_threads = {}, len(os.listdir("/proc/self/task")) > 1
    signal.pthread_sigmask(signal.SIG_BLOCK, BLOCKED)  # else a node might be forked of which nobody knows
    for number, node in enumerate(nodes):
        pipes = [one["stderr"] for one in nodes[number:]]
        os.environ["LOCAL_RANK"] = str(number)
        if (pid := _spawn(node, pipes) if has_threads else os.fork()) == 0:
            _become(node, [facts, *pipes])
            with signals.begin(is_daemon=True):
                signal.pthread_sigmask(signal.SIG_UNBLOCK, BLOCKED)
                return node_main()
        os.close(node["stderr"])
        numbers[pid] = number
        _write(facts, number, "pid", pid)
    is_over = False
    while numbers:
        received = signal.sigtimedwait(BLOCKED, LOOK_SECONDS)
        while numbers and (ended := os.waitpid(-1, os.WNOHANG))[0]:
            _write(facts, numbers.pop(ended[0]), "code", os.waitstatus_to_exitcode(ended[1]))
        if not is_over and (os.getppid() != parent or (received and received.si_signo == signal.SIGTERM)):
            is_over = True
            for pid in numbers:
                os.kill(pid, signal.SIGTERM)
    return None


def _import_all() -> None:
    import seedflood.cli.commands
    import seedflood.host.process  # noqa: F401  # seconds, and so is what follows
    from seedflood.training.models import import_families

    import_families()


def _become(node: dict[str, Any], pipes: list[int]) -> None:
    """pipes: of others, and the one that is our stderr. A pipe ends when its last writer does."""
    results = _open_stdout(node)
    os.dup2(results, 1)
    os.dup2(node["stderr"], 2)
    for file in (results, *pipes):
        os.close(file)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.argv = ["seedflood-node", *node["words"]]


def _spawn(node: dict[str, Any], pipes: list[int]) -> int:
    """Starts a node in a Python of its own. pipes: of others, and the one that is its stderr. Returns its id."""
    results = _open_stdout(node)
    files = [(os.POSIX_SPAWN_DUP2, results, 1), (os.POSIX_SPAWN_DUP2, node["stderr"], 2)]
    pid = os.posix_spawn(
        sys.executable,
        [sys.executable, "-m", "seedflood", *node["words"]],
        os.environ,
        file_actions=[*files, *((os.POSIX_SPAWN_CLOSE, pipe) for pipe in pipes)],
        setsigmask=(),
        setsigdef=(signal.SIGINT, signal.SIGHUP),
    )
    os.close(results)
    return pid


def _open_stdout(node: dict[str, Any]) -> int:
    return os.open(node["stdout"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)


def _write(facts: int, number: int, what: str, value: int) -> None:
    with contextlib.suppress(BrokenPipeError):  # nobody watches any more
        os.write(facts, f"{json.dumps([number, what, value])}\n".encode())


if __name__ == "__main__":
    main()
