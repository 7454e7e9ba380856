"""A quorum: how many hosts of the roster have to sign the sum of an epoch before it is compacted.

Without one, everyone who takes part has to. Then a host that died keeps the bundles of all, and so does one that
states nonsense. With a quorum neither does, and nothing is lost or counted twice:

* Any two quorums are more than half of the same hosts, so one host is in both. What a host holds of an epoch only grows
  until a sum takes its place. So of two sets of updates of an epoch that quorums have signed, one contains the other.
* A host replaces a sum only by one that a quorum has signed, and that covers the first. So of any two sums in journals
  one covers the other, and whoever has the smaller one can take the greater one.
* An epoch may be closed before it is complete. A bundle that comes late for a compacted epoch stays a bundle beside the
  sum: it is applied, kept, and repaired like any other. Coefficients add up, so no update is too late.

So nobody has to decide which updates of a dead host count: all that ever turn up do, everywhere. This needs sums that
do not go by steps, and hosts that never wait for single rounds: `bounded` and `none` windows. In strict windows nobody
goes on without a host that is silent, so nothing would be gained.

A sum that a quorum has signed was signed by an honest host as long as liars are fewer than half. That two quorums share
an honest host takes more: with n hosts, f of which lie, more than (n + f) / 2 of them.
"""

from collections.abc import Iterable

from seedflood.protocol.seedflood.rules import Rules
from seedflood.protocol.swarm.gate import Gate
from seedflood.protocol.swarm.messages import Member


class Quorum:
    """The quorum of a closed run, by the roster that counts now."""

    def __init__(self, rules: Rules, gate: Gate) -> None:
        self._least = rules.quorum
        self._gate = gate

    @property
    def is_stated(self) -> bool:
        """Is there one? Else everyone who takes part has to sign."""
        return self._least is not None

    @property
    def size(self) -> int:
        """How many hosts: what the run says, and always more than half of those that may train now; all of these if
        there are fewer."""
        trainers = len(self._gate.trainers or ())
        return min(max(self._least or 0, trainers // 2 + 1), max(trainers, 1))

    def of(self, members: Iterable[Member]) -> list[Member]:
        """The members whose word counts: those on the roster that may train now, whether they are up or not."""
        trainers = self._gate.trainers or frozenset()
        return [member for member in members if member.origin in trainers]
