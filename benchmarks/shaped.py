"""A link between two network namespaces as a router would make it: so long, so narrow, and with a queue that ends.

The TCP of both ends runs over the whole way (`delay` ends it at a proxy): slow start, round trips, lost packets and the
sizes of socket buffers are real, and all connections share the link. A process passes packets from one TUN device to
the other. What finds the queue full is dropped. Linux and root are needed.
"""

import ctypes
import fcntl
import os
import select
import struct
import subprocess
import time
from collections import deque
from contextlib import ExitStack
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Self

from benchmarks.workers import Worker

ADDRESSES = ("10.93.0.1", "10.93.0.2")
CONGESTION_CONTROL = "cubic"
QUEUE_SECONDS_MIN = 0.05
"""The queue of a direction holds what the link carries in a round trip, or in this time."""

GSO_BYTES = 16_000
"""The kernel hands over up to so many bytes as one packet, and counts segments of 1,448 in it all the same."""

CLONE_NEWNET = 0x4000_0000
_TUNSETIFF, _TUNSETOFFLOAD = 0x4004_54CA, 0x4004_54D0
_IFF_TUN, _IFF_NO_PI, _IFF_VNET_HDR = 0x1, 0x1000, 0x4000
_TUN_F_CSUM, _TUN_F_TSO4 = 0x1, 0x2
_VNET_BYTES = 10
_PACKET_BYTES_MAX = 1 << 17


@dataclass(frozen=True, slots=True)
class Shape:
    """seconds: there and back. bytes_per_second: of each direction."""

    seconds: float
    bytes_per_second: float

    @property
    def queue_seconds(self) -> float:
        return max(QUEUE_SECONDS_MIN, self.seconds)


class ShapedLink:
    """names: of the two namespaces. Their hosts have the addresses `ADDRESSES`. Ends with its context."""

    def __init__(self, shape: Shape) -> None:
        self.names = tuple(f"seedflood-{os.getpid()}-{number}" for number in (1, 2))
        self._shape = shape
        self._open = ExitStack()

    def __enter__(self) -> Self:
        for name in self.names:
            _run("ip", "netns", "add", name)
            self._open.callback(_run, "ip", "netns", "del", name)
        self._open.enter_context(Worker(_serve, self.names, self._shape)).receive()
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()


def enter(name: str) -> None:
    """Moves this thread, and those that it starts, into a namespace."""
    with Path("/run/netns", name).open() as file:
        if ctypes.CDLL(None, use_errno=True).setns(file.fileno(), CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), "cannot enter the namespace", name)


class _Direction:
    """Packets on the way from one device to the other."""

    def __init__(self, source: int, target: int, shape: Shape) -> None:
        self.source = source
        self._target = target
        self._shape = shape
        self._free_at = 0.0
        self._on_the_way: deque[tuple[float, bytes]] = deque()

    @property
    def due(self) -> float:
        return self._on_the_way[0][0] if self._on_the_way else float("inf")

    def take(self) -> None:
        while True:
            try:
                packet = os.read(self.source, _PACKET_BYTES_MAX)
            except BlockingIOError:
                return
            now = time.monotonic()
            if self._free_at - now > self._shape.queue_seconds:
                continue
            self._free_at = max(self._free_at, now) + (len(packet) - _VNET_BYTES) / self._shape.bytes_per_second
            self._on_the_way.append((self._free_at + self._shape.seconds / 2, packet))

    def deliver(self) -> None:
        while self.due <= time.monotonic():
            _, packet = self._on_the_way.popleft()
            os.write(self._target, packet)


def _serve(pipe: Connection, names: tuple[str, str], shape: Shape) -> None:
    devices = [_open_device(name, address) for name, address in zip(names, ADDRESSES, strict=True)]
    ways = [_Direction(devices[0], devices[1], shape), _Direction(devices[1], devices[0], shape)]
    pipe.send(True)
    while True:
        wait = max(0.0, min(1.0, min(way.due for way in ways) - time.monotonic()))
        ready, _, _ = select.select([pipe.fileno(), *devices], [], [], wait)
        if pipe.fileno() in ready:
            return
        for way in ways:
            way.take()
            way.deliver()


def _open_device(name: str, address: str) -> int:
    device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    request = struct.pack("16sH22x", b"sf%d", _IFF_TUN | _IFF_NO_PI | _IFF_VNET_HDR)
    made = fcntl.ioctl(device, _TUNSETIFF, request)[:16].rstrip(b"\0").decode()
    fcntl.ioctl(device, _TUNSETOFFLOAD, _TUN_F_CSUM | _TUN_F_TSO4)
    _run("ip", "link", "set", made, "gso_max_size", str(GSO_BYTES), "txqueuelen", "1000", "netns", name)
    _run("ip", "-n", name, "address", "add", f"{address}/24", "dev", made)
    for one in (made, "lo"):
        _run("ip", "-n", name, "link", "set", one, "up")
    net = f"{address.rpartition('.')[0]}.0/24"
    _run("ip", "-n", name, "route", "replace", net, "dev", made, "src", address, "congctl", CONGESTION_CONTROL)
    return device


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True)
