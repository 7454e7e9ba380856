"""Messages to frames and back. Every byte that the network brings is checked here, once.

What `decode` returns has the shapes and ranges that messages.py promises, so no layer above checks again; what it
cannot return it raises as PeerError, whatever the bytes. It does not verify signatures: that takes the allow-list,
which is the core's. Frames of a kind that we do not know come from a newer peer and are skipped, not refused.
"""

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate

from google.protobuf.message import DecodeError

from seedflood.errors import PeerError
from seedflood.protocol.frontier import RANGES_MAX
from seedflood.protocol.messages import (
    BUNDLE_UPDATES_MAX,
    NAME_PATTERN,
    NEIGHBOURS_MAX,
    SCALAR_MAX,
    STEP_MAX,
    Bundle,
    FrontierDigest,
    Goodbye,
    Held,
    Hello,
    Member,
    Members,
    Message,
    Ping,
    Pong,
    Updates,
)
from seedflood.wire import flood_pb2 as pb

FRAME_BYTES_MAX = 4 << 20
"""gRPC's default limit of a message, kept: what is larger is split."""

FRAME_BUNDLES_MAX = 4096
"""At most 2.7 MiB, with 64 updates in each bundle."""

MEMBERS_BYTES_MAX = 1 << 20
"""Statements are spread over frames of about this size."""

FRONTIER_BYTES_MAX = 2 << 20
"""A frontier beyond it is told without its ranges: less is claimed, more is pulled, nothing is lost."""

REASON_CHARACTERS_MAX = 256
KEY_BYTES = 32
DIGEST_BYTES_MAX = 64
SIGNATURE_BYTES = 64

_NAME = re.compile(NAME_PATTERN)


@dataclass(frozen=True, slots=True)
class Pull:
    """Asks for everything that the frontier lacks. id: counts the asker's pulls on this link, from 1."""

    id: int
    frontier: tuple[Held, ...]


@dataclass(frozen=True, slots=True)
class PullEnd:
    """Everything asked for was sent, or (not is_complete) the donor could not go on."""

    id: int
    is_complete: bool


@dataclass(frozen=True, slots=True)
class PullMore:
    """One part of the answer was worked off: one more may be sent."""

    id: int


@dataclass(frozen=True, slots=True)
class PullPart:
    """Bundles or statements that answer a pull."""

    id: int
    message: Updates | Members


LinkMessage = Message | Pull | PullEnd | PullMore | PullPart
"""What travels on a link: the core's messages and the transport's own."""


def encode(message: LinkMessage) -> list[bytes]:
    """Serialized frames, each within the limits; one unless the message is a long list of bundles or statements."""
    match message:
        case Updates() | Members():
            return [frame.SerializeToString() for frame in _batch_to_wire(message)]
        case PullPart():
            return [frame.SerializeToString() for frame in _batch_to_wire(message.message, answers=message.id)]
        case Hello():
            first, *rest = _chunks_of_members(message.members) or [pb.Members()]
            hello = pb.Hello(
                protocol_version=message.protocol_version,
                run_id=message.run_id,
                base_digest=message.base_digest,
                member=_member_to_wire(message.member),
                members=first.members,
                frontier=_frontier_to_wire(message.frontier),
            )
            frames = [pb.Frame(hello=hello), *(pb.Frame(members=chunk) for chunk in rest)]
            return [frame.SerializeToString() for frame in frames]
        case FrontierDigest():
            frame = pb.Frame(
                frontier_digest=pb.FrontierDigest(
                    frontier_digest=message.frontier_digest,
                    before=message.before,
                    is_complete=message.is_complete,
                    replica_digest=message.replica_digest,
                )
            )
        case Ping(sent_at):
            frame = pb.Frame(ping=pb.Ping(sent_at=sent_at))
        case Pong(sent_at):
            frame = pb.Frame(pong=pb.Pong(sent_at=sent_at))
        case Goodbye(reason):
            frame = pb.Frame(goodbye=pb.Goodbye(reason=reason[:REASON_CHARACTERS_MAX]))
        case Pull():
            frame = pb.Frame(pull=pb.Pull(id=message.id, frontier=_frontier_to_wire(message.frontier)))
        case PullEnd():
            frame = pb.Frame(pull_end=pb.PullEnd(id=message.id, is_complete=message.is_complete))
        case PullMore():
            frame = pb.Frame(pull_more=pb.PullMore(id=message.id))
    return [frame.SerializeToString()]


