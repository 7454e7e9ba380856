"""A few nodes and everything that can happen between them, in any order, against what is obviously right.

The world is as bad as TCP, disks and schedulers allow: messages of a link arrive in order, but late, twice, or not at
all when the link breaks with everything in flight; a process dies between any two calls and loses what it had not
synced. Hellos travel like everything else, so that the two ends of a link are never up at the same moment. Epochs are
closed, compacted and adopted; a disk may be lost, key and all but the key, as long as nobody else falls ill with it.
"""

import hashlib
import struct
from collections import Counter, deque
from dataclasses import dataclass, field
from itertools import combinations

import hypothesis.strategies as st
import pytest
from hypothesis import Phase, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from origins import Origin, make_rules, pack_sum

from disks import Disk
from seedflood.host.backlog import Backlog
from seedflood.host.seedflood.history import pages, take_stock
from seedflood.protocol.frontier import Frontier
from seedflood.protocol.origin import STEP_MAX
from seedflood.protocol.seedflood.bundles import SCALAR_MAX, Update, Updates
from seedflood.protocol.seedflood.messages import ClosedEpoch, ReplicaDigest, Votes
from seedflood.protocol.seedflood.node import Node
from seedflood.protocol.seedflood.opening import joined
from seedflood.protocol.seedflood.outputs import (
    ClosedWindow,
    Compacted,
    Measure,
    Measured,
    Pulled,
    Rebuild,
    Remade,
    SumEpoch,
    TakeDigest,
)
from seedflood.protocol.swarm.membership import Membership
from seedflood.protocol.swarm.messages import Hello, Members
from seedflood.protocol.swarm.rules import Patience

ORIGINS = [Origin(f"o{index}") for index in range(5)]
PATIENCE = Patience(repair_seconds=1.0, start_seconds=5.0, linger_seconds=20.0)


@dataclass
class Host:
    """A disk, and the process that may run on it.

    applied: what its coefficients stand for. answers: what its model has to say, but has not said yet. is_new: it has
    lost its disk and has not measured since. began: the step it was asked for first, or first after its disk was lost.
    """

    origin: Origin
    disk: Disk
    members: dict = field(default_factory=dict)
    incarnation: int = 0
    node: Node | None = None
    order: Measure | None = None
    applied: Counter = field(default_factory=Counter)
    answers: deque = field(default_factory=deque)
    is_finished: bool = False
    is_new: bool = False
    began: int = 0


def weigh(update):
    """What an update adds to the coefficients of its epoch: something that no other update adds."""
    return int.from_bytes(hashlib.sha256(repr(update).encode()).digest()[:4], "big") % SCALAR_MAX


