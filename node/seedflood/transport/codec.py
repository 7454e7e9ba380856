"""Messages to frames and back. Every byte that the network brings is checked here, once.

What `decode` returns has the shapes and ranges that messages.py promises, so no layer above checks them again. For all
other bytes, whatever they are, it raises PeerError. It does not verify signatures: that needs the known members, which
the core has. Frames of an unknown kind come from a newer peer; they are skipped, not refused.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from google.protobuf.message import DecodeError

from seedflood.errors import PeerError, check
from seedflood.protocol.frontier import Held
from seedflood.protocol.origin import STEP_MAX
from seedflood.protocol.seedflood.bundles import Bundle, Updates, cut_bundles, join_bundles, read_bundles
from seedflood.protocol.seedflood.messages import (
    BlockDigests,
    ClosedEpoch,
    Equivocation,
    FrontierDigest,
    ReplicaDigest,
    Standing,
    Vote,
    Votes,
    pack_votes,
    read_votes,
)
from seedflood.protocol.swarm.messages import (
    FORM_BYTES_MAX,
    OPAQUE_BYTES_MAX,
    Goodbye,
    Hello,
    Member,
    Members,
    Message,
    Opaque,
    Ping,
    Pong,
)
from seedflood.protocol.swarm.roster import SECONDS_MAX, Roster
from seedflood.transport.texts import plain
from seedflood.wire import flood_pb2 as pb
from seedflood.wire.columns import exact_frontier_to_wire, frontier_from_wire, frontier_to_wire
from seedflood.wire.digests import block_digests_from_wire, block_digests_to_wire
from seedflood.wire.members import member_from_wire, member_to_wire
from seedflood.wire.rosters import roster_from_wire, roster_to_wire

FRAME_BYTES_MAX = 4 << 20
"""The most bytes of a frame: gRPC's default limit. Larger messages are split."""

HELLO_BYTES_MAX = 3 << 19
"""The most bytes of a first frame, which comes from a stranger: the largest frontier (560 KB), statements (256 KB) and
roster (500 KB)."""

FRAME_BUNDLES_MAX = 4096
"""The most bundles in a frame: 1.8 MiB with 64 updates in each."""

FRAME_PAYLOADS_BYTES_MAX = 1 << 20
"""The most bytes of bundles with payloads in a frame that we make. Queues and answers make smaller ones."""

FRAME_MEMBERS_MAX = 256
"""The most statements in a frame. Verifying them takes 20 ms; then other tasks of the loop run."""

MEMBERS_BYTES_MAX = 256 << 10
"""About how large a frame of statements may be before the next one is begun."""

FRAME_VOTES = 256
"""How many votes a frame has at most when it is sent: 35 KB."""

USUAL_NEIGHBOURS_MAX, USUAL_MEMBER_BYTES_MAX, USUAL_MEMBERS_MAX = 16, 512, 4096
"""Statements with so many neighbours, or bytes, are remembered as they were read and spelled last: so many of them,
together some megabytes."""

DIGEST_BYTES = 32
EPOCH_PART_BYTES_MAX = 1 << 20
REASON_CHARACTERS_MAX = 256
BASE_DIGEST_BYTES_MAX = 64


@dataclass(frozen=True, slots=True)
class Pull:
    """Asks for everything that the frontier lacks. id: counts the asker's pulls on this link, from 1."""

    id: int
    frontier: tuple[Held, ...]


@dataclass(frozen=True, slots=True)
class PullEnd:
    """The end of an answer. is_complete: everything was sent; else the donor could not go on."""

    id: int
    is_complete: bool


@dataclass(frozen=True, slots=True)
class PullMore:
    """Acknowledges one part of the answer: one more may be sent."""

    id: int


@dataclass(frozen=True, slots=True)
class EpochPart:
    """A piece of a `ClosedEpoch`. frontier, certificate: only in the first piece. data: a piece of its
    coefficients."""

    epoch: int
    frontier: tuple[Held, ...] | None
    data: bytes
    is_last: bool
    certificate: tuple[Vote, ...] = ()


@dataclass(frozen=True, slots=True)
class Seen:
    """How the sender sees us (`reach`). address: host:port, port 0 if we listen nowhere."""

    address: str
    is_reachable: bool


AnswerPart = Updates | Members | Equivocation | EpochPart | Standing | Opaque

