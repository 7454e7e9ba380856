"""How the orders of a round in which all agree are carried out, on the compute thread: sums come in as files, and what
is told of them is one, too."""

from pathlib import Path

import numpy as np

from seedflood.errors import DiskFullError, PeerError
from seedflood.host.gasloc.files import FileContent, Incoming, path_of, remove
from seedflood.protocol.gasloc.orders import Agree, Gather, Total
from seedflood.training.gasloc.exchange import Arrival
from seedflood.training.gasloc.gathering import Gathering
from seedflood.training.gasloc.outer import Mixed
from seedflood.training.gasloc.trainer import Trainer

DRAFT = "sum"


class Sums:
    """What is gathered for one round after the other."""

    def __init__(self, trainer: Trainer, incoming: Incoming) -> None:
        self._trainer = trainer
        self._incoming = incoming
        self._gathering: tuple[int, Gathering] | None = None
        """Of which round."""
        self._draft = Path()

    def gather(self, order: Gather) -> bool:
        """Is it right? Nothing is added if the round is over."""
        path = path_of(order.sink)
        try:
            if self._trainer.outer.offer is not None:
                self._of(order.round).add(self._arrival(path, order.digest), order.hosts)
        except (PeerError, ValueError):
            return False
        finally:
            remove([path])
        return True

    def total(self, order: Total) -> tuple[FileContent, int] | None:
        """The mean and how many hosts are in it; None: the round is over, or there is no space for it."""
        if self._trainer.outer.offer is None:
            return None
        gathering = self._of(order.round)
        try:
            self._draft = self._incoming.draft(f"{DRAFT}-{order.round}", gathering.size)
        except DiskFullError:
            return None
        out = np.memmap(self._draft, dtype=np.uint8, mode="r+")
        digest = gathering.write(out, has_momentum=order.has_momentum)
        return FileContent(self._draft, digest), gathering.hosts

    def agree(self, order: Agree) -> tuple[FileContent, Mixed] | None:
        """None: it is not what was offered, or the round is over."""
        if self._trainer.outer.offer is None:
            return None
        path = self._draft if order.sink is None else path_of(order.sink)
        try:
            mixed = self._trainer.take(self._arrival(path, order.digest), is_last=order.is_last)
        except (PeerError, ValueError):
            remove([path])
            return None
        self._gathering = None
        return FileContent(path, order.digest), mixed

    def close(self) -> None:
        self._trainer.outer.close()
        self._gathering = None

    def _of(self, round_: int) -> Gathering:
        if self._gathering is None or self._gathering[0] != round_:
            self._gathering = round_, self._trainer.gathering()
        return self._gathering[1]

    def _arrival(self, path: Path, digest: bytes) -> Arrival:
        """Raises PeerError or ValueError for a file of another size."""
        buffer = np.memmap(path, dtype=np.uint8, mode="r+")
        arrival = self._trainer.expect(len(buffer), digest, buffer=buffer)
        arrival.held = arrival.size
        return arrival
