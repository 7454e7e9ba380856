"""Which round a node measures next: the one after its own last, or the one that the others have reached meanwhile."""

from seedflood.protocol.frontier import Frontier
from seedflood.protocol.origin import STEP_MAX, OriginId
from seedflood.protocol.seedflood.rules import Rules
from seedflood.protocol.seedflood.statement import stated
from seedflood.protocol.swarm.membership import Membership

FOREMOST_ROUNDS_MAX = 64
"""How many rounds ahead of the others a node is believed to be: no liar must send newcomers to the end of the run."""


def swarm_round(origin: OriginId, rules: Rules, membership: Membership, frontier: Frontier) -> int:
    """The round that the others are in: the lower median of their last steps, so that one runaway moves nobody.

    Hosts that left before the end do not count, nor do those that contradicted themselves (`ends`); those that left
    because they had finished do.
    """
    others = (m for m in map(membership.spoken, membership.origins()) if m is not None and m.origin != origin)
    others = (m for m in others if not membership.is_silenced(m.origin) and (not m.has_left or stated(m).has_ended))
    steps = sorted(last for last in (frontier.last(m.origin) for m in others) if last >= 0)
    return rules.round_of(steps[(len(steps) - 1) // 2]) if steps else 0


def first_round(
    origin: OriginId, rules: Rules, membership: Membership, frontier: Frontier, *, has_anyone_ended: bool = False
) -> int:
    """The first step of the round with which a node begins that nobody waits for: where the others are, or
    `rules.steps` (no round at all) if they may be in the last one. has_anyone_ended: an epoch, as far as is known.

    It never begins in an epoch that the foremost hosts have left behind, which may be closed before they know that we
    take part in it. But strict windows close only when all clients take part. Before that nobody has left a round
    behind, and who claims later rounds lies, perhaps as the first and only host that we know.
    """
    if rules.window == "strict" and membership.taking_part < rules.clients:
        return frontier.last(origin) + 1
    swarm, rounds_ahead = swarm_round(origin, rules, membership, frontier), FOREMOST_ROUNDS_MAX
    if not has_anyone_ended and _is_beginning(origin, swarm, rules, membership):
        swarm = 0
        if rules.window == "strict":
            rounds_ahead = 2 * rules.delay + 1  # windows wait for those that have closed none
    if swarm and swarm + rules.turns.spread + rules.local_steps >= rules.steps:
        return rules.steps
    others = (other for other in membership.origins() if other != origin and not membership.is_silenced(other))
    foremost = max(map(frontier.last, others), default=0)
    foremost = rules.applied_before(min(foremost, swarm + rounds_ahead * rules.local_steps))
    return max(frontier.last(origin) + 1, swarm, foremost - foremost % rules.refresh_period)


def _is_beginning(origin: OriginId, swarm: int, rules: Rules, membership: Membership) -> bool:
    """Have the others closed no window yet? Then a host that was never here begins with them, and misses no round."""
    ours = membership.get(origin)
    is_new = ours is None or ours.first_step == STEP_MAX
    others = [member for member in membership.all() if member.origin != origin]
    has_anyone_finished = any(member.last_step == rules.steps - 1 for member in others)
    return is_new and not has_anyone_finished and not rules.applied_before(swarm)
