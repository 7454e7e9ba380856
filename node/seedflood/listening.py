"""Sockets that listen, why one cannot be had, and how many connections they may take.

Each connection is a descriptor, and strangers open as many as they like. Without descriptors the node can neither write
a checkpoint nor answer a probe. So its ports take no more than the process has left beside a reserve.
"""

import errno
import ipaddress
import os
import resource
import socket
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from seedflood.errors import BindError

PORT_MAX = 65_535

LINK_CONNECTIONS_MAX, HTTP_CONNECTIONS_MAX = 2048, 256
RESERVE = 192
"""Descriptors for files, probes and links that we dial: a node has some 30 before it has neighbours."""
HTTP_PART = 8
"""The part of what is left that HTTP gets: one in so many."""

ESTABLISHED = "01"

_WHY = {
    errno.EADDRINUSE: "the port is in use; stop the other process or choose another port",
    errno.EADDRNOTAVAIL: "the host is not an address of this machine; use 0.0.0.0 to listen on all of its addresses",
    errno.EMFILE: "this process has too many files open; raise its limit (ulimit -n, LimitNOFILE=)",
    errno.EACCES: "this user may not use that port; choose one above 1023",
}


def listen_at(address: str, setting: str) -> socket.socket:
    """A socket that listens at `host:port`; port 0 takes any, and host [::] is IPv4, too. setting: what says the
    address, for the sentence. Raises BindError."""
    host, _, port = address.rpartition(":")
    try:
        if not 0 <= int(port) <= PORT_MAX:
            raise ValueError(port)
        found = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, _, _, _, place = found[0]
        is_both = family == socket.AF_INET6 and socket.has_dualstack_ipv6()
        return socket.create_server(place, family=family, dualstack_ipv6=is_both)
    except (socket.gaierror, UnicodeError, ValueError):
        why = "it is not a host and port of this machine; write one such as 0.0.0.0:7777"
    except OSError as error:
        why = _WHY.get(error.errno or 0, os.strerror(error.errno or 0))
        if address.endswith(":0") and error.errno == errno.EADDRINUSE:
            why = "no port is free; connections of this machine hold all of them (net.ipv4.ip_local_port_range)"
    raise BindError(f"cannot listen at {address}: {why}, in {setting}.")


class Room(NamedTuple):
    """How many connections each port of this process takes."""

    links: int
    http: int


def room() -> Room:
    """What the limit of open files leaves."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY:
        return Room(LINK_CONNECTIONS_MAX, HTTP_CONNECTIONS_MAX)
    left = max(limit - RESERVE, limit // 4)
    http = left // HTTP_PART
    return Room(min(LINK_CONNECTIONS_MAX, left - http), min(HTTP_CONNECTIONS_MAX, http))


def connections(process: Path = Path("/proc/self")) -> dict[int, Counter[str]]:
    """How many connections this process has, by our port and by the address of the other side. Reads files: call it
    away from the loop."""
    if not process.is_dir():  # on macOS
        return {}
    ours = set(_inodes(process / "fd"))
    found: defaultdict[int, Counter[str]] = defaultdict(Counter)
    for table in ("tcp", "tcp6"):
        try:
            lines = (process / "net" / table).read_text().splitlines()[1:]
        except OSError:  # a machine without IPv6
            continue
        for line in lines:
            _, local, remote, state, *_, inode = line.split()[:10]
            if state == ESTABLISHED and inode in ours:
                port = int(local.rpartition(":")[2], base=16)
                found[port][_address(remote.partition(":")[0])] += 1
    return found


def _inodes(folder: Path) -> Iterator[str]:
    """Of the sockets among these descriptors."""
    for descriptor in folder.iterdir():
        try:
            target = os.readlink(descriptor)
        except OSError:  # it was closed a moment ago
            continue
        if target.startswith("socket:["):
            yield target[len("socket:[") : -1]


def _address(spelled: str) -> str:
    """As the kernel spells it: words of four bytes in the order of this machine (little-endian)."""
    words = bytes.fromhex(spelled)
    packed = b"".join(words[k : k + 4][::-1] for k in range(0, len(words), 4))
    address = ipaddress.ip_address(packed)
    mapped = getattr(address, "ipv4_mapped", None)
    return str(mapped or address)
