"""Nodes that train by GASLoC, in one process: a virtual clock, links that break, hosts that are killed.

A replica is that of the simulation (`simulation/gasloc/replica`), so whether a mean is preserved is a question of
equality. What a node keeps survives its death at any instant; what it computes does not. Here a test says itself what
happens to each message and at each instant; `simulation/gasloc` draws it from a seed, with the real driver.
"""

import hashlib
import heapq
import random
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import count

from seedflood.errors import PeerError
from seedflood.protocol.gasloc.messages import Accept, Chunk, decode
from seedflood.protocol.gasloc.node import GaslocNode
from seedflood.protocol.gasloc.orders import (
    Adopted,
    Checkpointed,
    Encoded,
    Mix,
    OpenCopy,
    Opened,
    Ready,
    Restored,
    RoundMixed,
    Stepped,
    TakeLocalSteps,
    Taken,
)
from seedflood.protocol.gasloc.rules import Bounds, GaslocRules, Habits
from seedflood.protocol.swarm.messages import Member, Opaque
from seedflood.protocol.swarm.rules import Patience
from simulation.gasloc.disk import Checkpoint
from simulation.gasloc.replica import WIDE, Bytes, Replica, digest_of, read, spell

RUN_ID, BASE_DIGEST = b"r" * 32, b"b" * 32
REACH = 10**9
"""Honest hosts are not that far apart here."""
PATIENCE = Patience(repair_seconds=2.0, start_seconds=20.0, linger_seconds=60.0)


def make_rules(**changes):
    fields = {
        "clients": 4,
        "steps": 40,
        "local_steps": 4,
        "encoding": "exact",
        "content_bytes_max": 2_000_000,
    } | changes
    return GaslocRules(RUN_ID, BASE_DIGEST, fields.pop("clients"), fields.pop("steps"), **fields)


class Memory:
    """A sink."""

    def __init__(self):
        self.data = bytearray()

    @property
    def held(self):
        return len(self.data)

    def write(self, data):
        self.data += data


class Memories:
    """Where sinks come from. most: bytes that any content has."""

    def __init__(self, most):
        self.most = most

    def open(self, peer, digest, size):
        if size > self.most:
            raise PeerError(f"{size} bytes are not parameters of this run", reason="size")
        return Memory()


@dataclass
class Disk:
    """What survives. base: the values of the base model."""

    base: tuple
    members: dict = field(default_factory=dict)
    records: dict = field(default_factory=dict)
    checkpoints: list = field(default_factory=list)


class Compute:
    """Carries out orders in turn, each after some time, as a thread would; what concerns the disk alone, beside."""

    def __init__(self, host):
        self.host = host
        self.replica = Replica(host.world.rules, host.disk.base, (host.drift,) * len(host.disk.base), REACH)
        self.free_at, self.life = 0.0, host.life

    @property
    def values(self):
        """Before it took the replica with which all end."""
        return self.replica.last.values

    def put(self, order):
        world, host = self.host.world, self.host
        if isinstance(order, OpenCopy):
            self._later(world.now + host.disk_seconds(), order)
            return
        seconds = host.step_seconds * order.count if isinstance(order, TakeLocalSteps) else 0.001
        self.free_at = max(self.free_at, world.now) + seconds
        self._later(self.free_at, order)

    def _later(self, at, order):
        life = self.life
        self.host.world.at(at, lambda: self.do(order) if self.host.life == life else None)

    def do(self, order):
        getattr(self, type(order).__name__.lower())(order)

    def restore(self, order):
        disk = self.host.disk
        newest = disk.checkpoints[-1] if disk.checkpoints else None
        if newest is not None:
            self.replica.restore(newest.data)
            self.replica.mixed, self.replica.own = dict(newest.mixed), newest.own
        self.host.answer(Restored(newest.round if newest is not None else None))

    def takelocalsteps(self, order):
        self.replica.take_steps(order.count)
        self.host.drifted += order.count * self.host.drift
        self.host.answer(Stepped())

    def encode(self, order):
        if self.host.world.rules.is_closing(order.round):
            self.replica.begin_closing()
        content = Bytes(spell(self.replica.propose(), self.host.padding))
        if not self.host.world.rules.is_closing(order.round):
            self.host.encoded.append((order.round, content.digest))
        self.host.allowed = self.host.patience_seconds()
        self.host.answer(Encoded(content))

    def mix(self, order):
        mixed, refused = [], []
        width = WIDE if self.host.world.rules.is_closing(order.round) else 1
        for share in order.partners:
            if digest_of(share.sink.data) != share.digest:
                refused.append(share.partner)
                continue
            theirs = read(share.sink.data, len(self.values))
            self.replica.pull((order.round, share.partner), share.weight, theirs, width)
            mixed.append(share.partner)
        found = self.host.mixes if order.has_momentum else self.host.closing
        found.append((order.round, tuple(mixed)))
        self.replica.finish(has_momentum=order.has_momentum)
        self.host.answer(RoundMixed(tuple(refused)))

    def publish(self, order):
        content = Bytes(spell(self.replica.values, self.host.padding))
        self.host.answer(Ready(content))

    def take(self, order):
        if digest_of(order.sink.data) != order.digest:
            self.host.answer(Taken(None))
            return
        values = read(order.sink.data, len(self.values))
        if not (order.is_backed or self.replica.is_near(values)):
            self.host.answer(Taken(None, is_far=True))
            return
        self.replica.take(values)
        self.host.taken += 1
        self.host.answer(Taken(Bytes(spell(self.replica.values, self.host.padding))))

    def keepcheckpoint(self, order):
        """As they are now; it is on the disk some time later."""
        life, host = self.life, self.host
        kept = Checkpoint(order.round, self.replica.save(host.padding), dict(self.replica.mixed), self.replica.own)

        def write():
            if host.life == life:
                others = [one for one in host.disk.checkpoints if one.round != order.round]
                host.disk.checkpoints = sorted([*others, kept], key=lambda one: one.round)
                host.answer(Checkpointed(order.round))

        host.world.at(host.world.now + host.disk_seconds(), write)

    def opencopy(self, order):
        host = self.host
        found = host.disk.checkpoints[-1] if host.disk.checkpoints else None
        content = Bytes(found.data) if found else None
        host.answer(Opened(order.peer, content, found.round if found else 0))

    def adopt(self, order):
        is_right = digest_of(order.sink.data) == order.digest
        if is_right:
            self.replica.restore(bytes(order.sink.data))
            self.host.adopted += 1
        self.host.answer(Adopted(is_right))


