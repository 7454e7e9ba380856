"""A few nodes and everything that can happen between them, in any order, against what is obviously right.

The world is as bad as TCP, disks and schedulers allow: messages of a link arrive in order, but late, twice, or not at
all when the link breaks with everything in flight; a process dies between any two calls and loses what it had not
synced. Hellos travel like everything else, so that the two ends of a link are never up at the same moment.
"""

from collections import Counter, deque
from dataclasses import dataclass, field
from itertools import combinations

import hypothesis.strategies as st
from hypothesis import Phase, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from origins import Origin, make_rules

from seedflood.protocol.frontier import Frontier
from seedflood.protocol.messages import STEP_MAX, Hello, Updates
from seedflood.protocol.node import Node
from seedflood.protocol.outputs import Measure
from seedflood.protocol.rules import Patience

ORIGINS = [Origin(f"o{index}") for index in range(5)]
PATIENCE = Patience(repair_seconds=1.0, start_seconds=5.0, linger_seconds=20.0)


@dataclass
class Host:
    """A disk, and the process that may run on it."""

    origin: Origin
    bundles: list = field(default_factory=list)
    members: dict = field(default_factory=dict)
    durable: int = 0
    incarnation: int = 0
    node: Node | None = None
    order: Measure | None = None
    applied: Counter = field(default_factory=Counter)
    is_finished: bool = False


