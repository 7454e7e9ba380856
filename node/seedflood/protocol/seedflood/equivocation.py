"""The search for equivocation: two neighbours hold the same steps, and their sums differ. Which origin has signed two
different bundles of one step?

Two hosts may hold different bundles of one step. When replica digests differ at equal frontiers, neighbours send each
other what they hold by blocks (`contents`), pull the blocks that differ, and compare what comes with their journals.
Two signed bundles that differ and cover one step are a proof, and end their origin (`ends`).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from seedflood.protocol.frontier import without
from seedflood.protocol.origin import OriginId
from seedflood.protocol.seedflood.admission import Admission
from seedflood.protocol.seedflood.bundles import Bundle
from seedflood.protocol.seedflood.contents import BLOCK_STEPS, Block
from seedflood.protocol.seedflood.donors import Donors
from seedflood.protocol.seedflood.ends import Ends
from seedflood.protocol.seedflood.holdings import Holdings
from seedflood.protocol.seedflood.messages import BlockDigests, Equivocation
from seedflood.protocol.seedflood.outputs import Outputs
from seedflood.protocol.seedflood.rules import Rules
from seedflood.protocol.swarm.outputs import Outbox

BLOCKS_ASKED_MAX = 16
"""The most blocks that are pulled at once: some 100 KB."""

SEARCH_SECONDS_MIN, SEARCH_SECONDS_MAX = 4.0, 600.0
"""The time between two searches with a neighbour; twice as long each time that nothing was found, because it may lie
about its digests."""


@dataclass(eq=False, repr=False)
class EquivocationSearch:
    """Compares blocks with neighbours whose replica differs, until a proof is found."""

    _rules: Rules
    _holdings: Holdings
    _admission: Admission
    _donors: Donors
    _ends: Ends
    _outbox: Outbox[Outputs]
    _uneven: dict[OriginId, dict[Block, tuple[int, int]]] = field(default_factory=dict)
    """By neighbour: the blocks of its last message that have more or fewer bundles than here."""
    _asked: dict[OriginId, list[Block]] = field(default_factory=dict)
    """By neighbour: the blocks that we pull from it to compare them."""
    _pauses: dict[OriginId, tuple[float, float, float]] = field(default_factory=dict)
    """By neighbour: when we may send it something next, when we may ask it next, and the pause after that."""

    def __post_init__(self) -> None:
        self._contents = self._holdings.contents
        self._frontier = self._holdings.frontier

    def differ(self, peer: OriginId, now: float) -> None:
        """A neighbour with the same frontier has other coefficients: sends it the proofs that we know, and our blocks,
        so that it finds those that differ."""
        send_at, ask_at, pause = self._pauses.get(peer, (now, now, SEARCH_SECONDS_MIN))
        if now < send_at:
            return
        self._pauses[peer] = (now + pause, ask_at, pause)
        self._ends.send_proofs(peer)
        self._outbox.send(peer, self._contents.digests())

    def pulled(self, peer: OriginId) -> None:
        """The answer to our pull has ended, or broken off."""
        self._asked.pop(peer, None)

    def disconnect(self, peer: OriginId) -> None:
        self._asked.pop(peer, None)
        self._uneven.pop(peer, None)

    def receive(self, peer: OriginId, theirs: BlockDigests, now: float) -> None:
        """Pulls the blocks that differ, as if we lacked them."""
        send_at, ask_at, pause = self._pauses.get(peer, (now, now, SEARCH_SECONDS_MIN))
        if now < ask_at or self._donors.is_pulling(peer):
            return
        contents = self._contents
        summed = contents.summed(theirs, lambda block: self._frontier.holds(*contents.steps(block)))
        lasting = self._lasting(peer, contents.uneven(theirs))
        blocks = [*contents.differing(theirs), *lasting, *summed][:BLOCKS_ASKED_MAX]
        if not blocks:
            return
        self._pauses[peer] = (send_at, now + pause, min(2 * pause, SEARCH_SECONDS_MAX))
        self._donors.ask(peer)
        self._asked[peer] = blocks
        spans = [contents.steps(block) for block in blocks]
        pretended = without(self._frontier.held(), spans)
        outputs = self._outbox.outputs
        outputs.pull.append((peer, pretended))
        self._outbox.send(peer, contents.digests())

    def is_asked_for(self, peer: OriginId, epoch: int) -> bool:
        """Do we pull blocks of this epoch from the neighbour although they are held here?"""
        return any(asked == epoch for _, asked, _ in self._asked.get(peer, ()))

    def _lasting(self, peer: OriginId, uneven: dict[Block, tuple[int, int]]) -> list[Block]:
        """The uneven blocks for which nothing can be in flight: we hold all of their steps, or the neighbour has sent
        the same counts twice."""
        before = self._uneven.get(peer, {})
        self._uneven[peer] = uneven
        lasting = []
        for block, counts in uneven.items():
            is_whole = self._frontier.holds(*self._contents.steps(block))
            if is_whole or before.get(block) == counts:
                lasting.append(block)
        return lasting

    def receive_again(self, peer: OriginId, bundles: Sequence[Bundle]) -> None:
        """Bundles came that are held already: compares those of blocks that we asked for with the journal."""
        blocks = self._asked.get(peer)
        if not blocks:
            return
        period = self._rules.refresh_period
        outputs = self._outbox.outputs
        for bundle in bundles:
            block = (bundle.origin, bundle.step // period, bundle.step // BLOCK_STEPS)
            if block in blocks:
                outputs.check.append((peer, bundle))

    def contradicted(self, peer: OriginId, held: Bundle, other: Bundle) -> None:
        """The neighbour sent `other`, and the journal has `held`, which contradicts it."""
        if self._admission.admits(other, other.span, None):
            self._pauses.pop(peer, None)  # it did not lie about its digests
            self._ends.prove(Equivocation(held, other))

    def receive_proof(self, peer: OriginId, proof: Equivocation) -> None:
        """Takes a proof from a peer. Raises PeerError for a wrong signature. A known proof costs little."""
        if not self._ends.is_news(proof):
            return
        admits = self._admission.admits
        if all(admits(bundle, bundle.span, None) for bundle in (proof.one, proof.other)):
            self._ends.prove(proof, peer)
