"""What nodes that train by SeedFlood say to each other: bundles of updates, digests, sums of epochs.

Signatures cover the encodings made here, not the wire's: they carry a domain, the run and the origin's key. So a bundle
can be replayed neither in another run nor as anything else. Steps that an origin never measures are declared by its
next bundle as `skipped`, so what a node holds of an origin stays one number.

docs/explanation/consensus.md says what follows from these messages.
"""

import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import NamedTuple, cast

from seedflood.protocol.frontier import Held, Span
from seedflood.protocol.origin import STEP_MAX, OriginId
from seedflood.protocol.swarm.messages import AlgorithmMessage

SCALAR_UNIT_BITS = 20
SCALAR_MAX = 1 << 32
"""Scalars are integers in units of 2^-20, at most 2^32 in size: |alpha| <= 2^12."""

LOSS_UNIT_BITS = 11
LOSS_MAX = (1 << 16) - 1
LOSS_BYTES = 2
"""Losses are integers in units of 2^-11, so at most 32. The largest stands for all that is larger, or no number. They
are the last two bytes of a payload, little-endian."""

BUNDLE_UPDATES_MAX = 64
"""The most updates in a bundle. One signature of 64 bytes then costs a byte per update; a larger bundle would save
nothing and only delay its updates."""

BUNDLE_BYTES_MAX = 256 << 10
"""The most bytes of all payloads in a bundle. A relay holds, checks and passes on a bundle as a whole, and live frames
wait behind it."""

BATCH_BYTES = 64 << 10
"""Payloads that are sent, read or written at once: live frames wait 1 ms behind as much at 500 Mbit/s. A pair is so
small that the count of a batch bounds its bytes."""

UpdateValue = tuple[int, int] | bytes
"""The value of an update: (loss, scalar), or a payload of at least one byte, whose form the rules of the run know
(`payload`). All bundles of a run carry the same kind; on the wire and in the journal a payload is bytes."""

_PAYLOADS = struct.Struct(">QIH")
_PACKED = struct.Struct(">QQIHI64s")
_PAIR = struct.Struct(">Iq")
_SIGNED = [struct.Struct(">QIH" + "Iq" * count) for count in range(BUNDLE_UPDATES_MAX + 1)]

EPOCH_PART_BYTES = 64 << 10
"""How much of a sum comes in one part of an answer."""

VOTES_MAX = 4096
"""The most votes in one message, and in a certificate: 600 KB."""


class Update(NamedTuple):
    """What one origin measured at one step: unique by (origin, step), applied exactly once.

    value: a payload, or (loss, scalar): what the origin lost on its batch, in units of 2^-11, and the projected
    gradient in units of 2^-20. The direction follows from origin and step (`seeds`).
    """

    origin: OriginId
    step: int
    value: UpdateValue

    @property
    def loss(self) -> int:
        """What the origin lost on its batch, in units of 2^-11."""
        return loss_of(self.value)


def loss_of(value: UpdateValue) -> int:
    """The loss in the value of an update, in units of 2^-11."""
    return value[0] if isinstance(value, tuple) else int.from_bytes(value[-LOSS_BYTES:], "little")


class Bundle(NamedTuple):
    """Consecutive updates of one origin under one signature: the unit that is signed, journalled and flooded. It is a
    tuple because up to a hundred thousand come per second. With `local_steps = 1` it has one update.

    step: the first step measured. skipped: how many steps right before it the origin did not measure. probes: what is
    values of step, step + 1, and so on: pairs, or payloads, never both.
    """

    origin: OriginId
    step: int
    probes: tuple[UpdateValue, ...]
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

    def contradicts(self, other: "Bundle") -> bool:
        """Do both cover one step, though they differ? An honest origin signs no two such bundles."""
        is_apart = self.origin != other.origin or self.last < other.first_covered or other.last < self.first_covered
        return self != other and not is_apart

    def updates(self) -> list[Update]:
        return [Update(self.origin, step, value) for step, value in enumerate(self.probes, self.step)]

    def signed_bytes(self, run_id: bytes, public_key: bytes) -> bytes:
        """What the signature covers. run_id and public_key: 32 bytes each. Payloads have a domain of their own."""
        _, step, probes, skipped, _ = self
        count = len(probes)
        if probes[0].__class__ is bytes:
            return b"".join((b"seedflood bundle 2\0", run_id, public_key, _payloads_signed(step, skipped, probes)))
        flat = probes[0] if count == 1 else chain.from_iterable(probes)
        return b"seedflood bundle 1\0" + run_id + public_key + _SIGNED[count].pack(step, skipped, count, *flat)


