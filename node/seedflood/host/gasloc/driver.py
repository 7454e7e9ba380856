"""The driver of a node that trains by GASLoC: it passes the node's orders to the compute side.

An order is passed on only after everything that the node wanted to keep before it is on the disk. While the disk is
full, orders wait.
"""

from collections.abc import Callable
from typing import Any

from seedflood.host import seams
from seedflood.host.driver import Driver
from seedflood.protocol.gasloc.node import GaslocNode
from seedflood.protocol.gasloc.orders import Order
from seedflood.protocol.origin import OriginId


class GaslocDriver(Driver):
    """compute: takes an order for the compute side and returns at once. Orders are carried out one after the other, and
    answered by `do`."""

    node: GaslocNode

    def __init__(
        self,
        node: GaslocNode,
        journal: seams.Journal,
        links: seams.Links,
        observer: seams.Observer,
        clock: Callable[[], float],
        compute: Callable[[Order], None],
    ) -> None:
        super().__init__(node, journal, links, observer, clock)
        self._compute = compute
        self._waiting: list[Order] = []
        """Orders that wait for space on the disk."""

    def next_content(self, peer: OriginId) -> bytes | None:
        return None if self.is_halted else self.node.gasloc.carrier.next_frame(peer)

    def _perform(self, out: Any, kept: Any) -> None:
        for peer in sorted(out.contents):
            self._links.carry(peer)
        self._waiting += out.orders
        if not self._backlog.is_stuck:
            self._give()

    def _resume(self) -> None:
        super()._resume()
        self._give()

    def _give(self) -> None:
        orders, self._waiting = self._waiting, []
        for order in orders:
            self._compute(order)
