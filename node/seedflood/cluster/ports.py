"""Ports on loopback for processes that are about to start."""

import random
import socket
from itertools import islice
from pathlib import Path

LOWEST = 10_000
EPHEMERAL = Path("/proc/sys/net/ipv4/ip_local_port_range")
EPHEMERAL_DEFAULT = 32_768


def free_ports(count: int) -> list[int]:
    """Ports on which nobody listens, outside of the ephemeral range: the kernel gives those to anyone who asks for any
    port, as `[node] http` may."""
    candidates = list(range(LOWEST, _first_ephemeral()))
    random.shuffle(candidates)
    return list(islice(filter(_is_free, candidates), count))


def _is_free(port: int) -> bool:
    with socket.socket() as trial:
        return trial.connect_ex(("127.0.0.1", port)) != 0


def _first_ephemeral() -> int:
    try:
        first = int(EPHEMERAL.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return EPHEMERAL_DEFAULT
    return first if first > LOWEST + 1000 else EPHEMERAL_DEFAULT
