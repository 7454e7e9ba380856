"""What an operator sees of a node that trains by GASLoC: its figures, and why it waits.

A blocker has one of these kinds. "The other" is the host that it names.

no link      the node joins, and does not know yet how far the others are
donor        the node joins, and needs a copy of a neighbour's replica
start        the node waits for the others before the first round
own replica  the node loads its own replica, or a copy
partner      the round waits for the other, or for its parameters
neighbour    at the end of the run: the other has not come to the end, or holds another replica than the one with
             which all end
copy         at the end of the run: the other takes a copy of our replica
replica      at the end of the run: we need the replica of the other, from it or from a host that has it
"""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from seedflood.protocol.gasloc.phase import Phase
from seedflood.protocol.origin import OriginId
from seedflood.protocol.swarm.membership import Membership
from seedflood.protocol.view import Blocker

if TYPE_CHECKING:  # it imports this module
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
    hosts: dict[str, Iterable[OriginId]] = {
        "matched_with": [one if other == ours else other for one, other in node.exchange.pairs],
        "exchanged_with": node.exchange.partners,
        "unequal_to": node.agreement.choice.unequal(),
    }
    return {name: ", ".join(membership.names(origins)) or "nobody" for name, origins in hosts.items()}


def find_blockers(node: "Gasloc", membership: Membership, now: float) -> Iterator[Blocker]:
    """What the node waits for now."""
    agreement = node.agreement
    match node.life.phase:
        case Phase.JOINING:
            yield _while_joining(node, membership)
        case _ if agreement.wait.is_under_way:
            yield from _at_the_end(node, membership, now)
        case Phase.CHOOSING if not agreement.is_publishing:
            yield from _while_choosing(node, membership)
        case Phase.FINISHING:
            kinds = dict.fromkeys(agreement.awaited(now), "neighbour")
            kinds |= dict.fromkeys(node.serve.peers, "copy")
            for origin in sorted(kinds, key=membership.name):
                yield Blocker(kinds[origin], origin, membership.name(origin), None, agreement.since)
        case _ if node.exchange.is_open and not node.course.is_computing:
            yield from node.exchange.blockers()


def _at_the_end(node: "Gasloc", membership: Membership, now: float) -> Iterator[Blocker]:
    """The hosts that the node waits for before the closing rounds, or before it chooses a replica."""
    wait = node.agreement.wait
    awaited = sorted(wait.awaited(now), key=membership.name)
    for origin in awaited:
        yield Blocker("neighbour", origin, membership.name(origin), None, wait.since)
    if not awaited:
        yield Blocker("neighbour", None, "hosts that were never met", None, wait.since)


def _while_choosing(node: "Gasloc", membership: Membership) -> Iterator[Blocker]:
    aim = node.agreement.aim
    since = node.agreement.since
    if aim is not None:
        yield Blocker("replica", aim.author, membership.name(aim.author), None, since)
    else:
        yield Blocker("replica", None, "any neighbour that has the replica with which all end", None, since)


def _while_joining(node: "Gasloc", membership: Membership) -> Blocker:
    donor = node.fetch.donor
    since = node.joining.since
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
