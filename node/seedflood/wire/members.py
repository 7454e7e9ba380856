"""Statements of members, and what a quorum of them has signed of a sum (`Warrant`)."""

import re

from seedflood.protocol.origin import NAME_PATTERN, STEP_MAX
from seedflood.protocol.seedflood.messages import Warrant
from seedflood.protocol.seedflood.warrant import WARRANT_MEMBERS_MAX, WARRANT_NEIGHBOURS_MAX
from seedflood.protocol.swarm.messages import ALGORITHM_BYTES_MAX, INCARNATION_MAX, NEIGHBOURS_MAX, Member
from seedflood.wire import flood_pb2 as pb
from seedflood.wire.columns import SIGNATURE_BYTES, check
from seedflood.wire.digests import DIGEST_BYTES, epoch_digests_from_wire, epoch_digests_to_wire

KEY_BYTES = 32

_NAME = re.compile(NAME_PATTERN)


def member_to_wire(member: Member) -> pb.Member:
    return pb.Member(
        public_key=member.public_key,
        name=member.name,
        incarnation=member.incarnation,
        version=member.version,
        neighbours=member.neighbours,
        first_step=member.first_step,
        last_step=member.last_step,
        signature=member.signature,
        hop_milliseconds=member.hop_milliseconds,
        algorithm=member.algorithm,
    )


def member_from_wire(wire: pb.Member) -> Member:
    check(len(wire.public_key) == KEY_BYTES, "a public key must be 32 bytes")
    check(_NAME.fullmatch(wire.name) is not None, "a name has characters or a length that names do not have", "name")
    check(wire.incarnation <= INCARNATION_MAX, f"an incarnation is beyond {INCARNATION_MAX}")
    check(len(wire.neighbours) <= NEIGHBOURS_MAX, f"more than {NEIGHBOURS_MAX} neighbours")
    check(wire.first_step <= STEP_MAX, f"first_step is beyond {STEP_MAX}")
    last_step = wire.last_step if wire.HasField("last_step") else None
    check(last_step is None or -1 <= last_step <= STEP_MAX, "last_step is out of range")
    check(len(wire.algorithm) <= ALGORITHM_BYTES_MAX, f"more than {ALGORITHM_BYTES_MAX} bytes of an algorithm")
    check(len(wire.signature) == SIGNATURE_BYTES, "a signature must be 64 bytes")
    return Member(
        wire.public_key,
        wire.name,
        wire.incarnation,
        wire.version,
        tuple(wire.neighbours),
        wire.first_step,
        last_step,
        wire.hop_milliseconds,
        wire.algorithm,
        wire.signature,
    )


def warrant_to_wire(warrant: Warrant) -> pb.Warrant:
    before, digests = b"".join(warrant.before), epoch_digests_to_wire(warrant.digests)
    return pb.Warrant(before=before, digests=digests, members=map(member_to_wire, warrant.members))


def warrant_from_wire(wire: pb.Warrant) -> Warrant:
    check(len(wire.before) in (0, 2 * DIGEST_BYTES), "the digests before an epoch must be 64 bytes, or none")
    check(len(wire.members) <= WARRANT_MEMBERS_MAX, f"a warrant of more than {WARRANT_MEMBERS_MAX} statements")
    neighbours = sum(len(member.neighbours) for member in wire.members)
    check(neighbours <= WARRANT_NEIGHBOURS_MAX, f"a warrant with {neighbours} neighbours")
    digests = epoch_digests_from_wire(wire.digests)
    check(digests != () and len(wire.members) > 0, "a warrant without digests or statements")
    before = wire.before[:DIGEST_BYTES], wire.before[DIGEST_BYTES:]
    return Warrant(before, digests, tuple(map(member_from_wire, wire.members)))
