"""Says when a port has as many connections as this process has room for, and who holds most of them."""

from collections import Counter
from collections.abc import Callable, Mapping

from seedflood.listening import room

CROWDED = "a port has as many connections as this process has room for; whoever comes now may be refused"
FULL_PART, CALM_PART = 0.9, 0.5
"""Of the room of a port: from where on it is logged, and below what it may be logged again."""


class Crowding:
    """Give it all connections now and then. http_port: 0 if there is none."""

    def __init__(self, http_port: int, log: Callable[..., None]) -> None:
        self._room = room()
        self._http_port = http_port
        self._log = log
        self._logged: set[int] = set()

    def look(self, connections: Mapping[int, Counter[str]]) -> None:
        self._logged &= connections.keys()
        for port, by_address in connections.items():
            most = self._room.http if port == self._http_port else self._room.links
            count = by_address.total()
            if count < CALM_PART * most:
                self._logged.discard(port)
            elif count >= FULL_PART * most and port not in self._logged:
                self._logged.add(port)
                address, held = by_address.most_common(1)[0]
                self._log(CROWDED, "warning", port=port, connections=count, most_from=address, of_these=held)