def decode(data: bytes) -> LinkMessage | None:
    """What a frame says; None for a kind that we do not know. Raises PeerError."""
    if len(data) > FRAME_BYTES_MAX:
        raise PeerError(f"a frame of {len(data)} bytes, more than {FRAME_BYTES_MAX}", reason="oversize")
    try:
        frame = pb.Frame.FromString(data)
    except DecodeError:
        raise PeerError(f"{len(data)} bytes that are no frame", reason="frame") from None
    match frame.WhichOneof("kind"):
        case "updates":
            updates = Updates(_updates_from_wire(frame.updates))
            return PullPart(frame.answers, updates) if frame.answers else updates
        case "members":
            members = Members(tuple(_member_from_wire(member) for member in frame.members.members))
            return PullPart(frame.answers, members) if frame.answers else members
        case "hello":
            return _hello_from_wire(frame.hello)
        case "frontier_digest":
            digest = frame.frontier_digest
            _check(len(digest.frontier_digest) == 32, "frontier_digest must be 32 bytes")
            _check(len(digest.replica_digest) <= DIGEST_BYTES_MAX, "replica_digest is too long")
            _check(digest.before <= STEP_MAX, f"before is beyond {STEP_MAX}")
            return FrontierDigest(digest.frontier_digest, digest.before, digest.is_complete, digest.replica_digest)
        case "ping":
            _check(math.isfinite(frame.ping.sent_at), "sent_at is not finite")
            return Ping(frame.ping.sent_at)
        case "pong":
            _check(math.isfinite(frame.pong.sent_at), "sent_at is not finite")
            return Pong(frame.pong.sent_at)
        case "goodbye":
            return Goodbye(frame.goodbye.reason[:REASON_CHARACTERS_MAX])
        case "pull":
            return Pull(frame.pull.id, _frontier_from_wire(frame.pull.frontier))
        case "pull_end":
            return PullEnd(frame.pull_end.id, frame.pull_end.is_complete)
        case "pull_more":
            return PullMore(frame.pull_more.id)
        case _:
            return None


def encode_pull_request(run_id: bytes, frontier: Sequence[Held]) -> bytes:
    """The request of Flood.Pull."""
    return pb.PullRequest(run_id=run_id, frontier=_frontier_to_wire(frontier)).SerializeToString()


def decode_pull_request(data: bytes) -> tuple[bytes, tuple[Held, ...]]:
    """Run id and frontier. Raises PeerError, whatever the bytes."""
    try:
        wire = pb.PullRequest.FromString(data)
    except DecodeError as error:
        raise PeerError(f"not a request: {error}", reason="frame") from None
    return wire.run_id, _frontier_from_wire(wire.frontier)


def _check(is_right: bool, sentence: str, reason: str = "limit") -> None:
    if not is_right:
        raise PeerError(sentence, reason=reason)


def _batch_to_wire(batch: Updates | Members, *, answers: int = 0) -> list[pb.Frame]:
    if isinstance(batch, Members):
        return [pb.Frame(members=chunk, answers=answers) for chunk in _chunks_of_members(batch.members)]
    bundles = batch.bundles
    return [
        pb.Frame(updates=_updates_to_wire(bundles[k : k + FRAME_BUNDLES_MAX]), answers=answers)
        for k in range(0, len(bundles), FRAME_BUNDLES_MAX)
    ]


def _updates_to_wire(bundles: Sequence[Bundle]) -> pb.Updates:
    counts = [len(bundle.probes) for bundle in bundles]
    skipped = [bundle.skipped for bundle in bundles]
    return pb.Updates(
        origins=[bundle.origin for bundle in bundles],
        steps=[bundle.step for bundle in bundles],
        counts=counts if any(count != 1 for count in counts) else None,
        skipped=skipped if any(skipped) else None,
        seeds=[seed for bundle in bundles for seed, _ in bundle.probes],
        scalars=[scalar for bundle in bundles for _, scalar in bundle.probes],
        signatures=b"".join(bundle.signature for bundle in bundles),
    )


def _updates_from_wire(wire: pb.Updates) -> tuple[Bundle, ...]:
    origins, steps, signatures = list(wire.origins), list(wire.steps), wire.signatures
    n = len(origins)
    _check(n <= FRAME_BUNDLES_MAX, f"{n} bundles in a frame, more than {FRAME_BUNDLES_MAX}")
    counts, skipped = list(wire.counts) or [1] * n, list(wire.skipped) or [0] * n
    seeds, scalars = list(wire.seeds), list(wire.scalars)
    _check(
        len(steps) == len(counts) == len(skipped) == n
        and len(signatures) == SIGNATURE_BYTES * n
        and len(seeds) == len(scalars) == sum(counts),
        "the columns of updates differ in length",
        "columns",
    )
    if not n:
        return ()
    _check(min(counts) >= 1 and max(counts) <= BUNDLE_UPDATES_MAX, f"a bundle holds 1 to {BUNDLE_UPDATES_MAX} updates")
    _check(min(scalars) >= -SCALAR_MAX and max(scalars) <= SCALAR_MAX, "a scalar is out of range")
    _check(all(map(int.__le__, skipped, steps)), "a bundle covers steps below 0")
    _check(max(map(int.__add__, steps, counts)) <= STEP_MAX + 1, f"a step is beyond {STEP_MAX}")
    probes = list(zip(seeds, scalars, strict=True))
    return tuple(
        Bundle(origin, step, tuple(probes[end - count : end]), skip, signatures[k : k + SIGNATURE_BYTES])
        for origin, step, count, skip, end, k in zip(
            origins, steps, counts, skipped, accumulate(counts), range(0, len(signatures), SIGNATURE_BYTES), strict=True
        )
    )


