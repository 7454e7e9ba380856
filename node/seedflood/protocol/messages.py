"""What is said between nodes: bundles of updates, membership statements, and the messages of a link.

An *update* is what one origin measured at one step. A *bundle* is one or several consecutive updates of one
origin under one signature: the unit that is signed, journalled and flooded. With `local_steps = 1` every bundle
holds one update.

Steps that an origin never measures (it was down, or too slow and moved on with the swarm) are declared by its next
bundle as `skipped`. So the steps that a bundle *covers* join those of the bundle before without a hole, and what a
node holds of an origin stays one number however irregular the origin is.

Signatures cover the encodings made here, not the wire's: they carry a domain, the run and the origin's key, so a
bundle can be replayed neither in another run nor as another kind of statement.

What is *told* of a step is a seed and a scalar, or a payload: bytes whose form the rules of the run know (`payload`).
All bundles of a run tell the same kind; here, on the wire and in the journal a payload is bytes and nothing else.
"""

import hashlib
import struct
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import chain
from typing import NamedTuple, cast

OriginId = int
"""The leading eight bytes of SHA-256 of an origin's Ed25519 public key, as a big-endian integer."""

SCALAR_UNIT_BITS = 20
SCALAR_MAX = 1 << 32
"""Scalars are integers in units of 2^-20, clipped to |alpha| <= 2^12."""

SEED_MAX = (1 << 32) - 1
STEP_MAX = (1 << 53) - 1
BUNDLE_UPDATES_MAX = 64
"""A bundle is one message of `local_steps` updates: more than 64 would delay, not save (64 signature bytes / 64)."""

BUNDLE_BYTES_MAX = 256 << 10
"""Of all payloads in a bundle: a relay holds, checks and hands on a bundle as one, and live frames wait for it."""

Told = tuple[int, int] | bytes
"""What is told of a step: (seed, scalar), or a payload of at least one byte."""

_PAYLOADS = struct.Struct(">QIH")
_SIGNED = [struct.Struct(">QIH" + "Iq" * count) for count in range(BUNDLE_UPDATES_MAX + 1)]

ORIGINS_REMEMBERED = 65_536
NEIGHBOURS_MAX = 1024
INCARNATION_MAX = 1 << 62
"""Far beyond any clock. One that has a newer one of itself to outlive counts on from it."""

CLOSED_DIGESTS_MAX = 1024
"""In one message: 64 KiB."""

NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$"

Verify = Callable[[bytes, bytes, bytes], bool]
"""(public key, message, signature) -> is it the key's signature of the message."""

Sign = Callable[[bytes], bytes]
"""message -> signature by this node's own key."""


@lru_cache(maxsize=ORIGINS_REMEMBERED)
def origin_id(public_key: bytes) -> OriginId:
    """Names an origin by its 32-byte Ed25519 public key."""
    return int.from_bytes(hashlib.sha256(public_key).digest()[:8], "big")


def fingerprint(origin: OriginId) -> str:
    """Shows an origin to people: sixteen hex digits."""
    return f"{origin:016x}"


Span = tuple[OriginId, int, int]
"""(origin, first step, last step)."""


class Update(NamedTuple):
    """What one origin measured at one step: unique by (origin, step), applied exactly once.

    told: a payload, or (seed, scalar): 32 bits from which the direction follows, and the projected gradient in units
    of 2^-20.
    """

    origin: OriginId
    step: int
    told: Told


