"""Sockets that listen; and why one cannot be had, in a sentence for an operator."""

import errno
import os
import socket

from seedflood.errors import BindError

PORT_MAX = 65_535

_WHY = {
    errno.EADDRINUSE: "the port is in use; stop the other process or choose another port",
    errno.EADDRNOTAVAIL: "the host is not an address of this machine; use 0.0.0.0 to listen on all of its addresses",
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
    raise BindError(f"cannot listen at {address}: {why}, in {setting}.")