class NodesTogether(RuleBasedStateMachine):
    @initialize(
        count=st.integers(2, 5),
        window=st.sampled_from(["strict", "bounded"]),
        local_steps=st.sampled_from([1, 1, 3]),
        rounds=st.sampled_from([1, 2, 3, 5, 12, 16]),
        period=st.integers(1, 3),
        delay=st.sampled_from([0, 0, 1, 2, 3]),
        may_leave=st.booleans(),
        data=st.data(),
    )
    def build(self, count, window, local_steps, rounds, period, delay, may_leave, data):
        if may_leave:
            rounds = max(
                rounds, 2
            )  # in a run of one round nobody returns too late, though epochs are closed at its end
        edges = {(data.draw(st.integers(0, k - 1)), k) for k in range(1, count)}
        edges |= data.draw(st.sets(st.sampled_from(list(combinations(range(count), 2)))))
        self.begin(
            make_rules(count, rounds * local_steps, window, local_steps, period * local_steps, delay=delay), edges
        )
        self.may_leave = may_leave

    def begin(self, rules, edges):
        self.now = 0.0
        self.rules = rules
        self.hosts = [Host(origin, Disk(rules.refresh_period)) for origin in ORIGINS[: rules.clients]]
        self.edges = edges
        self.ways = {}
        """Per direction of a link that is up: what is on its way. The hello is the first thing that arrives."""
        self.published = {}
        self.may_leave, self.has_anyone_left = False, False
        self.adopted = self.compacted = 0
        for host in self.hosts:
            self.boot(host)

    # The world

    def boot(self, host):
        host.incarnation += 1
        host.applied, host.order, host.is_finished = Counter(), None, False
        host.answers.clear()
        for closed in host.disk.closed.values():
            host.applied.update((update.origin, update.step) for update in self.covered(closed))
        members = list(host.members.values())
        settled, waiting, closed = take_stock(host.disk, members, host.origin.id, self.rules, waiting_rounds=1)
        early = joined(settled.values())
        host.applied.update(
            (u.origin, u.step) for page in pages(host.disk, Backlog(host.origin.id), early) for u in page
        )
        host.node = host.origin.node(
            self.rules,
            bundles=waiting,
            settled=settled,
            members=members,
            closed=closed,
            incarnation=host.incarnation,
            patience=PATIENCE,
            now=self.now,
        )
        self.honour(host)

    def honour(self, host):
        """What the driver does, and the checks that belong to every output."""
        out = host.node.collect()
        others = [(closed, host.disk.adopt(closed)) for closed in out.adopt]
        host.disk.append(out.bundles, durable=out.is_durable)
        host.members |= {(member.origin, member.has_spoken): member for member in out.members}  # as the journal does
        if any(member.origin == host.origin.id and member.last_step == -1 for member in out.members):
            host.began = STEP_MAX  # it came back too late for the last round, so it owes none
        for peer, message in out.send:
            self.check_said(host, message)
            self.put(host, peer, message)
        for peer, frontier in out.pull:
            self.put(host, peer, ("pull", frontier))
        for closed, bundles in others:
            self.adopt(host, closed, bundles)
        for order in out.orders:
            self.obey(host, order)
        for closed in out.compact:
            self.compacted += 1
            host.disk.compact(closed)
        assert [event for event in out.events if event.level == "error"] == []
        host.is_finished |= out.is_finished
        for closed in out.compact:
            host.node.answer(Compacted(closed), self.now)
            self.honour(host)

    def obey(self, host, order):
        """The model does one thing after the other; what comes of it is heard later."""
        match order:
            case ClosedWindow():
                self.apply(host, order.updates)
            case Measure():
                self.check_measure(host, order)
                host.order = order
            case TakeDigest(frontier_digest):
                host.answers.append(ReplicaDigest(frontier_digest, self.digest(host)))
            case SumEpoch(epoch, frontier):
                closed = ClosedEpoch(epoch, frontier, pack_sum(self.add_up(host, epoch)))
                assert {(u.origin, u.step) for u in self.covered(closed)} == set(self.applied_in(host, epoch))
                host.answers.append(closed)
            case Rebuild() if self.rules.window == "strict" and self.has_anyone_left:
                host.answers.append(Remade(False))  # who comes back too late puts a step beside a sum
            case _:
                raise AssertionError("no replica is ever wrong here")

    def apply(self, host, updates):
        for update in updates:
            assert self.published[update.origin, update.step] == update.value
            host.applied[update.origin, update.step] += 1
            assert host.applied[update.origin, update.step] == 1

    def adopt(self, host, closed, others):
        """The sum is right, and nothing is forgotten that it does not hold."""
        self.adopted += 1
        covered = self.covered(closed)
        assert closed.coefficients == pack_sum(sum(map(weigh, covered)))
        before = set(self.applied_in(host, closed.epoch))
        for name in before:
            del host.applied[name]
        self.apply(host, [*covered, *(update for bundle in others for update in bundle.updates())])
        assert before <= set(host.applied)

    def covered(self, closed):
        """The updates that a sum stands for."""
        frontier = Frontier(closed.frontier)
        return [
            Update(origin, step, probe)
            for (origin, step), probe in self.published.items()
            if step // self.rules.refresh_period == closed.epoch and frontier.holds(origin, step)
        ]

    def applied_in(self, host, epoch):
        return [name for name in host.applied if name[1] // self.rules.refresh_period == epoch]

    def add_up(self, host, epoch):
        return sum(weigh(Update(*name, self.published[name])) for name in self.applied_in(host, epoch))

    def digest(self, host):
        total = sum(weigh(Update(*name, self.published[name])) for name in host.applied)
        return hashlib.sha256(struct.pack("<q", total)).digest()

    def answer(self, host):
        """The model says what it was asked first."""
        host.node.answer(host.answers.popleft(), self.now)
        self.honour(host)

    def answer_all(self, host):
        while host.answers:
            self.answer(host)

    def check_said(self, host, message):
        for bundle in message.bundles if isinstance(message, Updates) else ():
            assert host.disk.has(bundle)
            if bundle.origin == host.origin.id:
                is_taught = any(other.disk.has(bundle) for other in self.hosts if other is not host)
                assert host.disk.has_for_good(bundle) or is_taught

    def check_measure(self, host, order):
        """Strict windows are the paper's algorithm: everyone measures on the sum of all that came before, but for
        the rounds that `delay` leaves out, and of those it knows nothing, its own included.

        But for who has lost its disk: it does not know in which window it was, and goes on with the next.
        """
        assert (order.count, order.step % order.count) == (self.rules.local_steps, 0)
        is_new, host.is_new = host.is_new, False
        if is_new or host.node.frontier.last(host.origin.id) < 0:
            host.began = order.step  # what it has not said before is skipped
        if self.rules.window == "strict" and not (self.has_anyone_left or is_new):
            end = max(0, order.step - self.rules.delay * self.rules.local_steps)
            before = {(o.origin.id, step) for o in self.hosts for step in range(o.began, end)}
            before |= {name for name in self.published if name[1] < end}
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
                for part in self.answer_pull(receiver, frontier):
                    self.put(receiver, sender.origin.id, part)
            case ("pulled",):
                receiver.node.answer(Pulled(sender.origin.id), self.now)
            case _:
                receiver.node.received(sender.origin.id, item, self.now)
        self.honour(receiver)

    def answer_pull(self, host, frontier):
        found = [Updates(tuple(one)) if isinstance(one, list) else one for one in host.disk.read_missing(frontier, 1)]
        standing = [host.node.divergence.standing] if host.node.divergence.standing is not None else []
        votes = Votes(tuple(host.node.certificates.to_send()))
        return [Members(host.node.membership.all()), votes, *found, *standing, ("pulled",)]

    def cut(self, edge):
        for way in (edge, edge[::-1]):
            self.ways.pop(way, None)
        for host, other in (edge, edge[::-1]):
            host, other = self.hosts[host], self.hosts[other]
            if host.node is not None and other.origin.id in host.node.neighbours:
                host.node.disconnected(other.origin.id, self.now)
                self.honour(host)

    def link(self, edge):
        a, b = (self.hosts[k] for k in edge)
        if edge not in self.ways and a.node is not None and b.node is not None:
            self.ways[edge] = deque([a.node.hello()])
            self.ways[edge[::-1]] = deque([b.node.hello()])

    def measure(self, host, scalar):
        self.answer_all(host)  # it was asked that before
        if host.order is None:
            return
        order, host.order = host.order, None
        probes = [(STEP_MAX & hash((scalar, k)) & 0xFFFF, scalar) for k in range(order.count)]
        before = host.node.frontier.last(host.origin.id)
        host.node.answer(Measured(order.step, probes), self.now)
        if host.node.frontier.last(host.origin.id) > before:
            for k, probe in enumerate(probes):
                assert (host.origin.id, order.step + k) not in self.published
                self.published[host.origin.id, order.step + k] = probe
        self.honour(host)

    def stop(self, host):
        host.node, host.order = None, None
        for edge in sorted(self.edges):
            if self.hosts.index(host) in edge:
                self.cut(edge)

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
            self.stop(host)
            host.disk.lose_end(data.draw(st.integers(host.disk.durable, len(host.disk.bundles))))
            if is_restarted:
                self.boot(host)

    @precondition(lambda self: not self.has_anyone_left)
    @rule(data=st.data(), is_count_lost=st.booleans())
    def lose_disk(self, data, is_count_lost):
        self.replace_disk(data.draw(st.sampled_from(self.hosts)), is_count_lost=is_count_lost)

    def replace_disk(self, host, *, is_count_lost):
        """The disk of one is replaced, while all others are well and stay so until it has learned its past."""
        for other in self.hosts:
            if other.node is None:
                self.boot(other)
        self.stop(host)
        heard = [other.node.frontier for other in self.hosts if other is not host]
        for origin, step in list(self.published):
            if origin == host.origin.id and not any(frontier.holds(origin, step) for frontier in heard):
                del self.published[origin, step]  # nobody has heard it: it may say something else
        host.disk, host.members, host.is_new = Disk(self.rules.refresh_period), {}, True
        if is_count_lost:
            host.incarnation = 0
        self.boot(host)
        for _ in range(16):
            self.dial_all()
            self.deliver_until_quiet()
            self.pass_time(0.5)
        assert all(host.node.frontier.covers(frontier.held()) for frontier in heard)

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

    @rule(data=st.data())
    def hear_the_model(self, data):
        asked = [host for host in self.up() if host.answers]
        if asked:
            self.answer(data.draw(st.sampled_from(asked)))

    @rule(data=st.data(), scalar=st.integers(-9, 9))
    def publish(self, data, scalar):
        measuring = [host for host in self.up() if host.order is not None]
        if measuring:
            self.measure(data.draw(st.sampled_from(measuring)), scalar)

    @rule(rounds=st.integers(1, 8))
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
                waiting = list(host.node.seedflood.holdings.pending)
                names = Counter((u.origin, u.step) for bundle in waiting for u in bundle.updates())
                held = Counter((u.origin, u.step) for bundle in host.disk.replay() for u in bundle.updates())
                for closed in host.disk.closed.values():
                    held.update((update.origin, update.step) for update in self.covered(closed))
                assert host.applied + names == held

    @invariant()
    def who_waits_can_say_why(self):
        for host in self.hosts if hasattr(self, "hosts") else ():
            if host.node is None or host.node.next_tick(self.now) <= self.now:
                continue  # whose turn is now waits for nothing
            if host.node.phase.value in ("joining", "collecting", "finishing"):
                assert host.node.blockers(self.now) != ()

    @invariant()
    def a_frontier_is_what_the_disk_covers(self):
        for host in self.hosts if hasattr(self, "hosts") else ():
            if host.node is not None:
                assert host.node.frontier == host.disk.covered()

    # Healing

    def teardown(self):
        if not hasattr(self, "hosts"):
            return
        for host in self.hosts:
            if host.node is not None and host.node.phase.value == "left":
                self.stop(host)
            if host.node is None:
                self.boot(host)
        for _ in range(60 + 20 * self.rules.steps):
            self.heal_once()
            if all(host.is_finished for host in self.hosts) and not any(self.ways.values()):
                break
        assert [str(h.node.phase) + str(h.node.blockers(self.now)) for h in self.hosts if not h.is_finished] == []
        assert len({host.node.frontier.digest() for host in self.hosts}) == 1
        for _ in range(6):  # statements that differ are noticed at the second comparison
            self.heal_once()
        self.deliver_until_quiet()  # what the last of them gave rise to
        for host in self.hosts:
            assert host.applied == Counter(self.published.keys())
        assert len({Membership(host.members.values()).digest() for host in self.hosts}) == 1

    def heal_once(self):
        self.dial_all()
        self.deliver_until_quiet()
        self.publish_all(1)
        self.deliver_until_quiet()
        self.pass_time(0.5)

    def deliver_until_quiet(self):
        while any(self.ways.values()) or any(host.answers for host in self.up()):
            self.deliver_all_that_is_on_its_way()
            for host in self.up():
                self.answer_all(host)


WITHOUT_EXPLAINING = (Phase.reuse, Phase.generate, Phase.shrink)  # which traces every line and takes most of the time
NodesTogether.TestCase.settings = settings(
    max_examples=40, stateful_step_count=50, deadline=None, phases=WITHOUT_EXPLAINING
)
TestNodesTogether = NodesTogether.TestCase


@pytest.mark.parametrize("is_count_lost", [True, False])
@pytest.mark.parametrize("window", ["strict", "bounded"])
def test_in_this_world_epochs_are_closed_compacted_and_adopted(window, is_count_lost):
    world = NodesTogether()
    world.begin(make_rules(3, 20, window, refresh_period=2), {(0, 1), (1, 2)})
    for _ in range(14):
        world.heal_once()
    assert world.compacted > 0
    world.replace_disk(world.hosts[1], is_count_lost=is_count_lost)
    assert world.adopted > 0
    world.teardown()


def test_strict_windows_wait_for_no_word_that_was_lost_before_anybody_heard_it():
    """Its statement, which counts the word, came through on a new link; the word itself did not."""
    world = strict_world(2, steps=2)
    world.publish_all(0)
    first, _ = world.hosts
    world.stop(first)
    world.boot(first)
    world.dial_all()
    world.deliver_all_that_is_on_its_way()
    world.replace_disk(first, is_count_lost=False)
    world.teardown()


def test_one_that_never_measured_goes_on_behind_one_that_lost_its_disk():
    """It declares as skipped what it did not measure, though it was expected from the beginning."""
    world = strict_world(2, steps=3)
    first, second = world.hosts
    world.measure(first, 0)
    world.deliver_all_that_is_on_its_way()
    world.replace_disk(first, is_count_lost=False)
    world.stop(second)
    world.measure(first, 0)
    world.teardown()


def test_when_all_have_lost_their_disks_after_the_end_all_know_the_same_statements():
    """The last word of an origin may come to a disk after the newer statement that does not speak."""
    world = strict_world(3, 1)
    world.publish_all(0)
    world.deliver_all_that_is_on_its_way()
    for host in world.hosts:
        world.replace_disk(host, is_count_lost=False)
    world.teardown()


def test_who_lost_its_disk_believes_a_sum_that_it_has_signed_itself():
    """It and one of two others have: more than half of all, but not of the others."""
    world = strict_world(3, 1)
    world.publish_all(0)
    world.deliver_all_that_is_on_its_way()
    world.replace_disk(world.hosts[2], is_count_lost=False)
    world.replace_disk(world.hosts[0], is_count_lost=False)
    world.teardown()


def strict_world(hosts, steps):
    """The first host is linked with all others."""
    world = NodesTogether()
    world.begin(make_rules(hosts, steps, "strict", refresh_period=1), {(0, other) for other in range(1, hosts)})
    world.dial_all()
    for _ in range(3):
        world.deliver_all_that_is_on_its_way()
    return world
