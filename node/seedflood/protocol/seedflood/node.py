"""The node: one origin's part of the protocol as a pure state machine, a swarm that trains by SeedFlood.

Report what happened (`connected`, `received`, `answer`, `tick`, ...), then `collect` what is to be done.
"""

from collections.abc import Iterable, Mapping

from seedflood.protocol.frontier import Frontier
from seedflood.protocol.seedflood.admission import Admission
from seedflood.protocol.seedflood.algorithm import SeedFlood
from seedflood.protocol.seedflood.bundles import Bundle
from seedflood.protocol.seedflood.messages import ClosedEpoch
from seedflood.protocol.seedflood.outputs import Outputs
from seedflood.protocol.seedflood.rules import Rules
from seedflood.protocol.seedflood.statement import Rows
from seedflood.protocol.swarm.access import AccessList
from seedflood.protocol.swarm.messages import Member, Sign, Verify
from seedflood.protocol.swarm.outputs import Outbox
from seedflood.protocol.swarm.presence import Presence
from seedflood.protocol.swarm.rules import Patience
from seedflood.protocol.swarm.swarm import Swarm


class Node(Swarm[Outputs]):
    """One origin. member: its key, name and incarnation; the signature is made here. access: who belongs to the run; by
    default everyone. rows: what we measure on, which every statement says. is_relay: we measure nothing
    (`relaying`).

    What a driver asks of parts of the algorithm, it asks them itself: frontier, applied: what is held, and what of it
    is in the coefficients. contents: what bundles say; it gets those that are read after `start`. closings,
    certificates: the sums of epochs, and who has signed them. donors: who is pulled from. divergence: whose replica
    equals ours. equivocation, ends: who contradicts itself, and what counts of it then."""

    admission: Admission

    def __init__(
        self,
        rules: Rules,
        member: Member,
        sign: Sign,
        verify: Verify,
        *,
        patience: Patience | None = None,
        access: AccessList | None = None,
        rows: Rows | None = None,
        is_relay: bool = False,
    ) -> None:
        patience = patience or Patience()
        self.rules = rules
        self.frontier = Frontier()
        self.admission = Admission(rules, verify, self.frontier, access)
        outbox = Outbox(Outputs)
        presence = Presence(rules, member, sign, self.admission, outbox)
        self.seedflood = SeedFlood(rules, presence, self.admission, self.frontier, outbox, patience, rows, is_relay)
        super().__init__(presence, self.seedflood, outbox, patience)
        exchange, holdings = self.seedflood.exchange, self.seedflood.holdings
        self.applied, self.closings, self.certificates = holdings.applied, holdings.closings, holdings.certificates
        self.contents = holdings.contents
        self.donors, self.equivocation = exchange.donors, exchange.equivocation
        self.divergence, self.ends = exchange.divergence, exchange.ends

    @property
    def duplicates(self) -> int:
        """How many bundles came that were held already."""
        return self.seedflood.holdings.duplicates

    # What happened

    def start(
        self,
        bundles: Iterable[Bundle],
        members: Iterable[Member],
        now: float,
        *,
        records: Mapping[bytes, bytes] | None = None,
        closed: Iterable[ClosedEpoch] = (),
        settled: Mapping[int, Frontier] | None = None,
        is_journal_damaged: bool = False,
        is_key_fresh: bool = True,
    ) -> None:
        """Begins, or goes on with what the journal holds. The round of our last own bundle is open again.

        bundles: those that wait for their windows. members: all statements. records: our votes. closed: the sums, which
        the model has already. settled: by epoch, the steps of all other bundles, which the model is given without
        windows (`opening`). is_journal_damaged: something of it was lost. is_key_fresh: nothing was ever published with
        our key.

        A node that had left, or never spoke, is expected by nobody until it has caught up and states from which step on
        it takes part. What it published before it left is still awaited.
        """
        self.recall(members, now, records)
        self.seedflood.start(
            bundles, closed, settled or {}, now, is_journal_damaged=is_journal_damaged, is_key_fresh=is_key_fresh
        )
        self.seedflood.advance(now)