def _member_to_wire(member: Member) -> pb.Member:
    return pb.Member(
        public_key=member.public_key,
        name=member.name,
        incarnation=member.incarnation,
        version=member.version,
        neighbours=member.neighbours,
        first_step=member.first_step,
        last_step=member.last_step,
        signature=member.signature,
    )


def _member_from_wire(wire: pb.Member) -> Member:
    _check(len(wire.public_key) == KEY_BYTES, "a public key must be 32 bytes")
    _check(_NAME.fullmatch(wire.name) is not None, "a name has characters or a length that names do not have", "name")
    _check(len(wire.neighbours) <= NEIGHBOURS_MAX, f"more than {NEIGHBOURS_MAX} neighbours")
    _check(wire.first_step <= STEP_MAX, f"first_step is beyond {STEP_MAX}")
    last_step = wire.last_step if wire.HasField("last_step") else None
    _check(last_step is None or -1 <= last_step <= STEP_MAX, "last_step is out of range")
    _check(len(wire.signature) == SIGNATURE_BYTES, "a signature must be 64 bytes")
    return Member(
        wire.public_key,
        wire.name,
        wire.incarnation,
        wire.version,
        tuple(wire.neighbours),
        wire.first_step,
        last_step,
        wire.signature,
    )


def _chunks_of_members(members: Iterable[Member]) -> list[pb.Members]:
    chunks: list[pb.Members] = []
    room = 0
    for member in members:
        wire = _member_to_wire(member)
        size = wire.ByteSize() + 4
        if size > room:
            chunks.append(pb.Members())
            room = MEMBERS_BYTES_MAX
        chunks[-1].members.append(wire)
        room -= size
    return chunks


def _hello_from_wire(wire: pb.Hello) -> Hello:
    _check(len(wire.run_id) == 32, "run_id must be 32 bytes")
    _check(len(wire.base_digest) <= DIGEST_BYTES_MAX, "base_digest is too long")
    return Hello(
        wire.run_id,
        wire.base_digest,
        _member_from_wire(wire.member),
        tuple(_member_from_wire(member) for member in wire.members),
        _frontier_from_wire(wire.frontier),
        wire.protocol_version,
    )


def _frontier_to_wire(frontier: Sequence[Held]) -> pb.Frontier:
    wire = pb.Frontier(origins=[held.origin for held in frontier], marks=[held.mark for held in frontier])
    if any(held.beyond for held in frontier):
        counts: list[int] = []
        ranges: list[int] = []
        for held in frontier:
            end = held.mark
            for first, last in held.beyond:
                ranges += (first - end, last - first)
                end = last + 1
            counts.append(len(held.beyond))
        size = wire.ByteSize() + 10 * len(ranges)
        if size <= FRONTIER_BYTES_MAX:
            wire.range_counts.extend(counts)
            wire.ranges.extend(ranges)
    return wire


def _frontier_from_wire(wire: pb.Frontier) -> tuple[Held, ...]:
    origins, marks, ranges = list(wire.origins), list(wire.marks), list(wire.ranges)
    n = len(origins)
    counts = list(wire.range_counts) or [0] * n
    _check(
        len(marks) == len(counts) == n and len(ranges) == 2 * sum(counts),
        "the columns of a frontier differ in length",
        "columns",
    )
    _check(len(set(origins)) == n, "a frontier names an origin twice")
    _check(max(marks, default=0) <= STEP_MAX + 1, f"a mark is beyond {STEP_MAX}")
    _check(max(counts, default=0) <= RANGES_MAX, f"more than {RANGES_MAX} ranges of an origin")
    numbers = iter(ranges)
    frontier = []
    for origin, mark, count in zip(origins, marks, counts, strict=True):
        beyond = []
        end = mark
        for _ in range(count):
            distance, more = next(numbers), next(numbers)
            _check(distance > 0, "ranges of a frontier touch")
            beyond.append((end + distance, end + distance + more))
            end += distance + more + 1
        _check(end <= STEP_MAX + 1, f"a range is beyond {STEP_MAX}")
        frontier.append(Held(origin, mark, tuple(beyond)))
    return tuple(frontier)