class Bundle(NamedTuple):
    """Consecutive updates of one origin under one signature. A tuple, for they come by the hundred thousand a second.

    step: the first step measured. skipped: how many steps right before it the origin did not measure.
    probes: what is told of step, step + 1, ...: pairs, or payloads, never both.
    """

    origin: OriginId
    step: int
    probes: tuple[Told, ...]
    skipped: int = 0
    signature: bytes = b""

    @property
    def span(self) -> Span:
        """What it covers, as frontiers take it: `frontier.add(*bundle.span)`."""
        origin, step, probes, skipped, _ = self
        return origin, step - skipped, step + len(probes) - 1

    @property
    def first_covered(self) -> int:
        return self.step - self.skipped

    @property
    def last(self) -> int:
        return self.step + len(self.probes) - 1

    def updates(self) -> list[Update]:
        return [Update(self.origin, step, told) for step, told in enumerate(self.probes, self.step)]

    def signed_bytes(self, run_id: bytes, public_key: bytes) -> bytes:
        """What the signature covers. run_id and public_key: 32 bytes each. Payloads have a domain of their own."""
        _, step, probes, skipped, _ = self
        count = len(probes)
        if probes[0].__class__ is bytes:
            return b"".join((b"seedflood bundle 2\0", run_id, public_key, _payloads_signed(step, skipped, probes)))
        flat = probes[0] if count == 1 else chain.from_iterable(probes)
        return b"seedflood bundle 1\0" + run_id + public_key + _SIGNED[count].pack(step, skipped, count, *flat)


bundle_of: Callable[[Iterable[object]], Bundle] = partial(tuple.__new__, Bundle)
"""`Bundle._make` without its check, at a third of its cost."""


@dataclass(frozen=True, slots=True)
class Member:
    """A membership statement: who an origin is, whom it is linked with, and whether it has left.

    The newest (incarnation, version) of an origin is believed. incarnation: how often the origin was started.
    first_step: the first step this incarnation will measure. last_step: after leaving, the last it has measured
    (-1: none); None while it takes part. hop_milliseconds: the slow end of the delays it measures to its neighbours.
    closed_before, closed_frontier, closed_digest: it has closed all epochs below this step; what their sums stand for,
    and what they come to (`evidence.Chain`).
    said_before: of the steps below it had said, when it stated this, all that it will say.
    """

    public_key: bytes
    name: str
    incarnation: int
    version: int = 0
    neighbours: tuple[OriginId, ...] = ()
    first_step: int = 0
    last_step: int | None = None
    hop_milliseconds: int = 0
    closed_before: int = 0
    closed_frontier: bytes = b""
    closed_digest: bytes = b""
    said_before: int = 0
    signature: bytes = b""

    @property
    def origin(self) -> OriginId:
        return origin_id(self.public_key)

    @property
    def age(self) -> tuple[int, int]:
        """Orders the statements of one origin: greater is newer."""
        return (self.incarnation, self.version)

    @property
    def has_left(self) -> bool:
        return self.last_step is not None

    @property
    def has_spoken(self) -> bool:
        """Does it tell from which step on its origin takes part? Until it has caught up, it does not."""
        return self.first_step < STEP_MAX

    def signed_bytes(self, run_id: bytes) -> bytes:
        """What the signature covers. run_id: 32 bytes."""
        name = self.name.encode()
        last = -2 if self.last_step is None else self.last_step
        return b"".join(
            (
                b"seedflood member 3\0",
                run_id,
                self.public_key,
                struct.pack(">H", len(name)),
                name,
                struct.pack(">QQQqH", self.incarnation, self.version, self.first_step, last, len(self.neighbours)),
                struct.pack(f">{len(self.neighbours)}Q", *self.neighbours),
                struct.pack(">IQQ", self.hop_milliseconds, self.said_before, self.closed_before),
                struct.pack(">BB", len(self.closed_frontier), len(self.closed_digest)),
                self.closed_frontier,
                self.closed_digest,
            )
        )


@dataclass(frozen=True, slots=True)
class Held:
    """What a node holds of one origin: every step below `mark`, and the ranges (first, last) above it."""

    origin: OriginId
    mark: int
    beyond: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Hello:
    """First message on a link, from both sides: who I am, what I hold, whom I know."""

    run_id: bytes
    base_digest: bytes
    member: Member
    members: tuple[Member, ...] = ()
    frontier: tuple[Held, ...] = ()
    protocol_version: int = 2


@dataclass(frozen=True, slots=True)
class Updates:
    """A batch of bundles, in the order in which they were learned."""

    bundles: tuple[Bundle, ...]


