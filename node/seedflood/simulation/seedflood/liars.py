"""Hosts that lie: the real node and driver, with a key of their own and everything a participant can do with it.

A liar takes part as the others do; beside that it says, on the links it has, what no honest host would: each run draws
which kinds of lies. What it signs is signed well, and most of its frames are well formed: what is to be seen is what
the honest make of it. Only honest hosts are judged. Liars are chosen so that they never cut the honest ones apart.
"""

import hashlib
import random
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from seedflood.protocol.frontier import RANGES_MAX, Frontier, Held
from seedflood.protocol.origin import STEP_MAX, OriginId
from seedflood.protocol.packing import pack, unpack
from seedflood.protocol.seedflood.messages import (
    SEED_MAX,
    Bundle,
    ClosedDigests,
    ClosedEpoch,
    EpochDigest,
    FrontierDigest,
    ReplicaDigest,
    Told,
    Updates,
)
from seedflood.protocol.seedflood.statement import Closed, stated
from seedflood.protocol.seedflood.statement import pack as pack_statement
from seedflood.protocol.swarm.messages import NEIGHBOURS_MAX, Goodbye, Hello, Member, Members, Message, Ping, Pong
from seedflood.simulation.link import Item
from seedflood.simulation.seedflood.host import SeedfloodHost
from seedflood.simulation.seedflood.ledger import EPOCH_BYTES
from seedflood.simulation.seedflood.telling import draw_round
from seedflood.simulation.seedflood.world import SeedfloodWorld
from seedflood.transport.answer import AnswerItem, cut
from seedflood.transport.codec import Pull, PullMore, PullPart

LIE_SECONDS = (0.05, 2.0)
"""Between two lies of one liar."""
HEARD_MAX = 64
STRANGERS_MAX = 200
"""Over a run, of all liars together."""
NUMBERS = (0, 1, 7, 1 << 31, STEP_MAX, (1 << 64) - 1)
TEXTS = ("\x1b[2J\x1b[31mroot#", "bye\n2026-01-01 error: forged", "x" * 4096, "\u202egnp.exe", "")


def choose_liars(clients: int, edges: Iterable[tuple[int, int]], share: float, rng: random.Random) -> set[int]:
    """Up to this share of the hosts, at least one where there is room; what remains is connected."""
    links: dict[int, set[int]] = {index: set() for index in range(clients)}
    for one, other in edges:
        links[one].add(other)
        links[other].add(one)
    most = int(clients * share)
    wanted = rng.randint(1, most) if most else 0
    liars: set[int] = set()
    for index in rng.sample(range(clients), clients):
        if len(liars) < wanted and _is_connected(links, links.keys() - liars - {index}):
            liars.add(index)
    return liars


def _is_connected(links: dict[int, set[int]], left: set[int]) -> bool:
    reached = {min(left)}
    edge = list(reached)
    while edge:
        found = (links[edge.pop()] & left) - reached
        reached |= found
        edge += found
    return reached == left


