"""Opening a journal: which bundles a node applies at once, and which wait for their windows like those that have just
come.

A journal may hold a run of weeks. A node that starts again needs little of it one by one. The coefficients are sums, so
the node reads all but the end from the disk page by page, and adds it to them while it is already at work. Only the
last rounds of each origin wait, for two reasons. A neighbour that is a little behind names a frontier without them, and
digests are compared at that frontier (`divergence`). And in strict windows nothing of an open round may be applied.

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
    """What a journal holds."""

    bundles: dict[int, Frontier] = field(default_factory=dict)
    """By epoch: the steps that bundles cover which are in no sum."""
    sums: dict[int, tuple[Held, ...]] = field(default_factory=dict)
    """By epoch: the steps that its sum covers."""
    digests: dict[int, bytes] = field(default_factory=dict, compare=False)
    """By epoch: SHA-256 of the sum's unpacked coefficients, if it was taken while reading."""

    def note(self, epoch: int, span: Span) -> None:
        """Notes the steps that a bundle of this epoch covers, or several bundles that follow each other."""
        covered = self.bundles.get(epoch)
        if covered is None:
            covered = Frontier()
            self.bundles[epoch] = covered
        covered.add(*span)

    def of_bundles(self) -> Frontier:
        return joined(self.bundles.values())

    def of_sums(self) -> Frontier:
        return joined(map(Frontier, self.sums.values()))

    def settled(self, waiting: Iterable[Bundle]) -> dict[int, Frontier]:
        """By epoch: the steps of all bundles except these, which are the last of their origins."""
        ends: dict[OriginId, int] = {}
        for bundle in waiting:
            ends[bundle.origin] = min(ends.get(bundle.origin, STEP_MAX), bundle.first_covered)
        settled = {}
        for epoch, covered in self.bundles.items():
            before = covered.below(ends)
            if before.count():
                settled[epoch] = before
        return settled


def settled_ends(
    held: Frontier, members: Iterable[Member], origin: OriginId, rules: Rules, waiting_rounds: int = WAITING_ROUNDS
) -> Mapping[OriginId, int]:
    """By origin: the step below which all bundles of our journal may be applied at once."""
    limit = STEP_MAX
    if rules.window == "strict":
        open_round = _open_round(held, Membership(members), origin, rules)
        limit = max(0, rules.applied_before(open_round) - waiting_rounds * rules.local_steps)
    return ends(held, rules, limit=limit, waiting_rounds=waiting_rounds)


def ends(
    held: Frontier, rules: Rules, *, limit: int = STEP_MAX, waiting_rounds: int = WAITING_ROUNDS
) -> dict[OriginId, int]:
    """By origin: the step at which its last rounds begin, or the limit if that is less. With a delay neighbours apply
    later, and name older frontiers, so more rounds wait."""
    waiting_steps = (waiting_rounds + rules.delay) * rules.local_steps
    begins = {}
    for origin in held.origins:
        begin = held.last(origin) + 1 - waiting_steps
        begins[origin] = min(limit, max(0, begin))
    return begins


def _open_round(held: Frontier, membership: Membership, origin: OriginId, rules: Rules) -> int:
    """The first step of the round with which `Node.start` goes on."""
    past = membership.get(origin)
    last = held.last(origin)
    was_taking_part = past is not None and not past.has_left and past.first_step < STEP_MAX and last >= 0
    if was_taking_part:
        return rules.round_of(last)
    return first_round(origin, rules, membership, held)


def joined(frontiers: Iterable[Frontier]) -> Frontier:
    """The union of frontiers."""
    whole = Frontier()
    for frontier in frontiers:
        whole.add_held(frontier.held())
    return whole
