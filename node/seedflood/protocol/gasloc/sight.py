"""How a node that trains by GASLoC is seen: its figures, and why it waits.

no link      it joins, and does not know from anybody how far the others are
donor        it joins, and needs a copy of a neighbour's replica
start        it waits for the others before the first round
own replica  it loads its own
partner      the round waits for the partner, or for its parameters
neighbour    at the end of the run: it has not come to the end, or does not have the replica with which all end
copy         at the end of the run: it takes a copy of our replica
replica      at the end of the run: we need its replica, or one that others have of it
"""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from seedflood.protocol.gasloc.phase import Phase
from seedflood.protocol.origin import OriginId
from seedflood.protocol.swarm.membership import Membership
from seedflood.protocol.view import Blocker

if TYPE_CHECKING:  # it shows itself by these functions
    from seedflood.protocol.gasloc.algorithm import Gasloc


def figures_of(node: "Gasloc") -> dict[str, float]:
    return {
        "round": float(node.round),
        "exchanges": float(node.exchange.mixed),
        "exchanges_skipped": float(node.exchange.skipped),
        "exchange_seconds": node.exchange.seconds,
        "equal_replicas": float(len(node.agreement.choice.equal())),
        "unequal_replicas": float(len(node.agreement.choice.unequal())),
        "local_seconds": node.pace.local_seconds,
        "bytes_sent": float(node.carrier.bytes_sent),
        "bytes_received": float(node.carrier.bytes_received),
        "slow_links": float(len(node.pace.slow)),
    }


def words_of(node: "Gasloc", membership: Membership, ours: OriginId) -> dict[str, str]:
    matched = [a if b == ours else b for a, b in node.exchange.pairs]
    hosts: dict[str, Iterable[OriginId]] = {"matched_with": matched, "exchanged_with": node.exchange.partners}
    hosts["unequal_to"] = node.agreement.choice.unequal()
    return {name: ", ".join(membership.names(origins)) or "nobody" for name, origins in hosts.items()}


def find_blockers(node: "Gasloc", membership: Membership, now: float) -> Iterator[Blocker]:
    agreement = node.agreement
    match node.life.phase:
        case Phase.JOINING:
            yield _while_joining(node, membership)
        case _ if agreement.wait.is_under_way:
            yield from _at_the_end(node, membership, now)
        case Phase.CHOOSING if not agreement.is_publishing:
            yield from _while_choosing(node, membership)
        case Phase.FINISHING:
            kinds = dict.fromkeys(agreement.awaited(now), "neighbour") | dict.fromkeys(node.serve.peers, "copy")
            for origin in sorted(kinds, key=membership.name):
                yield Blocker(kinds[origin], origin, membership.name(origin), None, agreement.since)
        case _ if node.exchange.is_open and not node.course.is_computing:
            yield from node.exchange.blockers()


def _at_the_end(node: "Gasloc", membership: Membership, now: float) -> Iterator[Blocker]:
    wait = node.agreement.wait
    awaited, since = sorted(wait.awaited(now), key=membership.name), wait.since
    for origin in awaited:
        yield Blocker("neighbour", origin, membership.name(origin), None, since)
    if not awaited:
        yield Blocker("neighbour", None, "hosts that were never met", None, since)


def _while_choosing(node: "Gasloc", membership: Membership) -> Iterator[Blocker]:
    aim, since = node.agreement.aim, node.agreement.since
    if aim is not None:
        yield Blocker("replica", aim.author, membership.name(aim.author), None, since)
    else:
        yield Blocker("replica", None, "any neighbour that has the replica with which all end", None, since)


def _while_joining(node: "Gasloc", membership: Membership) -> Blocker:
    donor, since = node.fetch.donor, node.joining.since
    if not node.course.is_restored:
        return Blocker("own replica", None, "its own replica, which is loaded or evaluated", None, since)
    if node.fetch.is_adopting:
        return Blocker("own replica", None, "a copy, which is loaded", None, since)
    if donor is not None:
        return Blocker("donor", donor, membership.name(donor), None, since)
    if node.talk.progress and node.joining.is_copy_needed(node.round):
        return Blocker("donor", None, "a neighbour that has a copy", None, since)
    if node.talk.progress:
        return Blocker("start", None, "hosts of the run", None, since)
    return Blocker("no link", None, "any neighbour", None, since)
