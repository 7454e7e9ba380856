"""The four seams of the driver: what was asked of them, in order, and a disk that can be full or broken."""

from seedflood.errors import DiskFullError, JournalError
from seedflood.host.seedflood.seams import Adopt, Refill, Replay, Seal
from seedflood.protocol.frontier import Frontier
from seedflood.protocol.seedflood.opening import Inventory
from seedflood.protocol.seedflood.outputs import ClosedWindow, Measure, SumEpoch, TakeDigest
from simulation.seedflood.journal import is_cut

NAMES = {ClosedWindow: "apply", Measure: "measure", TakeDigest: "digest", SumEpoch: "sum_epoch"}
"""What is noted of a job."""


class Recorder:
    """Links, compute and observer at once, and the `disk` as the journal; all note their calls in one list."""

    def __init__(self):
        self.calls = []
        self.disk = Disk(self.calls)

    def __getattr__(self, name):
        return lambda *args: self.calls.append((name, *args))

    def compute(self, job):
        match job:
            case Adopt():
                self.calls.append(("adopt", *job))
            case Seal(epoch):
                self.calls.append(("seal", epoch))
            case Replay(pages):
                self.calls.append(("replay", [update for page in pages for update in page]))
            case Refill(closed, pages):
                self.calls.append(("rebuild", list(closed), [update for page in pages for update in page]))
            case _:
                self.calls.append((NAMES[type(job)], job))

    @property
    def seams(self):
        """In the order in which a driver wants them."""
        return self.disk, self, self.compute, self

    @property
    def names(self):
        return [call[0] for call in self.calls]

    def take(self, *names):
        """What happened since the last time, of these names or of all."""
        calls = [call for call in self.calls if not names or call[0] in names]
        self.calls.clear()
        return calls


class Disk:
    """kept: the bundles that are on it. closed: the epochs. is_full, is_broken: whatever writes is refused."""

    def __init__(self, calls):
        self.kept = []
        self.closed = []
        self.is_full = self.is_broken = False
        self._calls = calls

    def append(self, bundles, members, *, durable):
        self._write("append", list(bundles), list(members), durable)
        self.kept += bundles
        return len(bundles)

    def commit(self):
        self._write("commit")

    def adopt(self, closed):
        self._write("keep epoch", closed)
        return [bundle for bundle in self.kept if bundle.origin not in {one.origin for one in closed.frontier}]

    def compact(self, closed):
        self._write("compact", closed)
        return 3

    def records(self):
        return {b"votes": b"ours"}

    def keep(self, members, records=(), *, durable):
        self._write("keep", list(members), list(records), durable)

    def find(self, origin, step):
        return next((one for one in self.kept if (one.origin, one.step) == (origin, step)), None)

    def overlapping(self, bundle):
        return iter([one for one in self.kept if one.contradicts(bundle)])

    def cut(self, spans):
        self._write("cut", list(spans))
        gone = [one for one in self.kept if is_cut(one, spans)]
        self.kept = [one for one in self.kept if one not in gone]
        return gone

    def inventory(self):
        inventory = Inventory({0: Frontier()}, {one.epoch: one.frontier for one in self.closed})
        for bundle in self.kept:
            inventory.bundles[0].add(*bundle.span)
        return inventory

    def read_missing(self, frontier, limit):
        held = Frontier(frontier)
        return iter([[bundle for bundle in self.kept if not held.holds(*bundle.span)]])

    def replay(self):
        return iter(self.kept)

    def closed_epochs(self):
        return iter(self.closed)

    def _write(self, *call):
        if self.is_full:
            raise DiskFullError("there is no space left on the disk of the journal; free some.")
        if self.is_broken:
            raise JournalError("the journal cannot be written; look at its disk.")
        self._calls.append(call)
