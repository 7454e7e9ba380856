"""Ports on loopback for processes that are about to start."""

import random
import socket
from itertools import islice

LOWEST, EPHEMERAL = 10_000, 32_768
"""The kernel hands out ports from the latter on, unless it is set otherwise."""


def reserve_ports(count: int) -> list[int]:
    """Ports that nobody has, and that nobody else is given by this function until this process ends: whoever is to
    listen there takes seconds to start, and may start again.

    They lie outside of the ephemeral range: the kernel gives those to anyone who asks for any port, as `[node] http`
    may.
    """
    candidates = list(range(LOWEST, EPHEMERAL))
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
