"""A way to a host that stops in the middle: it passes so many bytes from there, and then no more.

So a test finds a transfer under way, however quick the machine is.
"""

import contextlib
import socket
import threading

CHUNK_BYTES = 1 << 16


class Meters:
    """Ways to several hosts. The first that has passed `bytes_max` from its host stops, and it alone."""

    def __init__(self, bytes_max: int) -> None:
        self.is_full = threading.Event()
        self.stopped = ""
        """The address of the host behind the way that stopped."""
        self._bytes_max = bytes_max
        self._turn = threading.Lock()
        self._sockets: list[socket.socket] = []

    def open(self, address: str) -> str:
        """A way to this host; its own address."""
        door = socket.create_server(("127.0.0.1", 0))
        self._sockets.append(door)
        threading.Thread(target=self._accept, args=(door, address), daemon=True).start()
        return f"127.0.0.1:{door.getsockname()[1]}"

    def close(self) -> None:
        for one in self._sockets:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def _accept(self, door: socket.socket, address: str) -> None:
        name, _, port = address.rpartition(":")
        with contextlib.suppress(OSError):  # closed
            while True:
                here = door.accept()[0]
                try:
                    there = socket.create_connection((name, int(port)))
                except OSError:  # the host is down, and so is the way to it
                    here.close()
                    continue
                self._sockets += [here, there]
                threading.Thread(target=self._pass, args=(here, there, None), daemon=True).start()
                threading.Thread(target=self._pass, args=(there, here, address), daemon=True).start()

    def _pass(self, source: socket.socket, sink: socket.socket, metered: str | None) -> None:
        """metered: the host that the bytes come from, if they count."""
        passed = 0
        with contextlib.suppress(OSError):
            while chunk := source.recv(CHUNK_BYTES):
                passed += len(chunk)
                if metered is not None and passed > self._bytes_max and self._is_first(metered):
                    return
                sink.sendall(chunk)
        for one in (source, sink):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def _is_first(self, address: str) -> bool:
        with self._turn:
            if self.stopped:
                return False
            self.stopped = address
        self.is_full.set()
        return True
