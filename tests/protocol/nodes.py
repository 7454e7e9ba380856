"""A node by hand: what happens to it, and what it wants done."""

from origins import A, make_rules, replica

from seedflood.protocol.frontier import Frontier
from seedflood.protocol.seedflood.blockers import describe
from seedflood.protocol.seedflood.bundles import Updates
from seedflood.protocol.seedflood.messages import FrontierDigest, ReplicaDigest
from seedflood.protocol.seedflood.outputs import ClosedWindow, Measure, Measured, Pulled
from seedflood.protocol.swarm.rules import Patience

PROBES = [(1, 2)]
PATIENCE = Patience(repair_seconds=2.0, start_seconds=60.0, linger_seconds=60.0)


def started(*, clients=2, journal=(), members=(), incarnation=1, now=0.0, kept=None, **rules):
    """kept: what else its journal holds, as `Node.start` is told."""
    rules = make_rules(clients=clients, **rules)
    node = A.node(
        rules,
        bundles=journal,
        members=members,
        incarnation=incarnation,
        patience=PATIENCE,
        now=now,
        **(kept or {}),
    )
    node.tick(now)
    node.collect()
    return node


def linked(*peers, frontier=(), now=0.0, clients=None, **rules):
    """A node that has caught up with its neighbours and measures its first step."""
    node = started(clients=clients or len(peers) + 1, now=now, **rules)
    for peer in peers:
        node.connected(peer.id, peer.hello(frontier), now)
    end_pulls(node, *peers, now=now)
    return node


def end_pulls(node, *peers, now=0.0):
    """Whatever was asked of these has been answered."""
    node.collect()
    for peer in peers:
        node.answer(Pulled(peer.id), now)
    return node.collect()


def publish(node, now=0.0, count=1):
    node.answer(Measured(node.step, PROBES * count), now)
    return node.collect()


def hear(node, peer, message, now=0.0):
    node.received(peer.id, message, now)
    return node.collect()


def answer_pull(node, peer, *messages, now=0.0):
    """The peer tells what it was asked for, to the end."""
    for message in messages:
        node.received(peer.id, message, now)
    node.answer(Pulled(peer.id), now)
    return node.collect()


def tick(node, now):
    node.tick(now)
    return node.collect()


def orders(out, kind):
    return [order for order in out.orders if isinstance(order, kind)]


def measure_of(out):
    """What is to be measured, if anything."""
    return next(iter(orders(out, Measure)), None)


def windows(out):
    return orders(out, ClosedWindow)


def applied_steps(out):
    return [(window.steps, sorted(update.step for update in window.updates)) for window in windows(out)]


def sent(out, peer, kind):
    return [message for to, message in out.send if to == peer.id and isinstance(message, kind)]


def sent_bundles(out, peer):
    return [bundle for message in sent(out, peer, Updates) for bundle in message.bundles]


def waiting_for(node, now=0.0):
    """The names in the line `waiting` of the log."""
    return describe(node.blockers(now))["waiting_for"]


def events(out):
    return [event.name for event in out.events]


def digest(node, *held, **said):
    """What a neighbour says that holds this and knows the statements that the node knows."""
    return FrontierDigest(Frontier(held).digest(), members_digest=node.membership.digest(), **said)


def complete(node, *held):
    return digest(node, *held, is_complete=True)


def agree(node, *peers, now=0.0):
    """These say the same digest as the node, of what it has applied."""
    said = replica(*node.applied.held())
    node.answer(ReplicaDigest(said.frontier_digest, said.replica_digest), now)
    for peer in peers:
        node.received(peer.id, said, now)
    return node.collect()
