"""Ports on loopback for processes that are about to start."""

import random
import socket
from itertools import islice
from pathlib import Path

LOWEST = 10_000
EPHEMERAL = Path("/proc/sys/net/ipv4/ip_local_port_range")
EPHEMERAL_DEFAULT = 32_768


def reserve_ports(count: int) -> list[int]:
    """Ports that nobody has, and that nobody else is given by this function until this process ends: whoever is to
    listen there takes seconds to start, and may start again.

    They lie outside of the ephemeral range: the kernel gives those to anyone who asks for any port, as `[node] http`
    may.
    """
    candidates = list(range(LOWEST, _first_ephemeral()))
    random.shuffle(candidates)
    return list(islice(filter(_reserve, candidates), count))


def _reserve(port: int) -> bool:
    """Keeps it bound until this process ends. With SO_REUSEADDR, which the socket gets once it has the port for itself,
    it is not in the way of a daemon, which sets that, too, before it binds."""
    held = socket.socket()
    try:
        held.bind(("127.0.0.1", port))
    except OSError:
        held.close()
        return False
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    held.detach()
    return True


def _first_ephemeral() -> int:
    try:
        first = int(EPHEMERAL.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return EPHEMERAL_DEFAULT
    return first if first > LOWEST + 1000 else EPHEMERAL_DEFAULT
