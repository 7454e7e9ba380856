"""A quorum: how many hosts of the roster have to sign the sum of an epoch before it is compacted.

It is more than half of all hosts that were ever listed, in closed runs without strict windows. In other runs there is
none, and everyone who takes part has to sign. Then a host that died keeps the bundles of all, and so does one that
states nonsense. With a quorum neither does, and nothing is lost or counted twice:

* Any two quorums are more than half of the same hosts, so one host is in both. What a host holds of an epoch only grows
  until a sum takes its place. So of two sets of updates of an epoch that quorums have signed, one contains the other.
  These hosts are all that the roster lists, removed ones too: what a quorum has signed stays signed by a quorum. All
  hosts that may train now are enough as well, since whoever has an earlier sum is among them.
* A host replaces a sum only by one that a quorum has signed, and that covers the first. So of any two sums in journals
  one covers the other, and whoever has the smaller one can take the greater one.
* An epoch may be closed before it is complete. A bundle that comes late for a compacted epoch stays a bundle beside the
  sum: it is applied, kept, and repaired like any other. Coefficients add up, so no update is too late.
* What is held does change where an origin contradicts itself (`inquiry`). Then quorums may have signed two sums of the
  same steps, one after the other. The one counts that most state now; whoever has the first asks for it.

So nobody has to decide which updates of a dead host count: all that ever turn up do, everywhere. This needs sums that
do not go by steps, and hosts that never wait for single rounds: `bounded` and `none` windows. In strict windows nobody
goes on without a host that is silent, so nothing would be gained.

A sum that a quorum has signed was signed by an honest host as long as liars are fewer than half of all listed. That two
quorums share an honest host takes more: with n hosts, f of which lie, more than (n + f) / 2 of them.

Who signs another sum of the same bundles than a quorum is named (`hosts_with_other_sums`), and counts for nothing.
While fewer hosts than a quorum are up to date, nothing is compacted. If more hosts are added at once than a quorum
leaves out, quorums before and after need not share a host: add them one by one while others are cut off. A host that
lost its disk has signed what it no longer holds; that it first reaches its former neighbours (`catchup`) makes up for
that.
"""

from collections.abc import Callable, Collection, Iterable

from seedflood.protocol.origin import OriginId
from seedflood.protocol.seedflood.rules import Rules
from seedflood.protocol.swarm.gate import Gate
from seedflood.protocol.swarm.messages import Member


class Quorum:
    """The quorum of a closed run, by the roster that counts now. is_signed: was a statement made by its subject?"""

    def __init__(self, rules: Rules, gate: Gate, is_signed: Callable[[Member], bool]) -> None:
        self._is_strict = rules.window == "strict"
        self._gate = gate
        self._is_signed = is_signed

    @property
    def is_in_force(self) -> bool:
        """Is there one? Else everyone who takes part has to sign."""
        return self._gate.is_closed and not self._is_strict

    @property
    def size(self) -> int:
        """How many of those that may train now: as many as of all that were ever listed, or all if there are fewer."""
        return min(self._majority, max(len(self._gate.trainers or ()), 1))

    def is_met(self, signers: Collection[OriginId]) -> bool:
        """Have enough of the listed hosts, removed ones included, or all that may train now?"""
        trainers = self._gate.trainers or frozenset()
        is_majority = len(self._gate.listed.intersection(signers)) >= self._majority
        return is_majority or (bool(trainers) and trainers.issubset(signers))

    def of(self, members: Iterable[Member]) -> list[Member]:
        """The members whose word counts: those on the roster that may train now, whether they are up or not."""
        trainers = self._gate.trainers or frozenset()
        return [member for member in members if member.origin in trainers]

    def has_signed(self, member: Member) -> bool:
        """Did a host make this statement that may be one of a quorum? It may have been removed since."""
        roster = self._gate.roster
        entry = roster.of_key(member.public_key) if roster is not None else None
        return entry is not None and entry.origin in self._gate.listed and self._is_signed(member)

    @property
    def _majority(self) -> int:
        """More than half of all that were ever listed."""
        return len(self._gate.listed) // 2 + 1