ANSWER_ONLY: tuple[type, ...] = (EpochPart, Standing)
"""Messages that may come only in an answer."""


@dataclass(frozen=True, slots=True)
class PullPart:
    """A part of the answer to a pull."""

    id: int
    message: AnswerPart


LinkMessage = Message | Pull | PullEnd | PullMore | PullPart | EpochPart | Seen
"""What travels on a link: the core's messages and the transport's own."""


class FrameEncoder:
    """Encodes messages, and remembers the last one: flooding gives one batch to several links, one after the other."""

    def __init__(self) -> None:
        self._message: LinkMessage | None = None
        self._frames: list[bytes] = []

    def encode(self, message: LinkMessage) -> list[bytes]:
        if message is not self._message:
            self._message, self._frames = message, encode(message)
        return self._frames


def encode(message: LinkMessage) -> list[bytes]:
    """A message as serialized frames, each within the limits. Only long lists of bundles or statements take several."""
    return [frame.SerializeToString() for frame in _to_wire(message)]


def decode(data: bytes, run_id: bytes = b"") -> LinkMessage | None:
    """The message of a frame; None if its kind is unknown. Raises PeerError.

    run_id: ours. Of a hello of another run nothing is read that may be long: statements, frontier, roster, form."""
    if len(data) > FRAME_BYTES_MAX:
        raise PeerError(f"a frame of {len(data)} bytes, more than {FRAME_BYTES_MAX}", reason="oversize")
    try:
        frame = pb.Frame.FromString(data)
    except DecodeError:
        raise PeerError(f"{len(data)} bytes that are no frame", reason="frame") from None
    message = _from_wire(frame, run_id)
    if frame.answers and isinstance(message, AnswerPart):
        return PullPart(frame.answers, message)
    return message


def _to_wire(message: LinkMessage) -> list[pb.Frame]:
    match message:
        case PullPart():
            frames = _to_wire(message.message)
            for frame in frames:
                frame.answers = message.id
            return frames
        case Updates(bundles):
            parts = cut_bundles(bundles, FRAME_BUNDLES_MAX, FRAME_PAYLOADS_BYTES_MAX)
            return [pb.Frame(updates=_updates_to_wire(part)) for part in parts]
        case Members():
            return [pb.Frame(members=chunk) for chunk in _chunks_of_members(message.members)]
        case Hello():
            return _hello_to_wire(message)
        case Roster():
            return [pb.Frame(roster=roster_to_wire(message))]
        case FrontierDigest():
            digest = pb.FrontierDigest(
                frontier_digest=message.frontier_digest,
                before=message.before,
                is_complete=message.is_complete,
                members_digest=message.members_digest,
            )
            return [pb.Frame(frontier_digest=digest)]
        case ReplicaDigest(frontier_digest, replica_digest):
            wire = pb.ReplicaDigest(frontier_digest=frontier_digest, replica_digest=replica_digest)
            return [pb.Frame(replica_digest=wire)]
        case Standing(frontier, replica_digest):
            exact = exact_frontier_to_wire(frontier)
            return [pb.Frame(standing=pb.Standing(frontier=exact, replica_digest=replica_digest))]
        case Votes(votes):
            chunks = (votes[k : k + FRAME_VOTES] for k in range(0, len(votes), FRAME_VOTES))
            return [pb.Frame(votes=pack_votes(chunk)) for chunk in chunks]
        case BlockDigests(blocks):
            return [pb.Frame(block_digests=block_digests_to_wire(blocks))]
        case Equivocation(one, other):
            return [pb.Frame(equivocation=pb.Equivocation(origin=one.origin, bundles=join_bundles((one, other))))]
        case EpochPart():
            return [pb.Frame(epoch_part=_epoch_part_to_wire(message))]
        case Opaque(data):
            assert 0 < len(data) <= OPAQUE_BYTES_MAX, f"a message of {len(data)} bytes of an algorithm"
            return [pb.Frame(algorithm=data)]
        case ClosedEpoch():
            raise AssertionError("a closed epoch is told in parts: see answer.py")
        case Ping(sent_at):
            return [pb.Frame(ping=pb.Ping(sent_at=sent_at))]
        case Pong(sent_at):
            return [pb.Frame(pong=pb.Pong(sent_at=sent_at))]
        case Goodbye(reason):
            return [pb.Frame(goodbye=pb.Goodbye(reason=reason[:REASON_CHARACTERS_MAX]))]
        case Pull():
            return [pb.Frame(pull=pb.Pull(id=message.id, frontier=frontier_to_wire(message.frontier)))]
        case PullEnd():
            return [pb.Frame(pull_end=pb.PullEnd(id=message.id, is_complete=message.is_complete))]
        case PullMore():
            return [pb.Frame(pull_more=pb.PullMore(id=message.id))]
        case Seen(address, is_reachable):
            return [pb.Frame(seen=pb.Seen(address=address, is_reachable=is_reachable))]
        case _:
            raise AssertionError(f"{type(message).__name__} has no frame")