class NodesTogether(RuleBasedStateMachine):
    @initialize(
        count=st.integers(2, 5),
        window=st.sampled_from(["strict", "bounded", "none"]),
        local_steps=st.sampled_from([1, 1, 3]),
        rounds=st.integers(1, 5),
        may_leave=st.booleans(),
        data=st.data(),
    )
    def build(self, count, window, local_steps, rounds, may_leave, data):
        self.now = 0.0
        self.rules = make_rules(count, rounds * local_steps, window, local_steps)
        self.hosts = [Host(origin) for origin in ORIGINS[:count]]
        self.edges = {(data.draw(st.integers(0, k - 1)), k) for k in range(1, count)}
        self.edges |= data.draw(st.sets(st.sampled_from(list(combinations(range(count), 2)))))
        self.ways = {}
        """Per direction of a link that is up: what is on its way. The hello is the first thing that arrives."""
        self.published = {}
        self.may_leave, self.has_anyone_left = may_leave, False
        for host in self.hosts:
            self.boot(host)

    # The world

    def boot(self, host):
        host.incarnation += 1
        host.applied, host.order, host.is_finished = Counter(), None, False
        host.node = host.origin.node(
            self.rules,
            bundles=list(host.bundles),
            members=list(host.members.values()),
            incarnation=host.incarnation,
            patience=PATIENCE,
            now=self.now,
        )
        self.honour(host)

    def honour(self, host):
        """What the driver does, and the checks that belong to every output."""
        out = host.node.collect()
        host.bundles += out.bundles
        host.members |= {member.origin: member for member in out.members}
        if out.is_durable:
            host.durable = len(host.bundles)
        for peer, message in out.send:
            self.check_said(host, message)
            self.put(host, peer, message)
        for peer, frontier in out.pull:
            self.put(host, peer, ("pull", frontier))
        for window in out.apply:
            for update in window.updates:
                assert self.published[update.origin, update.step] == (update.seed, update.scalar)
                host.applied[update.origin, update.step] += 1
                assert host.applied[update.origin, update.step] == 1
        if out.measure is not None:
            self.check_measure(host, out.measure)
            host.order = out.measure
        host.is_finished |= out.is_finished

    def check_said(self, host, message):
        for bundle in message.bundles if isinstance(message, Updates) else ():
            assert bundle in host.bundles
            if bundle.origin == host.origin.id:
                assert bundle in host.bundles[: host.durable]

    def check_measure(self, host, order):
        """Strict windows are the paper's algorithm: everyone measures on the sum of all that came before."""
        assert (order.count, order.step % order.count) == (self.rules.local_steps, 0)
        if self.rules.window == "strict" and not self.has_anyone_left:
            before = {(o.origin.id, step) for o in self.hosts for step in range(order.step)}
            assert set(host.applied) == before

    def put(self, host, peer, item):
        way = (self.hosts.index(host), next(k for k, other in enumerate(self.hosts) if other.origin.id == peer))
        if way in self.ways:
            self.ways[way].append(item)

    def take(self, way):
        """One thing arrives."""
        sender, receiver = self.hosts[way[0]], self.hosts[way[1]]
        item = self.ways[way].popleft()
        match item:
            case Hello():
                receiver.node.admission.check_hello(item)
                receiver.node.connected(sender.origin.id, item, self.now)
            case "pull", frontier:
                lacking = Frontier(frontier)
                bundles = [b for b in receiver.bundles if not lacking.holds(b.origin, b.first_covered, b.last)]
                self.put(receiver, sender.origin.id, Updates(tuple(bundles)))
                self.put(receiver, sender.origin.id, ("pulled",))
            case ("pulled",):
                receiver.node.pulled(sender.origin.id, self.now)
            case _:
                receiver.node.received(sender.origin.id, item, self.now)
        self.honour(receiver)

    def cut(self, edge):
        for way in (edge, edge[::-1]):
            self.ways.pop(way, None)
        for host, other in (edge, edge[::-1]):
            host, other = self.hosts[host], self.hosts[other]
            if host.node is not None and other.origin.id in host.node.flood.neighbours:
                host.node.disconnected(other.origin.id, self.now)
                self.honour(host)

    def link(self, edge):
        a, b = (self.hosts[k] for k in edge)
        if edge not in self.ways and a.node is not None and b.node is not None:
            self.ways[edge] = deque([a.node.hello()])
            self.ways[edge[::-1]] = deque([b.node.hello()])

    def measure(self, host, scalar):
        order, host.order = host.order, None
        probes = [(STEP_MAX & hash((scalar, k)) & 0xFFFF, scalar) for k in range(order.count)]
        before = host.node.frontier.last(host.origin.id)
        host.node.published(order.step, probes, self.now)
        if host.node.frontier.last(host.origin.id) > before:
            for k, probe in enumerate(probes):
                assert (host.origin.id, order.step + k) not in self.published
                self.published[host.origin.id, order.step + k] = probe
        self.honour(host)

    # What can happen

    def up(self):
        return [host for host in self.hosts if host.node is not None]

    @rule(data=st.data())
    def dial(self, data):
        self.link(data.draw(st.sampled_from(sorted(self.edges))))

    @rule()
    def dial_all(self):
        for edge in sorted(self.edges):
            self.link(edge)

    @precondition(lambda self: any(self.ways.values()))
    @rule(data=st.data(), count=st.integers(1, 10))
    def deliver(self, data, count):
        way = data.draw(st.sampled_from(sorted(way for way, items in self.ways.items() if items)))
        for _ in range(count):
            if self.ways.get(way):
                self.take(way)

    @precondition(lambda self: any(self.ways.values()))
    @rule()
    def deliver_all_that_is_on_its_way(self):
        for way, count in [(way, len(items)) for way, items in sorted(self.ways.items())]:
            for _ in range(count):
                self.take(way)

    @rule(data=st.data())
    def deliver_twice(self, data):
        ways = sorted(way for way, items in self.ways.items() if items and isinstance(items[0], Updates))
        if ways:
            way = data.draw(st.sampled_from(ways))
            self.ways[way].appendleft(self.ways[way][0])
            self.take(way)

    @precondition(lambda self: self.ways)
    @rule(data=st.data())
    def break_link(self, data):
        way = data.draw(st.sampled_from(sorted(self.ways)))
        self.cut((min(way), max(way)))

    @rule(data=st.data(), is_restarted=st.booleans())
    def crash(self, data, is_restarted):
        host = data.draw(st.sampled_from(self.hosts))
        if host.node is not None:
            host.node = None
            del host.bundles[data.draw(st.integers(host.durable, len(host.bundles))) :]
            for edge in self.edges:
                if self.hosts.index(host) in edge:
                    self.cut(edge)
            if is_restarted:
                self.boot(host)

    @rule(data=st.data())
    def restart(self, data):
        host = data.draw(st.sampled_from(self.hosts))
        if host.node is None:
            self.boot(host)

    @precondition(lambda self: self.may_leave)
    @rule(data=st.data())
    def leave(self, data):
        host = data.draw(st.sampled_from(self.hosts))
        if host.node is not None:
            self.has_anyone_left = True
            host.node.leave(self.now)
            self.honour(host)

    @rule(seconds=st.sampled_from([0.001, 0.03, 0.5, 1.0, 6.0]))
    def pass_time(self, seconds):
        self.now += seconds
        for host in self.up():
            host.node.tick(self.now)
            self.honour(host)

    @rule(data=st.data())
    def tick_when_told(self, data):
        """The clock of a shell that sleeps exactly as long as it may."""
        if self.up():
            host = data.draw(st.sampled_from(self.up()))
            at = host.node.next_tick(self.now)
            assert self.now <= at < float("inf")
            self.now = at
            phase, step = host.node.phase, host.node.step
            host.node.tick(self.now)
            self.honour(host)
            assert (host.node.phase, host.node.step) != (phase, step) or host.node.next_tick(self.now) > at

    @rule(data=st.data(), scalar=st.integers(-9, 9))
    def publish(self, data, scalar):
        measuring = [host for host in self.up() if host.order is not None]
        if measuring:
            self.measure(data.draw(st.sampled_from(measuring)), scalar)

    @rule(rounds=st.integers(1, 3))
    def some_rounds_go_well(self, rounds):
        """Or hardly any run would get beyond its first step."""
        for _ in range(rounds):
            self.publish_all(rounds)
            self.deliver_all_that_is_on_its_way()

    @rule(scalar=st.integers(-9, 9))
    def publish_all(self, scalar):
        for host in self.up():
            if host.order is not None:
                self.measure(host, scalar)

    # What always holds

    @invariant()
    def what_is_applied_and_what_waits_is_what_is_held(self):
        for host in self.hosts if hasattr(self, "hosts") else ():
            if host.node is not None:
                held = Counter((u.origin, u.step) for bundle in host.bundles for u in bundle.updates())
                waiting = Counter((u.origin, u.step) for bundle in host.node._pending.bundles for u in bundle.updates())
                assert host.applied + waiting == held

    @invariant()
    def a_frontier_is_what_the_journal_covers(self):
        for host in self.hosts if hasattr(self, "hosts") else ():
            if host.node is not None:
                covered = Frontier()
                for bundle in host.bundles:
                    covered.add(bundle.origin, bundle.first_covered, bundle.last)
                assert host.node.frontier == covered

    # Healing

    def teardown(self):
        if not hasattr(self, "hosts"):
            return
        for host in self.hosts:
            if host.node is not None and host.node.phase.value == "left":
                host.node = None
                for edge in self.edges:
                    if self.hosts.index(host) in edge:
                        self.cut(edge)
            if host.node is None:
                self.boot(host)
        for _ in range(60 + 20 * self.rules.steps):
            self.heal_once()
            if all(host.is_finished for host in self.hosts) and not any(self.ways.values()):
                break
        assert [str(h.node.phase) + str(h.node.waiting_for()) for h in self.hosts if not h.is_finished] == []
        assert len({host.node.frontier.digest() for host in self.hosts}) == 1
        for host in self.hosts:
            assert host.applied == Counter(self.published.keys())
        assert len({tuple(sorted(m.age for m in host.members.values())) for host in self.hosts}) == 1

    def heal_once(self):
        self.dial_all()
        while any(self.ways.values()):
            self.deliver_all_that_is_on_its_way()
        self.publish_all(1)
        while any(self.ways.values()):
            self.deliver_all_that_is_on_its_way()
        self.pass_time(0.5)


WITHOUT_EXPLAINING = (Phase.reuse, Phase.generate, Phase.shrink)  # which traces every line and takes most of the time
NodesTogether.TestCase.settings = settings(
    max_examples=100, stateful_step_count=50, deadline=None, phases=WITHOUT_EXPLAINING
)
TestNodesTogether = NodesTogether.TestCase
