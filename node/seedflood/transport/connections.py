"""Connections to a secured port, from the TLS handshake to the first stream.

gRPC ends a handshake that fails by itself and tells nobody; it only asks for our certificate when one begins. So
handshakes are counted, and connections that open a stream. One that has opened none when the time of a handshake is
over had no certificate that counts, or only tried the port.
"""

from collections.abc import Callable

from seedflood.transport.server import HANDSHAKE_MILLISECONDS, IDLE_MILLISECONDS, RPCS_MAX

LOOK_SECONDS = HANDSHAKE_MILLISECONDS / 1000
"""Between two looks. Nobody's handshake takes longer."""

KNOWN_SECONDS = 2 * IDLE_MILLISECONDS / 1000
"""A connection that has opened no stream for so long is closed, and another one may have its port."""


class Connections:
    """handshakes: how many have begun since the start."""

    def __init__(self, handshakes: Callable[[], int]) -> None:
        self._handshakes = handshakes
        self._begun = 0
        """How many had begun at the last look."""
        self._spoken = self._silent = 0
        self._known: dict[str, float] = {}
        """Connections that have opened a stream, and when they did last; the latest are at the end."""

    def spoke(self, peer: str, now: float) -> None:
        """A stream begins. peer: address and port of the other end."""
        self._spoken += self._known.pop(peer, None) is None
        self._known[peer] = now
        if len(self._known) > RPCS_MAX:
            del self._known[next(iter(self._known))]

    def look(self, now: float) -> int:
        """How many connections have opened no stream, beyond those that were told of before."""
        silent = max(0, self._begun - self._spoken - self._silent)
        self._silent += silent
        self._begun = self._handshakes()
        for peer in [peer for peer, at in self._known.items() if now - at > KNOWN_SECONDS]:
            del self._known[peer]
        return silent