def _from_wire(frame: pb.Frame, run_id: bytes) -> LinkMessage | None:
    match frame.WhichOneof("kind"):
        case "updates":
            return _updates_from_wire(frame.updates)
        case "members":
            return Members(_members_from_wire(frame.members.members))
        case "hello":
            return _hello_from_wire(frame.hello, run_id)
        case "roster":
            return roster_from_wire(frame.roster)
        case "frontier_digest":
            return _frontier_digest_from_wire(frame.frontier_digest)
        case "replica_digest":
            check(len(frame.replica_digest.frontier_digest) == DIGEST_BYTES, "frontier_digest must be 32 bytes")
            check(len(frame.replica_digest.replica_digest) == DIGEST_BYTES, "replica_digest must be 32 bytes")
            return ReplicaDigest(frame.replica_digest.frontier_digest, frame.replica_digest.replica_digest)
        case "standing":
            check(len(frame.standing.replica_digest) == DIGEST_BYTES, "replica_digest must be 32 bytes")
            return Standing(frontier_from_wire(frame.standing.frontier), frame.standing.replica_digest)
        case "votes":
            return Votes(read_votes(frame.votes))
        case "block_digests":
            return block_digests_from_wire(frame.block_digests)
        case "equivocation":
            return _equivocation_from_wire(frame.equivocation)
        case "epoch_part":
            return _epoch_part_from_wire(frame.epoch_part)
        case "algorithm":
            check(frame.algorithm != b"", "an empty message of an algorithm")
            check(len(frame.algorithm) <= OPAQUE_BYTES_MAX, f"a message of more than {OPAQUE_BYTES_MAX} bytes")
            return Opaque(frame.algorithm)
        case "ping":
            check(math.isfinite(frame.ping.sent_at), "sent_at is not finite")
            return Ping(frame.ping.sent_at)
        case "pong":
            check(math.isfinite(frame.pong.sent_at), "sent_at is not finite")
            return Pong(frame.pong.sent_at)
        case "goodbye":
            return Goodbye(plain(frame.goodbye.reason, REASON_CHARACTERS_MAX))
        case "pull":
            return Pull(frame.pull.id, frontier_from_wire(frame.pull.frontier))
        case "pull_end":
            return PullEnd(frame.pull_end.id, frame.pull_end.is_complete)
        case "pull_more":
            return PullMore(frame.pull_more.id)
        case "seen":
            return Seen(plain(frame.seen.address, REASON_CHARACTERS_MAX), frame.seen.is_reachable)
        case _:
            return None


def _updates_to_wire(bundles: Sequence[Bundle]) -> pb.Updates:
    return pb.Updates(origins=[bundle.origin for bundle in bundles], bundles=join_bundles(bundles))


def _updates_from_wire(wire: pb.Updates) -> Updates:
    n = len(wire.origins)
    check(n <= FRAME_BUNDLES_MAX, f"{n} bundles in a frame, more than {FRAME_BUNDLES_MAX}")
    return Updates(tuple(read_bundles(wire.origins[:], wire.bundles)))


def _equivocation_from_wire(wire: pb.Equivocation) -> Equivocation:
    one, other = read_bundles((wire.origin, wire.origin), wire.bundles)
    check(one.contradicts(other), "no contradiction")
    return Equivocation(one, other)


def _frontier_digest_from_wire(wire: pb.FrontierDigest) -> FrontierDigest:
    check(len(wire.frontier_digest) in (0, DIGEST_BYTES), "frontier_digest must be 32 bytes, or none")
    check(len(wire.members_digest) <= DIGEST_BYTES, "members_digest is too long")
    check(wire.before <= STEP_MAX, f"before is beyond {STEP_MAX}")
    return FrontierDigest(wire.frontier_digest, wire.before, wire.is_complete, wire.members_digest)


