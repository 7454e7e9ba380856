"""Opening a journal: what of it is applied at once, and what waits for its window like a bundle that has just come.

A journal may hold a run of weeks. A node that starts again needs little of it one by one: the coefficients are sums, so
all but the end is read from the disk page by page and added to them while the node is already at work. Only the last
rounds of each origin wait. A neighbour that is a little behind names a frontier without them, and digests are compared
at that frontier (`divergence`). In strict windows, too, nothing of an open round may be applied.

Windows are not journalled. A node that starts again opens those of its last own bundle, or of its last rounds if there
is a delay, and goes on.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from seedflood.protocol.frontier import Frontier, Held, Span
from seedflood.protocol.origin import STEP_MAX, OriginId
from seedflood.protocol.seedflood.bundles import Bundle
from seedflood.protocol.seedflood.divergence import DIGEST_ROUNDS
from seedflood.protocol.seedflood.rounds import first_round
from seedflood.protocol.seedflood.rules import Rules
from seedflood.protocol.swarm.membership import Membership
from seedflood.protocol.swarm.messages import Member

WAITING_ROUNDS = 2 * DIGEST_ROUNDS
"""How many rounds of each origin wait. The last digest of a neighbour is younger than that."""


@dataclass(slots=True)
class Inventory:
    """What a journal holds.

    bundles: by epoch, the steps covered by bundles that are in no sum. sums: by epoch, the steps that its sum covers.
    digests: by epoch, SHA-256 of the sum's unpacked coefficients, if it was taken while reading.
    """

    bundles: dict[int, Frontier] = field(default_factory=dict)
    sums: dict[int, tuple[Held, ...]] = field(default_factory=dict)
    digests: dict[int, bytes] = field(default_factory=dict, compare=False)

    def note(self, epoch: int, span: Span) -> None:
        """Notes the steps that a bundle of this epoch covers, or several that follow each other."""
        there = self.bundles.get(epoch)
        if there is None:
            there = self.bundles[epoch] = Frontier()
        there.add(*span)

    def of_bundles(self) -> Frontier:
        return joined(self.bundles.values())

    def of_sums(self) -> Frontier:
        return joined(map(Frontier, self.sums.values()))

    def settled(self, waiting: Iterable[Bundle]) -> dict[int, Frontier]:
        """By epoch, the steps of all bundles but these, which are the last of their origins."""
        ends: dict[OriginId, int] = {}
        for bundle in waiting:
            ends[bundle.origin] = min(ends.get(bundle.origin, STEP_MAX), bundle.first_covered)
        settled = ((epoch, covered.below(ends)) for epoch, covered in self.bundles.items())
        return {epoch: covered for epoch, covered in settled if covered.count()}


def settled_ends(
    held: Frontier, members: Iterable[Member], origin: OriginId, rules: Rules, waiting_rounds: int = WAITING_ROUNDS
) -> Mapping[OriginId, int]:
    """By origin, the step below which all bundles of our journal may be applied at once."""
    limit = STEP_MAX
    if rules.window == "strict":
        open_round = _open_round(held, Membership(members), origin, rules)
        limit = max(0, rules.applied_before(open_round) - waiting_rounds * rules.local_steps)
    return ends(held, rules, limit=limit, waiting_rounds=waiting_rounds)


def ends(
    held: Frontier, rules: Rules, *, limit: int = STEP_MAX, waiting_rounds: int = WAITING_ROUNDS
) -> dict[OriginId, int]:
    """By origin, the step at which its last rounds begin, or the limit. With a delay neighbours apply later, and name
    older frontiers, so more rounds wait."""
    waiting = (waiting_rounds + rules.delay) * rules.local_steps
    return {origin: min(limit, max(0, held.last(origin) + 1 - waiting)) for origin in held.origins}


def _open_round(held: Frontier, membership: Membership, origin: OriginId, rules: Rules) -> int:
    """The first step of the round with which `Node.start` goes on."""
    past = membership.get(origin)
    if past is None or past.has_left or past.first_step == STEP_MAX or held.last(origin) < 0:
        return first_round(origin, rules, membership, held)
    return rules.round_of(held.last(origin))


def joined(frontiers: Iterable[Frontier]) -> Frontier:
    """The union of frontiers."""
    whole = Frontier()
    for frontier in frontiers:
        whole.add_held(frontier.held())
    return whole
