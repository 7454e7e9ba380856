"""A swarm that trains nothing: hosts agree on the mean of their numbers by gossip.

What a swarm does for its algorithm is seen here without SeedFlood: no module of it is imported.
"""

import struct
from collections import deque
from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seedflood.errors import PeerError
from seedflood.protocol.swarm.admission import MemberAdmission
from seedflood.protocol.swarm.algorithm import Algorithm
from seedflood.protocol.swarm.messages import (
    ALGORITHM_BYTES_MAX,
    AlgorithmMessage,
    Goodbye,
    Member,
    Members,
    Ping,
)
from seedflood.protocol.swarm.outputs import Outbox, Outputs
from seedflood.protocol.swarm.presence import Presence
from seedflood.protocol.swarm.rules import Patience, SwarmRules
from seedflood.protocol.swarm.swarm import Swarm
from seedflood.protocol.view import Blocker

RUN_ID, BASE_DIGEST = b"r" * 32, b"b" * 32
PATIENCE = Patience(repair_seconds=2.0)


@dataclass(frozen=True, slots=True)
class Share(AlgorithmMessage):
    """A part of what a host has, given away (push-sum gossip; Kempe, Dobra and Gehrke 2003)."""

    total: float
    weight: float


class Mean(Algorithm):
    """Agrees on the mean of a number. What a host began with stands in its statement."""

    phase, step, has_spoken, is_ready = "gossiping", 0, True, True

    def __init__(self, number, presence, outbox):
        self.number, self.total, self.weight, self.turns = number, number, 1.0, 0
        self._presence, self._outbox = presence, outbox
        self.advanced = 0

    @property
    def mean(self):
        return self.total / self.weight

    def state(self):
        return struct.pack(">d", self.number)

    def received(self, peer, message, now):
        if message.weight <= 0:
            raise PeerError("a share without weight", reason="share")
        self.total, self.weight = self.total + message.total, self.weight + message.weight

    def advance(self, now):
        self.advanced += 1

    def compare(self, now):
        """Gives half of what there is to the next neighbour."""
        neighbours = sorted(self._presence.neighbours)
        if neighbours:
            self.turns, peer = self.turns + 1, neighbours[self.turns % len(neighbours)]
            self.total, self.weight = self.total / 2, self.weight / 2
            self._outbox.send(peer, Share(self.total, self.weight))

    def blockers(self, now):
        if self._presence.neighbours:
            return ()
        return (Blocker("no link", None, "any neighbour", None, now),)

    def describe(self, view):
        return replace(view, figures={"mean": self.mean})


def check_number(state):
    if len(state) != 8:
        raise PeerError("no number", reason="limit")


class Host:
    def __init__(self, name, number, clients=4):
        rules = SwarmRules(RUN_ID, BASE_DIGEST, clients, steps=1)
        self.admission = MemberAdmission(rules, lambda *_: True, check_state=check_number)
        outbox = Outbox(Outputs)
        member = Member(name.encode().ljust(32, b"."), name, 1)
        presence = Presence(rules, member, lambda _: bytes(64), self.admission, outbox)
        self.algorithm = Mean(number, presence, outbox)
        self.swarm = Swarm(presence, self.algorithm, outbox, PATIENCE)
        self.swarm.recall([], now=0.0)
        presence.declare(first_step=0)
        self.presence = presence
        self.origin = self.swarm.origin
        self.events = []


def link(a, b, now=0.0):
    hellos = [(a, b, a.swarm.hello()), (b, a, b.swarm.hello())]
    for sender, receiver, hello in hellos:
        receiver.admission.check_hello(hello)
        receiver.swarm.connected(sender.origin, hello, now)


def deliver(hosts, now=0.0):
    """Until nobody has anything to say."""
    by_origin = {host.origin: host for host in hosts}
    waiting = deque()
    while True:
        for host in hosts:
            out = host.swarm.collect()
            host.events += out.events
            waiting += [(host, by_origin[peer], message) for peer, message in out.send]
        if not waiting:
            return
        while waiting:
            sender, receiver, message = waiting.popleft()
            receiver.swarm.received(sender.origin, message, now)


def state_links(hosts):
    """As each does when it compares."""
    for host in hosts:
        host.presence.declare_neighbours()
    deliver(hosts)


def make_ring(numbers):
    hosts = [Host(f"h{k}", number, len(numbers)) for k, number in enumerate(numbers)]
    for k, host in enumerate(hosts):
        if k + 1 < len(hosts):
            link(host, hosts[k + 1])
    if len(hosts) > 2:
        link(hosts[-1], hosts[0])
    deliver(hosts)
    return hosts


def test_what_is_no_message_is_not_passed_over_in_silence():
    a, b = make_ring([1.0, 2.0])
    with pytest.raises(AssertionError):
        a.swarm.received(b.origin, b"a share", 0.0)