class Host:
    """One host, through all its lives. drift: what a local step adds to each value."""

    def __init__(
        self,
        world,
        name,
        values,
        *,
        drift=Fraction(0),
        step_seconds=0.25,
        padding=0,
        local_steps=None,
        checkpoint_rounds=1,
    ):
        self.world, self.name, self.drift, self.step_seconds = world, name, drift, step_seconds
        self.padding, self.local_steps = padding, local_steps
        self.checkpoint_rounds = checkpoint_rounds
        self.disk = Disk(tuple(Fraction(one) for one in values))
        self.life, self.is_up = 0, False
        self.starts = 0
        """As its disk knows; `life` is counted by the world."""
        self.drifted, self.adopted = Fraction(0), 0
        self.encoded, self.mixes, self.events, self.finished_at = [], [], [], None
        self.closing, self.taken = [], 0
        """Closing rounds, with whom; how often it took the replica with which all end."""
        self.said = {}
        """What was offered in any life, by (round, partner)."""
        self.refused = []
        self.waits, self.allowed = [], 0.0
        """Of each exchange: how long it took, and how long it might have taken at most."""
        self.tick_at = None
        self.start()

    @property
    def origin(self):
        return self.node.origin

    @property
    def gasloc(self):
        return self.node.gasloc

    @property
    def values(self):
        return self.compute.values

    @property
    def last(self):
        """What it ends with."""
        return self.compute.replica.values

    def disk_seconds(self):
        return self.world.rng.uniform(0.001, 0.05)

    def patience_seconds(self):
        """The longest exchange that the rules allow on any link, by what is measured now."""
        bounds, pace = self.gasloc.exchange._bounds, self.gasloc.pace
        size = 2 * max(host.padding for host in self.world.hosts) + 1000
        transfer = bounds.transfer_seconds(size, None, pace.hop_seconds)
        ahead = self.step_seconds * self.world.rules.delay_steps
        return max(ahead, bounds.wait_seconds(pace.local_seconds, pace.hop_seconds) + transfer) + 0.1

    def named(self, name):
        return [event for event in self.events if event.name == name]

    def start(self):
        self.life, self.starts, self.is_up = self.life + 1, self.starts + 1, True
        member = Member(self.name.encode().ljust(32, b"."), self.name, self.starts)
        self.node = GaslocNode(
            self.world.rules,
            member,
            lambda data: hashlib.sha512(data).digest(),
            lambda *_: True,
            Memories(self.world.most),
            Habits(self.local_steps, self.checkpoint_rounds, self.world.bounds, self.world.patience),
        )
        self.compute = Compute(self)
        self.finished_at = None
        self.do(lambda now: self.node.recall(self.disk.members.values(), now, self.disk.records))

    def kill(self):
        self.is_up, self.life = False, self.life + 1
        for peer in list(self.world.hosts):
            self.world.cut(self, peer)

    def do(self, action):
        if not self.is_up:
            return
        try:
            action(self.world.now)
        finally:
            self.honour(self.node.collect())

    def answer(self, answer):
        self.do(lambda now: self.node.answer(answer, now))

    def honour(self, out):
        """Persist, send, then all else."""
        assert out.is_durable or not out.records
        doom = self.world.doom(self)
        """How many of the three things are done before it is killed; None: all, and it lives."""
        if doom == 0:
            self.kill()
            return
        self.disk.members |= {member.origin: member for member in out.members}
        self.disk.records |= dict(out.records)
        if doom == 1:
            self.kill()
            return
        for peer, message in out.send:
            self.world.carry(self, peer, message)
        for peer in sorted(out.contents):
            self.world.carry_contents(self, peer)
        if doom == 2:
            self.kill()
            return
        for order in out.orders:
            if isinstance(order, Mix):
                self.waits.append((self.gasloc.exchange.seconds, max(self.allowed, self.patience_seconds())))
            self.compute.put(order)
        self.events += out.events
        if out.is_finished:
            self.finished_at = self.world.now
        if self.is_up:
            self.schedule()

    def schedule(self):
        at = self.node.next_tick(self.world.now)
        if self.tick_at is None or at < self.tick_at or self.tick_at <= self.world.now:
            self.tick_at, life = max(at, self.world.now + 0.0001), self.life
            self.world.at(self.tick_at, lambda: self.tick(life))

    def tick(self, life):
        if self.life == life and self.is_up:
            self.tick_at = None
            self.do(self.node.tick)


