"""Is a sum right? The signed statements of those who have closed its epoch tell.

A sum takes the place of hundreds of signed bundles, and is not signed itself. But every host states under its signature
how far it has closed, with two chains of digests over its closed epochs: of the bundles that the sums stand for, and of
the sums. Whoever knows the digests of single epochs can compute the chains and compare them with the statements. A
donor tells these digests before it sends sums. They are only its own word, until they lead to the chains that others
have signed.

A sum is adopted if more than half of those who take part, ourselves not counted, have signed it, perhaps before they
left. A sum that was compacted has been signed by all of them. A node whose patience is over, because it could join
nothing for so long, makes do with more signatures for the sum than against it, the donor's among them: after a disaster
the others may be waiting for this node. No sum is adopted that nobody has signed.

If there is a quorum (`quorum`), the hosts that have signed a sum must be a quorum with ourselves. Their
statements come with the sum (`warrant`). If these are not enough, because hosts were added since, the newest
statements of all may be.
"""

from collections.abc import Collection, Iterable, Sequence

from seedflood.errors import PeerError
from seedflood.protocol.frontier import Frontier
from seedflood.protocol.origin import STEP_MAX, OriginId
from seedflood.protocol.seedflood.chain import Chain
from seedflood.protocol.seedflood.messages import ClosedDigests, ClosedEpoch, EpochDigest, Warrant
from seedflood.protocol.seedflood.quorum import Quorum
from seedflood.protocol.seedflood.rules import Rules
from seedflood.protocol.seedflood.statement import Closed, stated
from seedflood.protocol.seedflood.warrant import issue, signers
from seedflood.protocol.swarm.messages import Member


class Evidence:
    """The digests that one donor tells of its closed epochs, compared with the statements of all hosts."""

    def __init__(self, rules: Rules) -> None:
        self._period = rules.refresh_period
        self._epochs_max = rules.steps // rules.refresh_period
        self._chain = Chain()

    def take(self, told: ClosedDigests) -> None:
        """Raises PeerError if it does not follow what was told before."""
        if told.first == 0:
            self._chain = Chain()
        if told.first != len(self._chain) or told.first + len(told.digests) > self._epochs_max:
            raise PeerError("digests of closed epochs that do not follow each other", reason="order")
        for digest in told.digests:
            self._chain.append(digest)

    @property
    def digests(self) -> Sequence[EpochDigest]:
        """What the donor told, from the first epoch on."""
        return self._chain.digests

    def _digest(self, epoch: int) -> EpochDigest | None:
        """The digests that the donor told of the epoch's sum; None if it told none."""
        return self._chain.digests[epoch] if epoch < len(self._chain) else None

    def of(
        self, closed: ClosedEpoch, members: Collection[Member], ours: OriginId, quorum: Quorum, *, is_patient: bool
    ) -> tuple[EpochDigest, Warrant | None] | None:
        """The digests of a sum, if enough hosts have signed them. With a quorum also its warrant: the one that came
        with it, or else one that is made of what the donor tells and others state."""
        told, covered = self._digest(closed.epoch), Frontier(closed.frontier).digest()
        if not quorum.is_in_force:
            is_signed = self._suffices(closed.epoch, members, ours, is_patient=is_patient)
            return (told, None) if told is not None and is_signed else None
        warrant = closed.warrant
        if warrant is not None and warrant.digests[0].frontier_digest == covered:
            found = signers(warrant, closed.epoch, self._period, quorum.has_signed)
            if found and quorum.is_met({*found, ours}):
                return warrant.digests[0], warrant
        if told is None or told.frontier_digest != covered:  # the donor has closed it again, with more than this
            return None
        counted = quorum.of(members)
        is_signed = self._suffices(closed.epoch, counted, ours, is_patient=is_patient, quorum=quorum.size)
        return (told, self._warrant(closed.epoch, counted)) if is_signed else None

    def _suffices(
        self, epoch: int, members: Iterable[Member], ours: OriginId, *, is_patient: bool, quorum: int | None = None
    ) -> bool:
        """Have enough hosts signed what the donor tells of this epoch? is_patient: more than half of all who take part,
        or a quorum together with us; else more than half of those who have closed it."""
        end = (epoch + 1) * self._period
        said = [(member, stated(member).closed) for member in members if member.origin != ours]
        voters = [(member, theirs) for member, theirs in said if takes_part(member) or theirs.before >= end]
        closed = [theirs for _, theirs in voters if end <= theirs.before <= len(self._chain) * self._period]
        agreeing = sum(map(self._agrees, closed))
        if is_patient and quorum is not None:
            return agreeing >= max(1, quorum - 1)
        return 2 * agreeing > (len(voters) if is_patient else len(closed))

    def _agrees(self, theirs: Closed) -> bool:
        """Does a host state the digests that the donor tells?"""
        epochs, rest = divmod(theirs.before, self._period)
        return not rest and epochs <= len(self._chain) and theirs[1:] == self._chain.at(epochs)

    def _warrant(self, epoch: int, members: Iterable[Member]) -> Warrant | None:
        """The statements of those who have signed what the donor tells, to be kept with the sum."""
        agreeing = (member for member in members if self._agrees(stated(member).closed))
        return issue(self._chain, epoch, agreeing, self._period)


def takes_part(member: Member) -> bool:
    """Has it said from which step on it takes part, and not left?"""
    return not member.has_left and member.first_step < STEP_MAX