@dataclass(frozen=True, slots=True)
class Members:
    """A batch of membership statements."""

    members: tuple[Member, ...]


@dataclass(frozen=True, slots=True)
class FrontierDigest:
    """Said every few seconds: 32 bytes that are equal on two nodes exactly if they hold the same updates.

    before: only steps below it count, so that what is on its way right now does not look like a difference.
    is_complete: the sender needs nothing more for this run. members_digest: of the ages of all statements it knows.
    """

    frontier_digest: bytes
    before: int = STEP_MAX
    is_complete: bool = False
    members_digest: bytes = b""


@dataclass(frozen=True, slots=True)
class ReplicaDigest:
    """With exactly the updates of this frontier applied, the sender's coefficients had this digest. 32 bytes each."""

    frontier_digest: bytes
    replica_digest: bytes


@dataclass(frozen=True, slots=True)
class Standing:
    """The same with the frontier in full, so that one who catches up can apply exactly that and compare.

    Said at the end of a pull.
    """

    frontier: tuple[Held, ...]
    replica_digest: bytes


@dataclass(frozen=True, slots=True)
class ClosedEpoch:
    """What the updates of an epoch add up to, and which updates these are: part of the answer to a pull.

    frontier: the steps that the bundles measured in this epoch cover; a bundle belongs to the epoch of its `step`.
    coefficients: zlib of the integers as `Replica.sum_epoch` gives them. sum_digest: SHA-256 of these integers, where
    it was taken from our own journal already; then they may be left out. Never from the network.
    """

    epoch: int
    frontier: tuple[Held, ...]
    coefficients: bytes
    sum_digest: bytes = b""


class EpochDigest(NamedTuple):
    """Of the sum of a closed epoch: of what it stands for, and of its coefficients. 32 bytes each."""

    frontier_digest: bytes
    sum_digest: bytes


@dataclass(frozen=True, slots=True)
class ClosedDigests:
    """Of the sender's closed epochs, from epoch `first` on: said before the first sum in the answer to a pull."""

    first: int
    digests: tuple[EpochDigest, ...]


@dataclass(frozen=True, slots=True)
class BlockDigests:
    """What the sender holds of blocks of steps (`inquiry.Contents`): said when replicas differ at equal frontiers.

    blocks: (origin, epoch, number, how many bundles, the sum of their fingerprints).
    """

    blocks: tuple[tuple[OriginId, int, int, int, bytes], ...]


@dataclass(frozen=True, slots=True)
class Equivocation:
    """Two bundles of one origin, both signed: the proof that it contradicts itself. Under one step: `kept` stands. Or
    `dropped` declares the step of `kept` as skipped, which was measured: then both stand (`inquiry`)."""

    kept: Bundle
    dropped: Bundle


@dataclass(frozen=True, slots=True)
class Ping:
    """sent_at: the sender's clock in seconds, returned as it is by the pong."""

    sent_at: float


@dataclass(frozen=True, slots=True)
class Pong:
    sent_at: float


@dataclass(frozen=True, slots=True)
class Goodbye:
    """Last message on a link that is closed on purpose."""

    reason: str = ""


Message = (
    Hello
    | Updates
    | Members
    | FrontierDigest
    | ReplicaDigest
    | Standing
    | ClosedDigests
    | ClosedEpoch
    | BlockDigests
    | Equivocation
    | Ping
    | Pong
    | Goodbye
)


def count_updates(bundles: Sequence[Bundle]) -> int:
    return sum([len(bundle.probes) for bundle in bundles])


def _payloads_signed(step: int, skipped: int, probes: tuple[Told, ...]) -> bytes:
    """Their sizes stand in front of them, so that no two bundles read the same."""
    sizes = struct.pack(f">{len(probes)}I", *map(len, probes))
    return b"".join((_PAYLOADS.pack(step, skipped, len(probes)), sizes, *cast(tuple[bytes, ...], probes)))
