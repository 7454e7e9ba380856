"""Origins by hand: what they say, with pretend signatures that bind as real ones do."""

import hashlib
import struct
from dataclasses import replace

from seedflood.protocol.frontier import Frontier, Held
from seedflood.protocol.origin import origin_id
from seedflood.protocol.packing import pack
from seedflood.protocol.seedflood.bundles import LOSS_MAX, Updates, make_bundle
from seedflood.protocol.seedflood.epochs import digest_of
from seedflood.protocol.seedflood.messages import ClosedEpoch, ReplicaDigest, Standing, Vote
from seedflood.protocol.seedflood.node import Node
from seedflood.protocol.seedflood.payload import PAIRS
from seedflood.protocol.seedflood.rules import Rules
from seedflood.protocol.seedflood.statement import Stated
from seedflood.protocol.seedflood.statement import pack as pack_statement
from seedflood.protocol.swarm.messages import Hello, Member
from seedflood.protocol.swarm.rules import Patience

RUN_ID = hashlib.sha256(b"run").digest()
BASE_DIGEST = hashlib.sha256(b"base").digest()
EPOCH_BYTES = 8


def pretend_signature(public_key, message):
    return hashlib.sha512(public_key + message).digest()


def verify(public_key, message, signature):
    return signature == pretend_signature(public_key, message)


def is_signed(member):
    return verify(member.public_key, member.signed_bytes(RUN_ID), member.signature)


def make_rules(
    clients=2,
    steps=100,
    window="strict",
    local_steps=1,
    refresh_period=1000,
    compression=PAIRS,
    delay=0,
    epoch_bytes=EPOCH_BYTES,
    **more,
):
    told = (refresh_period, epoch_bytes, compression, delay)
    return Rules(RUN_ID, BASE_DIGEST, clients, steps, window, local_steps, *told, **more)


class Origin:
    """One origin as its neighbours see it."""

    def __init__(self, name):
        self.name = name
        self.public_key = hashlib.sha256(name.encode()).digest()
        self.id = origin_id(self.public_key)

    def sign(self, message):
        return pretend_signature(self.public_key, message)

    def member(self, incarnation=1, version=0, *, neighbours=(), published_before=0, **said):
        neighbours = tuple(sorted(other.id for other in neighbours))
        said = {"algorithm": pack_statement(Stated(published_before)), **said}
        unsigned = Member(self.public_key, self.name, incarnation, version, neighbours, **said)
        return replace(unsigned, signature=self.sign(unsigned.signed_bytes(RUN_ID)))

    def bundle(self, step, count=1, skipped=0, scalar=7, payload=None):
        probes = tuple(payload or ((1000 + step + k) & LOSS_MAX, scalar) for k in range(count))
        unsigned = make_bundle(self.id, step, probes, skipped)
        signature = self.sign(unsigned.signed_bytes(RUN_ID, self.public_key))
        return make_bundle(self.id, step, probes, skipped, signature)

    def vote(self, closed):
        """Its vote for this sum."""
        unsigned = Vote(self.id, closed.epoch, digest_of(closed, EPOCH_BYTES))
        return unsigned._replace(signature=self.sign(unsigned.signed_bytes(RUN_ID, self.public_key)))

    def updates(self, *steps):
        """One bundle per step, as one message."""
        return Updates(tuple(self.bundle(step) for step in steps))

    def held(self, mark, *beyond):
        return Held(self.id, mark, beyond)

    def hello(self, frontier=(), members=(), **statement):
        return Hello(RUN_ID, BASE_DIGEST, self.member(**statement), tuple(members), tuple(frontier))

    def node(self, rules, *, bundles=(), members=(), incarnation=1, patience=None, now=0.0, **kept):
        """This origin as the real thing, started from a journal."""
        member = Member(self.public_key, self.name, incarnation)
        node = Node(rules, member, self.sign, verify, patience=patience or Patience())
        node.start(bundles, members, now, **kept)
        return node


A, B, C, D, E = (Origin(name) for name in ("ada", "bob", "cyd", "dan", "eve"))


def pack_sum(total):
    """A sum as the coefficients of a model that has only one."""
    return pack(struct.pack("<q", total))


def epoch(number, *held, total=0):
    """A closed epoch that stands for what these hold."""
    return ClosedEpoch(number, Frontier(held).held(), pack_sum(total))


def certified(closed, *signers):
    """The sum with the votes of these."""
    return replace(closed, certificate=tuple(one.vote(closed) for one in signers))


def replica(*held, digest="same"):
    """What someone says of its coefficients with this applied."""
    return ReplicaDigest(Frontier(held).digest(), hashlib.sha256(digest.encode()).digest())


def standing(*held, digest="same"):
    return Standing(Frontier(held).held(), replica(digest=digest).replica_digest)