def pack_bundles(bundles: Iterable[Bundle]) -> bytes:
    """Bundles as bytes for a journal, each with values of one size."""
    return b"".join(map(_packed, bundles))


def unpack_bundles(data: bytes) -> Iterator[Bundle]:
    place = 0
    while place < len(data):
        origin, step, skipped, count, size, signature = _PACKED.unpack_from(data, place)
        begin, width = place + _PACKED.size, size or _PAIR.size
        place = begin + count * width
        value = [data[k : k + width] for k in range(begin, place, width)]
        yield Bundle(origin, step, tuple(value if size else map(_PAIR.unpack, value)), skipped, signature)


def _packed(bundle: Bundle) -> bytes:
    value = [one if isinstance(one, bytes) else _PAIR.pack(*one) for one in bundle.probes]
    size = len(value[0]) if isinstance(bundle.probes[0], bytes) else 0
    head = _PACKED.pack(bundle.origin, bundle.step, bundle.skipped, len(value), size, bundle.signature)
    return head + b"".join(value)


bundle_of: Callable[[Iterable[object]], Bundle] = partial(tuple.__new__, Bundle)
"""`Bundle._make` without its check, at a third of its cost."""


class SeedFloodMessage(AlgorithmMessage):
    """Any of these. Most say what everybody may compute, or what others have signed."""

    __slots__ = ()

    def is_of(self, origin: OriginId) -> bool:
        return False


@dataclass(frozen=True, slots=True)
class Updates(SeedFloodMessage):
    """A batch of bundles, in the order in which they were learned."""

    bundles: tuple[Bundle, ...]

    def is_of(self, origin: OriginId) -> bool:
        return any(bundle.origin == origin for bundle in self.bundles)


@dataclass(frozen=True, slots=True)
class FrontierDigest(SeedFloodMessage):
    """Sent every few seconds: 32 bytes that are equal on two nodes if they hold the same updates. Else they differ,
    unless a liar has searched for signatures whose sums agree.

    before: only the steps below it count, so that bundles in flight do not look like a difference. is_complete: the
    sender needs nothing more for this run. members_digest: of the ages of all statements that the sender knows.
    """

    frontier_digest: bytes
    before: int = STEP_MAX
    is_complete: bool = False
    members_digest: bytes = b""


@dataclass(frozen=True, slots=True)
class ReplicaDigest(SeedFloodMessage):
    """With exactly the updates of this frontier applied, the sender's coefficients had this digest. 32 bytes each."""

    frontier_digest: bytes
    replica_digest: bytes


@dataclass(frozen=True, slots=True)
class Standing(SeedFloodMessage):
    """The same with the whole frontier, at the end of a pull: a node that catches up can apply exactly these updates,
    and compare digests."""

    frontier: tuple[Held, ...]
    replica_digest: bytes


class EpochDigest(NamedTuple):
    """The digests of an epoch's sum: of the steps that its sum covers, and of its coefficients. 32 bytes each."""

    frontier_digest: bytes
    sum_digest: bytes


