"""Ports on loopback for processes that are about to start."""

import random
import socket
from pathlib import Path

LOWEST = 10_000
EPHEMERAL = Path("/proc/sys/net/ipv4/ip_local_port_range")
EPHEMERAL_DEFAULT = 32_768


def free_ports(count: int) -> list[int]:
    """Nobody listens on them, and the kernel gives them to nobody who asks for any port, as `[node] http` may."""
    ports: list[int] = []
    for port in random.sample(range(LOWEST, _first_ephemeral()), k=64 + 8 * count):
        if len(ports) == count:
            break
        with socket.socket() as trial:
            if trial.connect_ex(("127.0.0.1", port)):  # nobody answers
                ports.append(port)
    return ports


def _first_ephemeral() -> int:
    try:
        first = int(EPHEMERAL.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return EPHEMERAL_DEFAULT
    return first if first > LOWEST + 1000 else EPHEMERAL_DEFAULT
