"""Statements of members."""

import re
from dataclasses import fields

from seedflood.errors import check
from seedflood.protocol.origin import NAME_PATTERN, STEP_MAX
from seedflood.protocol.swarm.messages import ALGORITHM_BYTES_MAX, INCARNATION_MAX, NEIGHBOURS_MAX, Member
from seedflood.wire import flood_pb2 as pb

KEY_BYTES, SIGNATURE_BYTES = 32, 64

_NAME = re.compile(NAME_PATTERN)
_FIELDS = [one.name for one in fields(Member) if one.init]
"""They have the same names on the wire."""


def member_to_wire(member: Member) -> pb.Member:
    return pb.Member(**{name: getattr(member, name) for name in _FIELDS})


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
    fields = {name: getattr(wire, name) for name in _FIELDS}
    return Member(**fields | {"neighbours": tuple(wire.neighbours), "last_step": last_step})
