"""A node that trains by GASLoC: a swarm and the algorithm put together.

Report what happened, including the answers of the compute side, then `collect` what is to be done.
"""

from seedflood.protocol.gasloc.algorithm import Gasloc
from seedflood.protocol.gasloc.rules import GaslocRules, Habits
from seedflood.protocol.gasloc.statement import stated, unpack
from seedflood.protocol.gasloc.transfer import Sinks
from seedflood.protocol.origin import OriginId
from seedflood.protocol.swarm.access import AccessList
from seedflood.protocol.swarm.admission import MemberAdmission
from seedflood.protocol.swarm.messages import Member, Sign, Verify
from seedflood.protocol.swarm.outputs import Outbox, Outputs
from seedflood.protocol.swarm.presence import Presence
from seedflood.protocol.swarm.swarm import Swarm


class GaslocNode(Swarm[Outputs]):
    """One origin. member: its key, name and incarnation; the node signs it. sinks: for what neighbours send."""

    def __init__(
        self,
        rules: GaslocRules,
        member: Member,
        sign: Sign,
        verify: Verify,
        sinks: Sinks,
        habits: Habits | None = None,
        access: AccessList | None = None,
    ) -> None:
        outbox, habits = Outbox(Outputs), habits or Habits()
        self.rules = rules
        admission = MemberAdmission(rules, verify, access, check_state=unpack)
        presence = Presence(rules, member, sign, admission, outbox)
        self.gasloc = Gasloc(rules, presence, outbox, sinks, habits)
        super().__init__(presence, self.gasloc, outbox, habits.patience)

    @property
    def news(self) -> int:
        """How many messages of neighbours have advanced a transfer or a round. We have asked for these, or they
        come once per round and neighbour, so no neighbour is charged for them. All other messages are few."""
        gasloc = self.gasloc
        return gasloc.carrier.news + gasloc.talk.news

    def next_content(self, peer: OriginId) -> bytes | None:
        return self.gasloc.carrier.next_frame(peer)

    def swarm_rounds(self) -> int:
        """The sum of the rounds that all hosts state."""
        return sum(stated(member).round for member in self.membership.words())

    def show(self, **figures: float) -> None:
        """Figures of the compute side, for operators."""
        self.gasloc.shown |= figures
