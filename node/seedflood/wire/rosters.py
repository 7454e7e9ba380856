"""Rosters. What is decoded has the shape and the bounds of `protocol.swarm.roster`; its signature is
verified by the core, which knows the operator."""

from collections.abc import Iterator

from seedflood.errors import PeerError, check
from seedflood.protocol.swarm.roster import ENTRIES_MAX, ROLES, SERIAL_MAX, SIGNATURE_BYTES, Cut, Entry, Role, Roster
from seedflood.wire import flood_pb2 as pb


def roster_to_wire(roster: Roster) -> pb.Roster:
    entries = [
        pb.RosterEntry(
            public_key=entry.public_key,
            name=entry.name,
            roles=sum(1 << ROLES.index(role) for role in entry.roles),
            not_before=entry.not_before,
            not_after=entry.not_after,
            cut=_cut_to_wire(entry.cut) if entry.cut is not None else None,
            trains_from=entry.trains_from,
            trains_until=entry.trains_until,
        )
        for entry in roster.entries
    ]
    return pb.Roster(serial=roster.serial, entries=entries, signature=roster.signature)


def roster_from_wire(wire: pb.Roster) -> Roster:
    """Raises PeerError."""
    check(len(wire.entries) <= ENTRIES_MAX, f"a roster of more than {ENTRIES_MAX} entries")
    check(1 <= wire.serial <= SERIAL_MAX, "the serial of a roster is out of range")
    check(len(wire.signature) == SIGNATURE_BYTES, "the signature of a roster must be 64 bytes")
    try:
        return Roster(wire.serial, tuple(map(_entry_from_wire, wire.entries)), wire.signature)
    except ValueError:  # its sentence may quote what a stranger wrote
        raise PeerError("a roster with entries that cannot be used", reason="limit") from None


def _entry_from_wire(wire: pb.RosterEntry) -> Entry:
    """Raises ValueError."""
    if wire.roles >= 1 << len(ROLES):
        raise ValueError("unknown roles")
    not_before = wire.not_before if wire.HasField("not_before") else None
    not_after = wire.not_after if wire.HasField("not_after") else None
    cut = _cut_from_wire(wire.cut) if wire.HasField("cut") else None
    until = wire.trains_until if wire.HasField("trains_until") else None
    roles = tuple(_roles(wire.roles))
    return Entry(wire.name, wire.public_key, roles, not_before, not_after, cut, wire.trains_from, until)


def _cut_to_wire(cut: Cut) -> pb.Cut:
    return pb.Cut(holes=[step for hole in cut.holes for step in hole], since=cut.since, content=cut.content)


def _cut_from_wire(wire: pb.Cut) -> Cut:
    """Raises ValueError."""
    holes = wire.holes
    return Cut(tuple(zip(holes[::2], holes[1::2], strict=True)), wire.since, wire.content)


def _roles(bits: int) -> Iterator[Role]:
    return (role for k, role in enumerate(ROLES) if bits >> k & 1)