@dataclass
class Link:
    """Both directions of a link: streams in order. rate: bytes per second. carrying: who has a frame of a content under
    way; it is passed on one at a time, like a connection that has room for one."""

    ends: tuple
    delay: float
    rate: float
    free_at: dict = field(default_factory=dict)
    carrying: set = field(default_factory=set)
    is_up: bool = True


class World:
    def __init__(self, *, seed=0, bounds=None, patience=PATIENCE, **rules):
        self.rules, self.bounds, self.patience = make_rules(**rules), bounds or Bounds(chunk_bytes=1 << 14), patience
        self.rng = random.Random(seed)
        self.now, self._events, self._order = 0.0, [], count()
        self.hosts, self.links, self.plans = [], {}, set()
        self.drop = lambda sender, receiver, message: False
        """Frames that never arrive."""
        self.change = lambda sender, receiver, message: message
        self.most = 1 << 30
        self.doom = lambda host: None

    def at(self, when, action):
        heapq.heappush(self._events, (when, next(self._order), action))

    def run(self, seconds, until=None):
        end = self.now + seconds
        while self._events and self._events[0][0] <= end:
            self.now, _, action = heapq.heappop(self._events)
            action()
            if until is not None and until():
                return
        self.now = end

    def add(self, *values, **how):
        host = Host(self, f"h{len(self.hosts)}", values or (len(self.hosts),), **how)
        self.hosts.append(host)
        return host

    def by_origin(self, origin):
        return next(host for host in self.hosts if host.origin == origin)

    # Links

    def plan(self, a, b, *, delay=0.01, rate=1e8):
        """These two dial each other whenever both are up."""
        self.plans.add((a, b, delay, rate))
        self.dial(a, b, delay, rate)

    def ring(self, **how):
        for k, host in enumerate(self.hosts):
            if len(self.hosts) > 2 or k == 0:
                self.plan(host, self.hosts[(k + 1) % len(self.hosts)], **how)

    def complete(self, **how):
        for k, host in enumerate(self.hosts):
            for other in self.hosts[k + 1 :]:
                self.plan(host, other, **how)

    def dial(self, a, b, delay, rate):
        key = frozenset((a, b))
        if key in self.links or not (a.is_up and b.is_up):
            return
        hellos = (a.node.hello(), b.node.hello())
        self.links[key] = Link((a, b), delay, rate)
        for one, other, hello in ((a, b, hellos[1]), (b, a, hellos[0])):
            one.node.admission.check_hello(hello)
            one.do(lambda now, one=one, other=other, hello=hello: one.node.connected(other.origin, hello, now))

    def cut(self, a, b, *, redial=1.0):
        link = self.links.pop(frozenset((a, b)), None)
        if link is None:
            return
        link.is_up = False
        for one, other in ((a, b), (b, a)):
            one.do(lambda now, one=one, other=other: one.node.disconnected(other.origin, now, "cut"))
        self.at(self.now + redial, self.redial)

    def redial(self):
        """Whatever is planned and possible."""
        for a, b, delay, rate in sorted(self.plans, key=lambda plan: (plan[0].name, plan[1].name)):
            self.dial(a, b, delay, rate)

    def revive(self, host):
        if not host.is_up:
            host.start()
            self.redial()

    def carry(self, sender, peer, message):
        receiver = self.by_origin(peer)
        link = self.links.get(frozenset((sender, receiver)))
        if link is None or self.drop(sender, receiver, message):
            return
        message = self.change(sender, receiver, message)
        size = len(getattr(message, "data", b"")) + 50
        free_at = max(link.free_at.get(sender, 0.0), self.now) + size / link.rate
        link.free_at[sender] = free_at
        self.at(free_at + link.delay, lambda: self.deliver(link, receiver, sender, message))

    def carry_contents(self, sender, peer):
        """Passes on the next frame of a content, and then the others."""
        receiver = self.by_origin(peer)
        link = self.links.get(frozenset((sender, receiver)))
        if link is None or sender in link.carrying or peer not in sender.node.neighbours:
            return
        frame = sender.gasloc.carrier.next_frame(peer)
        if frame is None:
            return
        link.carrying.add(sender)
        message = Opaque(frame)
        is_withheld = self.drop(sender, receiver, message)
        message = self.change(sender, receiver, message)

        def arrive():
            if not is_withheld:
                self.deliver(link, receiver, sender, message)
            link.carrying.discard(sender)
            if link.is_up and sender.is_up:
                self.carry_contents(sender, peer)

        if is_withheld:
            self.withhold(sender, peer, decode(frame))
        self.at(self.now + (1.0 if is_withheld else len(message.data) / link.rate + link.delay), arrive)

    def withhold(self, sender, peer, message):
        """It will be the next one again."""
        sending = sender.gasloc.carrier._sending.get((peer, message.key)) if isinstance(message, Chunk) else None
        if sending is not None:
            sending.position = message.offset

    def deliver(self, link, receiver, sender, message):
        if not link.is_up or not receiver.is_up:
            return
        try:
            receiver.do(lambda now: receiver.node.received(sender.origin, message, now))
        except Exception as error:
            receiver.refused.append(error)
            self.cut(receiver, sender)

    # What should hold

    @property
    def are_finished(self):
        return all(host.finished_at is not None for host in self.hosts)

    @property
    def initial(self):
        """Of all values of all base models."""
        return sum((sum(host.disk.base) for host in self.hosts), Fraction(0))

    def reasons(self):
        """Why exchanges were skipped."""
        return {event.facts["reason"] for host in self.hosts for event in host.named("exchange skipped")}

    def total(self):
        """Of all values of all hosts, once all orders are carried out."""
        return sum((sum(host.values) for host in self.hosts), Fraction(0))

    def lonely(self):
        """The parts of pairs that mixed at one end alone: by them the total has moved."""
        by_origin = {host.origin: host.compute.replica.mixed for host in self.hosts}
        return [
            sum(part)
            for host in self.hosts
            for (round_, partner), part in host.compute.replica.mixed.items()
            if (round_, host.origin) not in by_origin[partner]
        ]

    def finish(self, seconds=2000.0):
        self.run(seconds, until=lambda: self.are_finished)
        assert self.are_finished, [(host.name, host.node.phase, host.node.blockers(self.now)) for host in self.hosts]
        self.run(5.0)


def unleash(world, rng):
    """Frames are lost, links break, hosts are killed, some between two things that they do at once."""
    until, lose, dying = rng.uniform(5, 60), rng.choice([0, 0, 0.05, 0.2]), rng.choice([0, 0.001, 0.01, 0.03])

    def drop(sender, receiver, message):
        if world.now >= until or not isinstance(message, Opaque):
            return False
        return not isinstance(decode(message.data), Accept | Chunk) and world.rng.random() < lose

    def doom(host):
        if world.now >= until or world.rng.random() >= dying:
            return None
        world.at(world.now + world.rng.uniform(0.1, 5), lambda: world.revive(host))
        return world.rng.randrange(3)

    def strike():
        if world.now > until:
            return
        host = rng.choice(world.hosts)
        if rng.random() < 0.4 and host.is_up:
            host.kill()
            world.at(world.now + rng.uniform(0.1, 20), lambda: world.revive(host))
        elif world.links:
            link = rng.choice(list(world.links.values()))
            world.cut(*link.ends, redial=rng.uniform(0.1, 15))
        world.at(world.now + rng.uniform(0.05, 3), strike)

    world.drop, world.doom = drop, doom
    world.at(rng.uniform(0, 5), strike)