def _epoch_part_to_wire(part: EpochPart) -> pb.EpochPart:
    frontier = None if part.frontier is None else exact_frontier_to_wire(part.frontier)
    votes = pack_votes(part.certificate)
    return pb.EpochPart(epoch=part.epoch, frontier=frontier, data=part.data, is_last=part.is_last, certificate=votes)


def _epoch_part_from_wire(wire: pb.EpochPart) -> EpochPart:
    check(wire.epoch <= STEP_MAX, f"an epoch is beyond {STEP_MAX}")
    check(len(wire.data) <= EPOCH_PART_BYTES_MAX, f"more than {EPOCH_PART_BYTES_MAX} bytes in a part of an epoch")
    frontier = frontier_from_wire(wire.frontier) if wire.HasField("frontier") else None
    return EpochPart(wire.epoch, frontier, wire.data, wire.is_last, read_votes(wire.certificate))


def _members_from_wire(wire: Sequence[pb.Member]) -> tuple[Member, ...]:
    check(len(wire) <= FRAME_MEMBERS_MAX, f"{len(wire)} statements in a frame, more than {FRAME_MEMBERS_MAX}")
    neighbours = sum(len(member.neighbours) for member in wire)
    check(8 * neighbours <= MEMBERS_BYTES_MAX, f"statements with {neighbours} neighbours in a frame")
    return tuple(map(_member_from_wire, wire))


def _member_from_wire(wire: pb.Member) -> Member:
    """In a large swarm each neighbour sends the same statements. So the usual ones are read once."""
    data = wire.SerializeToString()
    return _usual_member(data) if len(data) <= USUAL_MEMBER_BYTES_MAX else member_from_wire(wire)


@lru_cache(USUAL_MEMBERS_MAX)
def _usual_member(data: bytes) -> Member:
    return member_from_wire(pb.Member.FromString(data))


def _chunks_of_members(members: Iterable[Member]) -> list[pb.Members]:
    chunks: list[list[bytes]] = []
    room = 0
    for member in members:
        data = (_usual_bytes if len(member.neighbours) <= USUAL_NEIGHBOURS_MAX else _member_bytes)(member)
        if len(data) > room or len(chunks[-1]) == FRAME_MEMBERS_MAX:
            chunks.append([])
            room = MEMBERS_BYTES_MAX
        chunks[-1].append(data)
        room -= len(data)
    return [pb.Members.FromString(b"".join(chunk)) for chunk in chunks]


def _member_bytes(member: Member) -> bytes:
    """A message with this statement alone. Behind each other these are one with all of them."""
    return pb.Members(members=[member_to_wire(member)]).SerializeToString()


_usual_bytes = lru_cache(USUAL_MEMBERS_MAX)(_member_bytes)


def _hello_to_wire(hello: Hello) -> list[pb.Frame]:
    first, *rest = _chunks_of_members(hello.members) or [pb.Members()]
    wire = pb.Hello(
        protocol_version=hello.protocol_version,
        run_id=hello.run_id,
        base_digest=hello.base_digest,
        member=member_to_wire(hello.member),
        members=first.members,
        frontier=frontier_to_wire(hello.frontier),
        roster=roster_to_wire(hello.roster) if hello.roster is not None else None,
        form=hello.form,
        clock=hello.clock,
    )
    return [pb.Frame(hello=wire), *(pb.Frame(members=chunk) for chunk in rest)]


def _hello_from_wire(wire: pb.Hello, run_id: bytes) -> Hello:
    check(len(wire.run_id) == 32, "run_id must be 32 bytes")
    check(len(wire.base_digest) <= BASE_DIGEST_BYTES_MAX, "base_digest is too long")
    member = member_from_wire(wire.member)
    if run_id not in (b"", wire.run_id):
        return Hello(wire.run_id, wire.base_digest, member, protocol_version=wire.protocol_version)
    check(len(wire.form) <= FORM_BYTES_MAX, "form is too long")
    return Hello(
        wire.run_id,
        wire.base_digest,
        member,
        _members_from_wire(wire.members),
        frontier_from_wire(wire.frontier),
        wire.protocol_version,
        roster_from_wire(wire.roster) if wire.HasField("roster") else None,
        wire.form,
        min(wire.clock, SECONDS_MAX),
    )
