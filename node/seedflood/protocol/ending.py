"""When a node may end its run: nothing is missing here, and the neighbours say the same of themselves."""

from collections.abc import Iterable

from seedflood.protocol.frontier import Frontier
from seedflood.protocol.membership import Membership
from seedflood.protocol.messages import OriginId
from seedflood.protocol.repair import Repair
from seedflood.protocol.rules import Rules


def holds_everything(rules: Rules, membership: Membership, frontier: Frontier) -> bool:
    """Did all clients join, and is held what every known origin has to say in this run?"""
    return membership.taking_part >= rules.clients and membership.is_all_held(frontier, rules.steps - 1)


def may_end(
    origin: OriginId,
    rules: Rules,
    membership: Membership,
    frontier: Frontier,
    repair: Repair,
    linked: Iterable[OriginId],
    *,
    is_patient: bool,
) -> bool:
    """A node that is patient waits until its neighbours agree and none of them is away.

    One that has lost patience ends without them; but in strict windows never without all updates of those who joined.
    """
    if not is_patient:
        return rules.window != "strict" or membership.is_all_held(frontier, rules.steps - 1)
    linked = set(linked)
    is_nobody_away = not membership.neighbours(origin) - linked
    is_agreed = all(repair.agrees(peer, frontier) for peer in linked)
    return is_nobody_away and is_agreed and holds_everything(rules, membership, frontier)
