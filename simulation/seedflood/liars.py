"""Hosts that lie (Byzantine): the real node and driver, with their own key and everything that a participant can do.

A liar takes part like the others. Besides, it sends on its links what no honest host would send; each run draws the
kinds of lies. Its own signatures are valid, and most of its frames are well formed, because the test is how honest
hosts handle them. Only honest hosts are judged. Liars are chosen so that the honest hosts stay connected without them.
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
from seedflood.protocol.seedflood.bundles import Bundle, Updates, make_bundle
from seedflood.protocol.seedflood.messages import ClosedEpoch, EpochDigest, FrontierDigest, ReplicaDigest, Vote, Votes
from seedflood.protocol.seedflood.statement import pack as pack_statement
from seedflood.protocol.seedflood.statement import stated
from seedflood.protocol.swarm.messages import NEIGHBOURS_MAX, Goodbye, Hello, Member, Members, Message, Ping, Pong
from seedflood.transport.answer import AnswerItem, cut
from seedflood.transport.codec import Pull, PullMore, PullPart
from simulation.link import Item
from simulation.seedflood.compression import draw_round
from simulation.seedflood.host import SeedfloodHost
from simulation.seedflood.ledger import EPOCH_BYTES
from simulation.seedflood.world import SeedfloodWorld

LIE_SECONDS = (0.05, 2.0)
"""Time between two lies of one liar."""
RECEIVED_MAX = 64
STRANGERS_MAX = 200
"""The most strangers in a run, of all liars together."""
NUMBERS = (0, 1, 7, 1 << 31, STEP_MAX, (1 << 64) - 1)
TEXTS = ("\x1b[2J\x1b[31mroot#", "bye\n2026-01-01 error: forged", "x" * 4096, "\u202egnp.exe", "")


class Liar:
    """One host that lies. counts: how often each kind of lie was sent, by all liars of the world."""

    def __init__(self, world: SeedfloodWorld, host: SeedfloodHost, counts: Counter[str], kinds: Sequence[str]) -> None:
        self.host = host
        self._world = world
        self._rng: random.Random = world.rng
        self._counts = counts
        self._received: deque[Message] = deque(maxlen=RECEIVED_MAX)
        self._is_over = False
        self._versions = 1 << 20
        self._hidden: dict[OriginId, int] = {}
        """For each neighbour, the first own step that was hidden from it and not yet declared as skipped."""
        self._seconds: set[tuple[OriginId, int]] = set()
        """The neighbours and epochs for whose votes we have voted, too."""
        self._lies = {kind: LIES[kind] for kind in kinds}
        self._send = host.send
        world.network.forgers[host.index] = self._forge
        host.send = self._listen  # type: ignore[method-assign]

    def begin(self) -> None:
        self._world.clock.after(self._rng.uniform(*LIE_SECONDS), self._lie)

    def end(self) -> None:
        """Stops the host for good."""
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
            self._counts[f"lie_{kind}"] += bool(items)
            for item in items:
                self._world.network.send_raw(self.host, self._rng.choice(neighbours), item)
        self._world.clock.after(self._rng.uniform(*LIE_SECONDS), self._lie)

    def _is_linked(self, other: int) -> bool:
        return self._world.network.is_linked(self.host.index, other)

    def _listen(self, peer: OriginId, messages: Sequence[Message]) -> None:
        """Sends what its node wants to send, with some of it withheld or changed. Remembers it for replays."""
        self._received += messages
        if "withhold" in self._lies and self._rng.random() < 0.3:
            self._counts["lie_withheld"] += 1
            messages = [message for message in messages if not isinstance(message, Updates)]
        if "equivocations" in self._lies:
            messages = [self._other(message) if isinstance(message, Updates) else message for message in messages]
        if "skips" in self._lies:
            messages = [self._as_skipped(peer, one) if isinstance(one, Updates) else one for one in messages]
            messages = [one for one in messages if one != Updates(())]
        if "seconds" in self._lies:
            messages = [*map(self._without_own_vote, messages), *self._seconded(peer)]
            messages = [one for one in messages if one != Votes(())]
        if messages:
            self._send(peer, messages)

    def _without_own_vote(self, message: Message) -> Message:
        if not isinstance(message, Votes):
            return message
        return Votes(tuple(vote for vote in message.votes if vote.origin != self.host.origin))

    def _seconded(self, peer: OriginId) -> list[Votes]:
        """Votes of our own for whatever this neighbour has voted for, on both sides of a split."""
        neighbour = next(host for host in self._world.hosts if host.origin == peer)
        if not neighbour.is_up:
            return []
        votes = neighbour.node.certificates.ours()
        new = [vote for vote in votes if (peer, vote.epoch) not in self._seconds]
        self._seconds |= {(peer, vote.epoch) for vote in new}
        self._counts["lie_seconds"] += bool(new)
        return [Votes(tuple(self._voting(vote) for vote in new))] if new else []

    def _voting(self, like: Vote) -> Vote:
        """Our own vote for the same sum."""
        key, run_id = self.host.public_key, self._world.rules.run_id
        vote = like._replace(origin=self.host.origin)
        return vote._replace(signature=self._world.notary.signature(key, vote.signed_bytes(run_id, key)))

    def _other(self, message: Updates) -> Updates:
        """Equivocation: sometimes replaces own bundles by others for this neighbour."""
        if self._rng.random() < 0.7 or all(bundle.origin != self.host.origin for bundle in message.bundles):
            return message
        self._counts["lie_two_tongues"] += 1
        self._world.chronicle.is_tainted = True
        return Updates(
            tuple(
                self._make(bundle.step, bundle.skipped) if bundle.origin == self.host.origin else bundle
                for bundle in message.bundles
            )
        )

    def _as_skipped(self, peer: OriginId, message: Updates) -> Updates:
        """Hides own bundles from this neighbour; the next one that it gets declares their steps as skipped."""
        own = []
        for bundle in message.bundles:
            if bundle.origin == self.host.origin and bundle.step > 0:
                if self._rng.random() < 0.3:
                    self._hidden[peer] = min(self._hidden.get(peer, bundle.step), bundle.first_covered)
                    continue
                if bundle.first_covered > (first := self._hidden.pop(peer, bundle.step)):
                    self._counts["lie_skips"] += 1
                    self._world.chronicle.is_tainted = True
                    bundle = self._sign(make_bundle(bundle.origin, bundle.step, bundle.probes, bundle.step - first))
            own.append(bundle)
        return Updates(tuple(own))

    def _forge(self, answer: Iterable[AnswerItem]) -> Iterable[AnswerItem]:
        """Puts a forged sum into the answer to a pull, usually with matching digests."""
        parts = list(answer)
        if "sums" in self._lies and self._rng.random() < 0.7:
            self._counts["lie_sums"] += 1
            forged = self._forged_sum()
            place = self._rng.randint(0, len(parts))
            try:
                total = unpack(forged.coefficients, EPOCH_BYTES)
            except ValueError:
                total = b""
            digest = EpochDigest(Frontier(forged.frontier).digest(), hashlib.sha256(total).digest())
            forged = replace(forged, certificate=self._forged_votes(forged.epoch, digest))
            parts[place:place] = [forged]
        return parts

    # What it says

    def _forged_sum(self) -> ClosedEpoch:
        """A sum with made-up coefficients. It covers steps that some hosts have not published yet."""
        rules = self._world.rules
        epoch = self._rng.randrange(max(1, rules.steps // rules.refresh_period))
        end = self._rng.choice(((epoch + 1) * rules.refresh_period, rules.steps))
        frontier = tuple(Held(host.origin, end) for host in sorted(self._world.hosts, key=lambda host: host.origin))
        data = self._rng.choice((pack((1 << 62).to_bytes(8, "little")), pack(bytes(EPOCH_BYTES)), b"\x78\x9c", b""))
        return ClosedEpoch(epoch, frontier, data)

    def sums(self) -> list[Item]:
        """Parts of an answer to a pull, which somebody has begun or nobody has."""
        return [PullPart(self._rng.randint(1, 5), part) for part in cut([self._forged_sum()]) if part]

    def digests(self) -> list[Item]:
        node = self.host.node
        true = node.divergence.standing
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
        """Pulls that claim to hold everything, nothing, or every third step."""
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
        """Wrong statements about itself, each newer than the last, and validly signed."""
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
            {"algorithm": pack_statement(stated(ours)._replace(published_before=self._rng.choice(NUMBERS[:4])))},
            {"incarnation": self._rng.choice(NUMBERS)},
        )
        fields = {"version": self._versions, **self._rng.choice(lies)}
        return [Members((self._signed(replace(ours, **fields)),))]

    def votes(self) -> list[Item]:
        """Votes for sums that nobody has, sometimes a second one on an epoch, or in the name of another host."""
        epoch = self._rng.choice((0, self.host.node.step // self._world.rules.refresh_period, 1 << 40))
        closings = self.host.node.closings
        frontier = closings._held.get(epoch, Frontier()).held()
        covered = self._rng.choice((self._noise(), Frontier(frontier).digest()))
        return [Votes(self._forged_votes(epoch, EpochDigest(covered, self._noise())))]

    def _forged_votes(self, epoch: int, digests: EpochDigest) -> tuple[Vote, ...]:
        """Our own vote; sometimes also those of others, with signatures that they never made."""
        votes = [self._voting(Vote(self.host.origin, epoch, digests))]
        if self._rng.random() < 0.5:
            others = [host.origin for host in self._world.hosts if host is not self.host]
            votes += [Vote(origin, epoch, digests, self._rng.randbytes(64)) for origin in others]
        return tuple(votes)

    def strangers(self) -> list[Item]:
        """Statements of new keys that nobody invited."""
        count = min(self._rng.randint(1, 20), STRANGERS_MAX - self._counts["strangers"])
        self._counts["strangers"] += max(0, count)
        members = []
        for _ in range(count):
            key = self._rng.randbytes(32)
            name = self._rng.choice(("h0", "stranger", f"s{self._rng.getrandbits(20)}"))
            member = Member(key, name, 1, first_step=self._rng.choice((0, self._world.rules.steps - 1)))
            members.append(self._signed(member))
        return [Members(tuple(members))] if members else []

    def forged(self) -> list[Item]:
        """A bundle or a statement in the name of another host, with an invalid signature."""
        other = self._rng.choice([host for host in self._world.hosts if host is not self.host])
        bundle = self._make(self.host.node.step, origin=other.origin)
        member = Member(other.public_key, other.name, 1 << 40, last_step=-1, signature=self._rng.randbytes(64))
        return [self._rng.choice((Updates((bundle,)), Members((member,))))]

    def equivocations(self) -> list[Item]:
        """Another bundle for a step that it has published already."""
        own = self.host.own_bundles()
        if not own:
            return []
        self._world.chronicle.is_tainted = True
        return [Updates((self._make(self._rng.choice(own[-4:]).step),))]

    def ahead(self) -> list[Item]:
        """A bundle of a step that nobody has reached yet, or that the run does not have."""
        rules = self._world.rules
        step = self._rng.choice((rules.steps - rules.local_steps, rules.steps, 1 << 31, self.host.node.step + 1))
        bundle = self._make(step, skipped=self._rng.choice((0, 0, min(step, 3))))
        self._world.chronicle.say(bundle)
        return [Updates((bundle,))]

    def replays(self) -> list[Item]:
        """Repeats a message that it sent before."""
        return [self._rng.choice(self._received)] * self._rng.randint(1, 8) if self._received else []

    def limits(self) -> list[Item]:
        """Frames at their limits and slightly beyond."""
        bundle = self._make(self.host.node.step).with_signature(self._noise() * 2)
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
        """Sends nothing more: this lie is what `_listen` does not send."""
        return []

    def seconds(self) -> list[Item]:
        """Votes for what each neighbour votes for: this lie is in `_seconded`."""
        return []

    def skips(self) -> list[Item]:
        """Declares steps as skipped that a neighbour may hold already. More of this lie is in `_as_skipped`."""
        own = self.host.own_bundles()
        if not own:
            return []
        self._world.chronicle.is_tainted = True
        bundle = self._rng.choice(own[-4:])
        return [Updates((self._make(bundle.step, skipped=self._rng.randint(0, bundle.step)),))]

    def _make(self, step: int, skipped: int = 0, origin: OriginId | None = None) -> Bundle:
        """A signed bundle. origin: the host in whose name it is, by default this one."""
        rules, origin = self._world.rules, self.host.origin if origin is None else origin
        step -= step % rules.local_steps
        return self._sign(make_bundle(origin, step, draw_round(rules, origin, step, self._rng), skipped))

    def _sign(self, bundle: Bundle) -> Bundle:
        key = self.host.public_key
        message = bundle.signed_bytes(self._world.rules.run_id, key)
        return bundle.with_signature(self._world.notary.signature(key, message))

    def _signed(self, member: Member) -> Member:
        message = replace(member, signature=b"").signed_bytes(self._world.rules.run_id)
        return replace(member, signature=self._world.notary.signature(member.public_key, message))

    def _noise(self) -> bytes:
        return self._rng.randbytes(32)


LIES: dict[str, Callable[[Liar], list[Item]]] = {
    "sums": Liar.sums,
    "votes": Liar.votes,
    "digests": Liar.digests,
    "frontiers": Liar.frontiers,
    "statements": Liar.statements,
    "strangers": Liar.strangers,
    "forged": Liar.forged,
    "equivocations": Liar.equivocations,
    "ahead": Liar.ahead,
    "replays": Liar.replays,
    "limits": Liar.limits,
    "goodbyes": Liar.goodbyes,
    "withhold": Liar.withhold,
    "skips": Liar.skips,
    "seconds": Liar.seconds,
}


def let_lie(
    world: SeedfloodWorld, indices: Iterable[int], counts: Counter[str], kinds: Sequence[str] | None = None
) -> list[Liar]:
    """Lets these hosts lie from now on. kinds: their kinds of lies, by default drawn from the seed."""
    kinds = kinds or world.rng.sample(sorted(LIES), world.rng.randint(3, len(LIES)))
    liars = [Liar(world, world.hosts[index], counts, kinds) for index in sorted(indices)]
    world.chronicle.liars |= {liar.host.origin for liar in liars}
    world.chronicle.is_lied_to = True
    for liar in liars:
        liar.begin()
    return liars
