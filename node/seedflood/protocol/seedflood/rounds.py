"""Which round a node measures next: the one after its own last, or the one that the others have reached meanwhile."""

from seedflood.protocol.frontier import Frontier
from seedflood.protocol.origin import STEP_MAX, OriginId
from seedflood.protocol.seedflood.rules import Rules
from seedflood.protocol.seedflood.statement import stated
from seedflood.protocol.swarm.membership import Membership

FOREMOST_ROUNDS_MAX = 64
"""How many rounds ahead of the others a node is believed to be, at most. Otherwise a liar could send newcomers to the
end of the run."""


def swarm_round(origin: OriginId, rules: Rules, membership: Membership, frontier: Frontier) -> int:
    """The round that the others are in: the lower median of their last steps, so that one runaway moves nobody.

    Hosts that left count only if they had finished the run. Hosts that contradicted themselves (`ends`) do not count.
    """
    steps = []
    for other in membership.origins():
        member = membership.spoken(other)
        if member is None or other == origin or membership.is_silenced(other):
            continue
        left_early = member.has_left and not stated(member).has_ended
        last = frontier.last(other)
        if not left_early and last >= 0:
            steps.append(last)
    if not steps:
        return 0
    steps.sort()
    lower_median = steps[(len(steps) - 1) // 2]
    return rules.round_of(lower_median)


def first_round(
    origin: OriginId, rules: Rules, membership: Membership, frontier: Frontier, *, has_anyone_ended: bool = False
) -> int:
    """The first step of the round with which a node begins, if nobody waits for the node: where the others are, or
    `rules.steps` (no round at all) if they may be in the last one. has_anyone_ended: has any host ended an epoch, as
    far as we know?

    A node never begins in an epoch that the foremost hosts have left behind. They may close it before they know that we
    take part in it.
    """
    next_own = frontier.last(origin) + 1
    if rules.window == "strict" and membership.taking_part < rules.clients:
        # Strict windows close only when all clients take part. So nobody has left a round behind, and a host that
        # claims later rounds lies. It may be the first and only host that we know.
        return next_own
    swarm = swarm_round(origin, rules, membership, frontier)
    rounds_ahead = FOREMOST_ROUNDS_MAX
    if not has_anyone_ended and _is_beginning(origin, swarm, rules, membership):
        swarm = 0
        if rules.window == "strict":
            rounds_ahead = 2 * rules.delay + 1  # windows wait for hosts that have closed none
    is_perhaps_last = swarm + rules.turns.spread + rules.local_steps >= rules.steps
    if swarm and is_perhaps_last:
        return rules.steps
    others = (other for other in membership.origins() if other != origin and not membership.is_silenced(other))
    foremost = max(map(frontier.last, others), default=0)
    believed = min(foremost, swarm + rounds_ahead * rules.local_steps)
    applied = rules.applied_before(believed)
    epoch_start = applied - applied % rules.refresh_period
    return max(next_own, swarm, epoch_start)


def _is_beginning(origin: OriginId, swarm: int, rules: Rules, membership: Membership) -> bool:
    """Have the others closed no window yet, and were we never here? Then we begin with them, and miss no round."""
    ours = membership.get(origin)
    is_new = ours is None or ours.first_step == STEP_MAX
    others = [member for member in membership.all() if member.origin != origin]
    has_anyone_finished = any(member.last_step == rules.steps - 1 for member in others)
    has_anyone_closed = rules.applied_before(swarm) > 0
    return is_new and not has_anyone_finished and not has_anyone_closed