@given(numbers=st.lists(st.floats(-1e3, 1e3), min_size=2, max_size=6))
def test_hosts_agree_on_the_mean(numbers):
    hosts = make_ring(numbers)
    for turn in range(120):
        for host in hosts:
            host.swarm.tick(now=2.0 * turn)
            deliver(hosts, now=2.0 * turn)
    mean = sum(numbers) / len(numbers)
    assert [host.algorithm.mean for host in hosts] == pytest.approx([mean] * len(hosts), abs=1e-6)


def test_what_an_algorithm_states_reaches_everyone():
    hosts = make_ring([1.0, 2.0, 3.0, 4.0, 5.0])
    for host in hosts:
        stated = {struct.unpack(">d", member.algorithm)[0] for member in host.swarm.membership.all()}
        assert stated == {1.0, 2.0, 3.0, 4.0, 5.0}


def test_an_algorithm_cannot_state_what_nobody_takes():
    (host,) = make_ring([1.0])
    host.algorithm.state = lambda: bytes(ALGORITHM_BYTES_MAX + 1)
    with pytest.raises(AssertionError, match="more than anyone takes"):
        host.swarm._presence.declare()


def test_hosts_know_the_graph():
    hosts = make_ring([0.0] * 6)
    state_links(hosts)
    assert {host.swarm.membership.diameter() for host in hosts} == {3}


def test_a_state_that_the_algorithm_does_not_know_is_the_fault_of_its_sender():
    a, b = make_ring([1.0, 2.0])
    forged = Members((Member(b"f" * 32, "forger", 1, algorithm=b"?"),))
    with pytest.raises(PeerError, match="no number"):
        a.swarm.received(b.origin, forged, now=0.0)
    assert len(a.swarm.membership) == 2


def test_a_message_of_the_algorithm_that_is_not_allowed_changes_nothing():
    a, b = make_ring([1.0, 2.0])
    with pytest.raises(PeerError, match="without weight"):
        a.swarm.received(b.origin, Share(1.0, 0.0), now=0.0)
    assert a.algorithm.mean == 1.0


def test_a_second_hello_on_one_link_is_refused():
    a, b = make_ring([1.0, 2.0])
    with pytest.raises(PeerError, match="second hello"):
        a.swarm.received(b.origin, b.swarm.hello(), now=0.0)


def test_who_is_not_linked_is_not_heard():
    a, b = make_ring([1.0, 2.0])
    a.swarm.disconnected(b.origin, now=0.0)
    a.swarm.received(b.origin, Share(100.0, 1.0), now=0.0)
    assert a.algorithm.mean == 1.0
    assert [event.name for event in a.swarm.collect().events] == ["link down"]


def test_pings_are_sent_once_per_comparison_and_answered():
    a, b = make_ring([1.0, 2.0])
    a.swarm.tick(now=10.0)
    assert [message for _, message in a.swarm.collect().send if isinstance(message, Ping)] == [Ping(10.0)]
    a.swarm.tick(now=11.0)
    assert [message for _, message in a.swarm.collect().send if isinstance(message, Ping)] == []
    b.swarm.received(a.origin, Ping(10.0), now=10.0)
    deliver([a, b], now=10.5)
    assert a.swarm.membership.get(a.origin).neighbours == (b.origin,)


def test_the_algorithm_is_asked_what_is_due_after_whatever_happened():
    a, b = make_ring([1.0, 2.0])
    before = a.algorithm.advanced
    a.swarm.received(b.origin, Goodbye(), now=0.0)
    a.swarm.tick(now=0.0)
    assert a.algorithm.advanced == before + 2


def test_a_node_is_seen_as_the_swarm_and_its_algorithm_know_it():
    a, b = make_ring([1.0, 3.0])
    state_links([a, b])
    view = a.swarm.view(now=5.0)
    assert (view.now, view.phase, view.step, view.is_ready, view.linked, view.diameter) == (
        5.0,
        "gossiping",
        0,
        True,
        1,
        1,
    )
    assert {member.name: member.status for member in view.members} == {"h0": "self", "h1": "linked"}
    assert view.edges == (tuple(sorted((a.origin, b.origin))),)
    assert (view.figures, view.blockers, view.window) == ({"mean": 1.0}, (), None)
    a.swarm.disconnected(b.origin, now=6.0)
    assert [(one.kind, one.name) for one in a.swarm.view(now=6.0).blockers] == [("no link", "any neighbour")]


def test_everyone_is_gone_once_all_clients_have_come_and_left():
    alpha, beta = Host("alpha", 1.0, clients=2), Host("beta", 2.0, clients=2)
    alpha.presence.declare(last_step=0)
    assert not alpha.swarm.is_everyone_gone()  # beta has still to come
    link(alpha, beta)
    deliver([alpha, beta])
    assert not alpha.swarm.is_everyone_gone()
    beta.presence.declare(last_step=-1)
    deliver([alpha, beta])
    assert alpha.swarm.is_everyone_gone()
