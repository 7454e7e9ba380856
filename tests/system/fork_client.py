"""Asks the fork server (`fork_server`) for a process, and stands in its place: as `python`, `seedflood` or
`seedflood-node`, by the name under which this file is called.

It begins within some hundredths of a second, because it imports next to nothing. What it was given goes to the process:
words, folder, environment, files, limits, ignored signals and namespaces. Signals that it gets, it passes on; it ends
as the process does. If it is killed, so is the process.
"""

import json
import os
import resource
import signal
import socket
import struct
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress

SOCKET = "socket"
"""In the folder of the programs."""

NUMBER = struct.Struct("!i")
"""What the server answers with: the id of the process, and in the end its exit code, negative if a signal ended it."""

PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
NAMESPACES = ("net", "mnt")
LIMITS = [number for name, number in vars(resource).items() if name.startswith("RLIMIT_")]


def ask(
    home: str,
    words: Sequence[str],
    folder: str,
    environment: Mapping[str, str],
    files: Mapping[int, int],
    namespaces: Sequence[int] = (),
) -> tuple[socket.socket, int]:
    """home: where the programs are. words: the first is one of them. files: what the process has under these numbers.
    namespaces: files that stand for those which it enters. Returns the connection, and the id of the process, which
    lives as long as the connection."""
    request = {
        "words": list(words),
        "python": os.path.join(home, "python"),
        "folder": folder,
        "environment": dict(environment),
        "files": list(files),
        "ignored": [number for number in PASSED_ON if signal.getsignal(number) is signal.SIG_IGN],
        "limits": {number: resource.getrlimit(number) for number in LIMITS},
    }
    data = json.dumps(request).encode()
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(os.path.join(home, SOCKET))
    socket.send_fds(connection, [NUMBER.pack(len(data))], [*files.values(), *namespaces])
    connection.sendall(data)
    return connection, receive(connection)


def receive(connection: socket.socket) -> int:
    data = connection.recv(NUMBER.size, socket.MSG_WAITALL)
    assert len(data) == NUMBER.size, "the fork server has ended"
    return int(NUMBER.unpack(data)[0])


def main() -> None:
    program, words = os.path.basename(sys.argv[0]), sys.argv[1:]
    if program == "python" and (not words or (words[0].startswith("-") and words[0] not in ("-c", "-m"))):
        os.execv(sys.executable, [sys.executable, *words])  # of the other ways to start Python
    process, early = 0, list[int]()

    def pass_on(number: int, _: object) -> None:
        if process:
            with suppress(ProcessLookupError):
                os.kill(process, number)
        else:
            early.append(number)

    for number in PASSED_ON:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, pass_on)
    files = {number: number for number in map(int, os.listdir("/proc/self/fd")) if os.path.exists(f"/dev/fd/{number}")}
    namespaces = [os.open(f"/proc/self/ns/{kind}", os.O_RDONLY) for kind in NAMESPACES]
    home = os.path.dirname(os.path.realpath(sys.argv[0]))
    connection, process = ask(home, [program, *words], os.getcwd(), os.environ, files, namespaces)
    for number in early:
        pass_on(number, None)
    for number in (*files, *namespaces):
        os.close(number)  # whoever reads what the process writes sees it end
    code = receive(connection)
    if code < 0:
        with suppress(OSError):  # SIGKILL has no handler
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


if __name__ == "__main__":
    main()