class Vote(NamedTuple):
    """What an origin attests of an epoch that is over (`certificates`). digests: of its sum. serial: of the roster that
    says who else votes; 0 in open runs."""

    origin: OriginId
    epoch: int
    digests: EpochDigest
    signature: bytes = b""
    serial: int = 0

    def signed_bytes(self, run_id: bytes, public_key: bytes) -> bytes:
        """What the signature covers. run_id and public_key: 32 bytes each."""
        numbers = struct.pack(">QQ", self.epoch, self.serial)
        return b"".join((b"seedflood vote 2\0", run_id, public_key, numbers, *self.digests))


@dataclass(frozen=True, slots=True)
class Votes(SeedFloodMessage):
    """Votes of any hosts on any epochs."""

    votes: tuple[Vote, ...]

    def is_of(self, origin: OriginId) -> bool:
        return any(vote.origin == origin for vote in self.votes)


@dataclass(frozen=True, slots=True)
class ClosedEpoch(SeedFloodMessage):
    """The sum of an epoch's updates, and which updates these are: part of the answer to a pull.

    frontier: the steps covered by the bundles of this epoch; a bundle belongs to the epoch of its `step`. coefficients:
    the integers of `Replica.sum_epoch`, packed by zlib. sum_digest: SHA-256 of these integers, if it was already taken
    from our own journal; then they may be left out. It never comes from the network. certificate: equal votes
    for this sum, enough of them.
    """

    epoch: int
    frontier: tuple[Held, ...]
    coefficients: bytes
    sum_digest: bytes = b""
    certificate: tuple[Vote, ...] = ()


@dataclass(frozen=True, slots=True)
class BlockDigests(SeedFloodMessage):
    """What the sender holds, by blocks of steps (`contents`): sent when replicas differ at equal frontiers.

    blocks: (origin, epoch, number of the block, how many bundles, the sum of their fingerprints).
    """

    blocks: tuple[tuple[OriginId, int, int, int, bytes], ...]


@dataclass(frozen=True, slots=True)
class Equivocation(SeedFloodMessage):
    """Two signed bundles of one origin that contradict each other: the proof that it lies (`ends`)."""

    one: Bundle
    other: Bundle

    @property
    def origin(self) -> OriginId:
        return self.one.origin

    @property
    def end(self) -> int:
        """The first step that either covers: from here on nothing of the origin counts."""
        return min(self.one.first_covered, self.other.first_covered)


def have_payloads(bundles: Sequence[Bundle]) -> bool:
    """Do these bundles carry payloads, and not pairs? The first one shows it: all of a run carry the same kind."""
    return bool(bundles) and bundles[0].probes[0].__class__ is bytes


def payload_bytes(bundles: Sequence[Bundle]) -> int:
    """The bytes of all payloads in these bundles; 0 if they carry pairs."""
    return sum([len(value) for bundle in bundles for value in bundle.probes]) if have_payloads(bundles) else 0


def cut_bundles(
    bundles: Sequence[Bundle], count_max: int, bytes_max: int = BATCH_BYTES
) -> Iterator[tuple[Bundle, ...]]:
    """Cuts bundles into batches, in order: each of at most count_max bundles and bytes_max bytes of payloads, but of
    one bundle at least."""
    if not have_payloads(bundles):
        for k in range(0, len(bundles), count_max):
            yield tuple(bundles[k : k + count_max])
        return
    part: list[Bundle] = []
    room = bytes_max
    for bundle in bundles:
        size = sum(map(len, bundle.probes))
        if part and (room < size or len(part) == count_max):
            yield tuple(part)
            part, room = [], bytes_max
        part.append(bundle)
        room -= size
    yield tuple(part)


def count_updates(bundles: Sequence[Bundle]) -> int:
    """How many updates these bundles hold."""
    return sum([len(bundle.probes) for bundle in bundles])


def _payloads_signed(step: int, skipped: int, probes: tuple[UpdateValue, ...]) -> bytes:
    """What is signed of payloads. Their sizes stand in front, so that no two bundles have equal bytes."""
    sizes = struct.pack(f">{len(probes)}I", *map(len, probes))
    return b"".join((_PAYLOADS.pack(step, skipped, len(probes)), sizes, *cast(tuple[bytes, ...], probes)))