class Liar:
    """One host that lies. told: how often each kind of lie was told, of all liars of the world."""

    def __init__(self, world: SeedfloodWorld, host: SeedfloodHost, told: Counter[str], kinds: Sequence[str]) -> None:
        self.host = host
        self._world = world
        self._rng: random.Random = world.rng
        self._told = told
        self._heard: deque[Message] = deque(maxlen=HEARD_MAX)
        self._is_over = False
        self._versions = 1 << 20
        self._hidden: dict[int, int] = {}
        """Of each neighbour: from which own step on it was not told what was measured."""
        self._lies = {kind: LIES[kind] for kind in kinds}
        self._send = host.send
        world.network.forgers[host.index] = self._forge
        host.send = self._listen  # type: ignore[method-assign]

    def begin(self) -> None:
        self._world.clock.after(self._rng.uniform(*LIE_SECONDS), self._lie)

    def end(self) -> None:
        """From now on it says nothing at all."""
        self._is_over = True
        self.host.is_retired = True
        self.host.crash()

    def _lie(self) -> None:
        if self._is_over:
            return
        neighbours = [one for one in self._world.network.neighbours(self.host.index) if self._is_linked(one)]
        if self.host.is_up and neighbours:
            kind = self._rng.choice(sorted(self._lies))
            items = self._lies[kind](self)
            self._told[f"lie_{kind}"] += bool(items)
            for item in items:
                self._world.network.send_raw(self.host, self._rng.choice(neighbours), item)
        self._world.clock.after(self._rng.uniform(*LIE_SECONDS), self._lie)

    def _is_linked(self, other: int) -> bool:
        return self._world.network.is_linked(self.host.index, other)

    def _listen(self, peer: int, messages: Sequence[Message]) -> None:
        """What it sends as an honest host would, it can send again; some of it is withheld."""
        self._heard += messages
        if "withhold" in self._lies and self._rng.random() < 0.3:
            self._told["lie_withheld"] += 1
            messages = [message for message in messages if not isinstance(message, Updates)]
        if "equivocations" in self._lies:
            messages = [self._other(message) if isinstance(message, Updates) else message for message in messages]
        if "skips" in self._lies:
            messages = [self._as_skipped(peer, one) if isinstance(one, Updates) else one for one in messages]
            messages = [one for one in messages if one != Updates(())]
        if messages:
            self._send(peer, messages)

    def _other(self, message: Updates) -> Updates:
        """What it tells for the first time may be something else for this neighbour."""
        if self._rng.random() < 0.7 or all(bundle.origin != self.host.origin for bundle in message.bundles):
            return message
        self._told["lie_two_tongues"] += 1
        self._world.chronicle.is_tainted = True
        return Updates(
            tuple(
                self._make(bundle.step, bundle.skipped) if bundle.origin == self.host.origin else bundle
                for bundle in message.bundles
            )
        )

    def _as_skipped(self, peer: int, message: Updates) -> Updates:
        """What it measured is skipped, for this neighbour: so says the next of its bundles that it tells there."""
        said = []
        for bundle in message.bundles:
            if bundle.origin == self.host.origin and bundle.step > 0:
                if self._rng.random() < 0.3:
                    self._hidden[peer] = min(self._hidden.get(peer, bundle.step), bundle.first_covered)
                    continue
                if bundle.first_covered > (first := self._hidden.pop(peer, bundle.step)):
                    self._told["lie_skips"] += 1
                    self._world.chronicle.is_tainted = True
                    bundle = self._sign(bundle._replace(skipped=bundle.step - first))
            said.append(bundle)
        return Updates(tuple(said))

    def _forge(self, answer: Iterable[AnswerItem]) -> Iterable[AnswerItem]:
        """A sum of its own amidst what it should answer, sometimes with digests that go with it."""
        parts = list(answer)
        if "sums" in self._lies and self._rng.random() < 0.7:
            self._told["lie_sums"] += 1
            forged = self._forged_sum()
            place = self._rng.randint(0, len(parts))
            try:
                total = unpack(forged.coefficients, EPOCH_BYTES)
            except ValueError:
                total = b""
            digest = EpochDigest(Frontier(forged.frontier).digest(), hashlib.sha256(total).digest())
            proof = ClosedDigests(0, (digest,) * (forged.epoch + 1))
            parts[place:place] = [proof, forged] if self._rng.random() < 0.7 else [forged]
        return parts

    # What it says

    def _forged_sum(self) -> ClosedEpoch:
        """Coefficients that nobody summed, of steps that some have not said yet."""
        rules = self._world.rules
        epoch = self._rng.randrange(max(1, rules.steps // rules.refresh_period))
        end = self._rng.choice(((epoch + 1) * rules.refresh_period, rules.steps))
        frontier = tuple(Held(host.origin, end) for host in sorted(self._world.hosts, key=lambda host: host.origin))
        data = self._rng.choice((pack((1 << 62).to_bytes(8, "little")), pack(bytes(EPOCH_BYTES)), b"\x78\x9c", b""))
        return ClosedEpoch(epoch, frontier, data)

    def sums(self) -> list[Item]:
        """An answer to a pull that nobody began, or that somebody did."""
        return [PullPart(self._rng.randint(1, 5), part) for part in cut([self._forged_sum()]) if part]

    def digests(self) -> list[Item]:
        node = self.host.node
        true = node.standing
        frontier = Held(self.host.origin, 1) if true is None else None
        key = self._noise() if frontier or self._rng.random() < 0.3 else node.applied.digest()
        return [
            ReplicaDigest(key, self._noise()),
            FrontierDigest(
                self._noise(),
                self._rng.choice((0, self.host.node.step, STEP_MAX)),
                self._rng.random() < 0.5,
                self._noise()[:16],
            ),
        ]

    def frontiers(self) -> list[Item]:
        """Pulls that claim to hold everything, nothing, or a comb of it."""
        comb = tuple((3 * k + 1, 3 * k + 1) for k in range(1, RANGES_MAX + 1))
        origins = [host.origin for host in self._world.hosts]
        held = self._rng.choice(
            (
                (),
                tuple(Held(origin, STEP_MAX) for origin in origins),
                tuple(Held(origin, 0, comb) for origin in origins[:4]),
            )
        )
        return [Pull(self._rng.randint(1, 1 << 20), held), PullMore(self._rng.randint(0, 1 << 20))]

    def statements(self) -> list[Item]:
        """About itself, each newer than the last, and well signed."""
        self._versions += 1
        node = self.host.node
        ours = node.membership.get(self.host.origin)
        if ours is None:
            return []
        lies: tuple[dict[str, Any], ...] = (
            {"hop_milliseconds": (1 << 32) - 1},
            {"first_step": self._rng.choice((0, 1, self._world.rules.steps - 1, STEP_MAX))},
            {"last_step": self._rng.choice((-1, 0, self.host.node.step, STEP_MAX))},
            {"neighbours": tuple(self._rng.getrandbits(64) for _ in range(NEIGHBOURS_MAX))},
            {"algorithm": self._closed(ours)},
            {"incarnation": self._rng.choice(NUMBERS)},
        )
        fields = {"version": self._versions, **self._rng.choice(lies)}
        return [Members((self._signed(replace(ours, **fields)),))]

    def _closed(self, ours: Member) -> bytes:
        """Epochs that it has not closed."""
        before = self._rng.choice((1, self._world.rules.refresh_period, self._world.rules.steps))
        return pack_statement(stated(ours)._replace(closed=Closed(before, self._noise(), self._noise())))

    def strangers(self) -> list[Item]:
        """Whoever they are, they were never invited."""
        count = min(self._rng.randint(1, 20), STRANGERS_MAX - self._told["strangers"])
        self._told["strangers"] += max(0, count)
        members = []
        for _ in range(count):
            key = self._rng.randbytes(32)
            name = self._rng.choice(("h0", "stranger", f"s{self._rng.getrandbits(20)}"))
            member = Member(key, name, 1, first_step=self._rng.choice((0, self._world.rules.steps - 1)))
            members.append(self._signed(member))
        return [Members(tuple(members))] if members else []

    def forged(self) -> list[Item]:
        """In the name of others, with signatures that are wrong."""
        other = self._rng.choice([host for host in self._world.hosts if host is not self.host])
        bundle = self._make(self.host.node.step, origin=other.origin)
        member = Member(other.public_key, other.name, 1 << 40, last_step=-1, signature=self._rng.randbytes(64))
        return [self._rng.choice((Updates((bundle,)), Members((member,))))]

    def equivocations(self) -> list[Item]:
        """Two contents under one step: this one, and the one that its journal has."""
        said = self.host.own_bundles()
        if not said:
            return []
        self._world.chronicle.is_tainted = True
        return [Updates((self._make(self._rng.choice(said[-4:]).step),))]

    def ahead(self) -> list[Item]:
        """Of steps that nobody has come to, or that the run does not have."""
        rules = self._world.rules
        step = self._rng.choice((rules.steps - rules.local_steps, rules.steps, 1 << 40, self.host.node.step + 1))
        bundle = self._make(step, skipped=self._rng.choice((0, 0, min(step, 3))))
        self._world.chronicle.say(bundle)
        return [Updates((bundle,))]

    def seeds(self) -> list[Item]:
        """Of directions that it chose itself, under the step that is next or one of which it has told."""
        step = self.host.node.step + self._world.rules.local_steps
        bundle = self._make(self._rng.choice((step, step, self._rng.randrange(step))))
        chosen = tuple(_chosen(told, self._rng) for told in bundle.probes)
        return [Updates((self._sign(bundle._replace(probes=chosen)),))] if chosen != bundle.probes else []

    def replays(self) -> list[Item]:
        """What was said once, again."""
        return [self._rng.choice(self._heard)] * self._rng.randint(1, 8) if self._heard else []

    def limits(self) -> list[Item]:
        """Frames at their limits, and a little beyond them."""
        bundle = self._make(self.host.node.step)._replace(signature=self._noise() * 2)
        ours = self.host.node.hello()
        return [
            self._rng.choice(
                (
                    self._rng.randbytes(self._rng.randint(0, 300)),
                    bytes((4 << 20) + 1),
                    b"\xfa\x07\x03abc",
                    Updates((bundle,) * 4096),
                    Hello(ours.run_id, ours.base_digest, ours.member),
                    Ping(float(self._rng.choice(NUMBERS))),
                    Pong(-1.0),
                )
            )
        ]

    def goodbyes(self) -> list[Item]:
        return [Goodbye(self._rng.choice(TEXTS))]

    def withhold(self) -> list[Item]:
        """It is told in what is not sent: `_listen`."""
        return []

    def skips(self) -> list[Item]:
        """In what is sent: `_as_skipped`. And now and then to somebody who knows better."""
        said = self.host.own_bundles()
        if not said:
            return []
        self._world.chronicle.is_tainted = True
        bundle = self._rng.choice(said[-4:])
        return [Updates((self._make(bundle.step, skipped=self._rng.randint(0, bundle.step)),))]

    def _make(self, step: int, skipped: int = 0, origin: OriginId | None = None) -> Bundle:
        """origin: in whose name, if not in its own."""
        rules, origin = self._world.rules, self.host.origin if origin is None else origin
        step = min(step - step % rules.local_steps, STEP_MAX >> 1)
        return self._sign(Bundle(origin, step, draw_round(rules, origin, step, self._rng), skipped))

    def _sign(self, bundle: Bundle) -> Bundle:
        key = self.host.public_key
        message = bundle.signed_bytes(self._world.rules.run_id, key)
        return bundle._replace(signature=self._world.notary.signature(key, message))

    def _signed(self, member: Member) -> Member:
        message = replace(member, signature=b"").signed_bytes(self._world.rules.run_id)
        return replace(member, signature=self._world.notary.signature(member.public_key, message))

    def _noise(self) -> bytes:
        return self._rng.randbytes(32)


def _chosen(told: Told, rng: random.Random) -> Told:
    """Another direction than the step has. A payload has none."""
    return told if isinstance(told, bytes) else (told[0] ^ rng.randint(1, SEED_MAX), told[1])


LIES: dict[str, Callable[[Liar], list[Item]]] = {
    "sums": Liar.sums,
    "digests": Liar.digests,
    "frontiers": Liar.frontiers,
    "statements": Liar.statements,
    "strangers": Liar.strangers,
    "forged": Liar.forged,
    "equivocations": Liar.equivocations,
    "ahead": Liar.ahead,
    "seeds": Liar.seeds,
    "replays": Liar.replays,
    "limits": Liar.limits,
    "goodbyes": Liar.goodbyes,
    "withhold": Liar.withhold,
    "skips": Liar.skips,
}


def let_lie(
    world: SeedfloodWorld, indices: Iterable[int], told: Counter[str], kinds: Sequence[str] | None = None
) -> list[Liar]:
    """These hosts lie from now on, in these ways, or in some that the seed draws."""
    kinds = kinds or world.rng.sample(sorted(LIES), world.rng.randint(3, len(LIES)))
    liars = [Liar(world, world.hosts[index], told, kinds) for index in sorted(indices)]
    world.chronicle.liars = {liar.host.origin for liar in liars}
    for liar in liars:
        liar.begin()
    return liars
