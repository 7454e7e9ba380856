"""The roster of a closed run: who belongs to it, signed by its operator.

The operator's public key and the run's name are part of the run id; the list is not, because it changes meanwhile.
So a roster is bound to operator and name. The one with the greater serial counts. If an operator has signed two with
one serial, all hosts choose the same one: the signed bytes with the smaller SHA-256.

Whoever was removed stays on the list, without a role. So a host that joins later knows the key that signed what the
removed one had published, and nobody mistakes it for a newcomer. Its entry may say which of its updates count (`Cut`).
An entry also says from which serial on, and until which, its host could train. So whoever has the newest roster knows
who could at any earlier one, which certificates go by.
"""

import hashlib
import re
import struct
from bisect import bisect_left
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Literal, Self

from seedflood.protocol.origin import NAME_PATTERN, STEP_MAX, OriginId, origin_id

Role = Literal["train", "relay", "read"]
"""train: may publish, relay and read. relay: may link and pass on what others say. read: may link, too; it says that
this host is there only to look."""

ROLES: tuple[Role, ...] = ("train", "relay", "read")

ENTRIES_MAX = 4096
"""The most entries, of hosts that were removed, too: half a mebibyte at most."""

SERIAL_MAX = STEP_MAX
SECONDS_MAX = 253_402_300_799
"""The last second of the year 9999."""

RUN_CHARACTERS_MAX = 64
KEY_BYTES, SIGNATURE_BYTES, CONTENT_BYTES = 32, 64, 32

HOLES_MAX = 1024
"""The most holes in all cuts of a roster together: 80 KB with their cuts, of which each has one."""

_NAME = re.compile(NAME_PATTERN)


@dataclass(frozen=True, slots=True)
class Cut:
    """Which updates of a removed host count: those of all steps but the holes, which count as skipped. Raises
    ValueError with a sentence if it cannot be used.

    holes: (first step, last step), in order. The last one ends with STEP_MAX, so nothing new is ever taken. since,
    content: 32 bytes, the digest of what the host had published from the step `since` on, as its algorithm takes it.
    """

    holes: tuple[tuple[int, int], ...]
    since: int
    content: bytes

    def __post_init__(self) -> None:
        edges = [-1, *(step for hole in self.holes for step in hole)]
        is_in_order = all(low < high for low, high in zip(edges[::2], edges[1::2], strict=False))
        if not is_in_order or any(first > last for first, last in self.holes) or edges[-1] != STEP_MAX:
            raise ValueError(f"the holes of a cut must follow each other, and the last one must end with {STEP_MAX}")
        if not 0 <= self.since <= STEP_MAX or len(self.content) != CONTENT_BYTES:
            raise ValueError("the digest of a cut, or the step where it begins, is out of range")

    @classmethod
    def keeping(cls, held: Iterable[tuple[int, int]], since: int, content: bytes) -> Self:
        """The cut that keeps these steps, given in order, and no others."""
        edges = [-1, *(step for span in held for step in span), STEP_MAX + 1]
        gaps = ((low + 1, high - 1) for low, high in zip(edges[::2], edges[1::2], strict=True))
        return cls(tuple((first, last) for first, last in gaps if first <= last), since, content)

    def excludes(self, first: int, last: int) -> bool:
        """Is one of these steps in a hole?"""
        place = bisect_left(self.holes, first, key=lambda hole: hole[1])
        return place < len(self.holes) and self.holes[place][0] <= last

    def packed(self) -> bytes:
        holes = b"".join(struct.pack(">QQ", *hole) for hole in self.holes)
        return struct.pack(">I", len(self.holes)) + holes + struct.pack(">Q", self.since) + self.content


@dataclass(frozen=True, slots=True)
class Entry:
    """One host. roles: none if it was removed. not_before, not_after: unix seconds, both included; None: no limit. cut:
    which updates of a removed host count, once the operator has decided it. trains_from, trains_until: the serials of
    the rosters that gave it the role to train, and that took it away. Raises ValueError with a sentence if it cannot be
    used."""

    name: str
    public_key: bytes
    roles: tuple[Role, ...] = ("train",)
    not_before: int | None = None
    not_after: int | None = None
    cut: Cut | None = None
    trains_from: int = 0
    trains_until: int | None = None

    def __post_init__(self) -> None:
        if _NAME.fullmatch(self.name) is None:
            raise ValueError(f'"{self.name[:80]}" is no name: letters, digits, ".", "_" and "-", 63 at most')
        if len(self.public_key) != KEY_BYTES:
            raise ValueError(f"the key of {self.name} has {len(self.public_key)} bytes and not {KEY_BYTES}")
        if (unknown := next((role for role in self.roles if role not in ROLES), None)) is not None:
            raise ValueError(f'"{unknown}" is no role ({self.name}); choose of {", ".join(ROLES)}')
        for moment in (self.not_before, self.not_after):
            if moment is not None and not 0 <= moment <= SECONDS_MAX:
                raise ValueError(f"a time of {self.name} is out of range")
        if self.not_before is not None and self.not_after is not None and self.not_before > self.not_after:
            raise ValueError(f"the entry of {self.name} ends before it begins")
        if not 0 <= self.trains_from <= SERIAL_MAX or not 0 <= (self.trains_until or 0) <= SERIAL_MAX:
            raise ValueError(f"a serial of {self.name} is out of range")
        if self.cut is not None and self.roles:
            raise ValueError(f"{self.name} is not removed, so nothing of it can be cut off")
        object.__setattr__(self, "roles", tuple(role for role in ROLES if role in self.roles))

    @property
    def origin(self) -> OriginId:
        return origin_id(self.public_key)

    @property
    def is_removed(self) -> bool:
        return not self.roles

    def is_valid(self, at: float) -> bool:
        """Does it count at this time, in unix seconds?"""
        has_begun = self.not_before is None or at >= self.not_before
        return bool(self.roles) and has_begun and (self.not_after is None or at < self.not_after + 1)

    def is_over(self, at: float) -> bool:
        """Was it removed, or is the time over in which it could train?"""
        return not self.roles or ("train" in self.roles and self.not_after is not None and at >= self.not_after + 1)

    def could_train_at(self, serial: int) -> bool:
        """Could it train by the roster with this serial?"""
        is_trainer = not self.roles or "train" in self.roles or self.trains_until is not None
        return is_trainer and self.trains_from <= serial and (self.trains_until is None or serial < self.trains_until)

    def following(self, known: "Entry | None", serial: int) -> "Entry":
        """The same in the roster with this serial, if `known` stood there before. Raises ValueError."""
        trains = "train" in self.roles
        if known is None or not (known.could_train_at(serial - 1) or known.trains_until is not None):
            return replace(self, trains_from=serial if trains else 0, trains_until=None if self.roles else 0)
        if trains and known.trains_until is not None:
            raise ValueError(f"{self.name} lost the role to train, and does not get it again: give the host a new key")
        until = known.trains_until if known.trains_until is not None or trains else serial
        return replace(self, trains_from=known.trains_from, trains_until=until)

    def packed(self, *, with_cut: bool, with_serials: bool) -> bytes:
        cut = (self.cut.packed() if self.cut is not None else bytes(4)) if with_cut else b""
        if with_serials:
            cut += struct.pack(">Qq", self.trains_from, -1 if self.trains_until is None else self.trains_until)
        name, bits = self.name.encode(), sum(1 << ROLES.index(role) for role in self.roles)
        times = (-1 if moment is None else moment for moment in (self.not_before, self.not_after))
        return struct.pack(">32sB", self.public_key, len(name)) + name + struct.pack(">Bqq", bits, *times) + cut


@dataclass(frozen=True, slots=True)
class Roster:
    """Everyone who belongs to a run. entries: sorted by name; no two have one name, one key or one origin id. Raises
    ValueError with a sentence if it cannot be used."""

    serial: int
    entries: tuple[Entry, ...] = ()
    signature: bytes = b""
    _by_origin: dict[OriginId, Entry] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not 1 <= self.serial <= SERIAL_MAX:
            raise ValueError(f"the serial {self.serial} is not between 1 and {SERIAL_MAX}")
        if len(self.entries) > ENTRIES_MAX:
            raise ValueError(f"{len(self.entries)} entries, more than {ENTRIES_MAX}")
        if sum(len(entry.cut.holes) for entry in self.entries if entry.cut is not None) > HOLES_MAX:
            raise ValueError(f"its cuts have more than {HOLES_MAX} holes")
        if len(self.signature) not in (0, SIGNATURE_BYTES):
            raise ValueError(f"a signature has {SIGNATURE_BYTES} bytes, and this one {len(self.signature)}")
        entries = tuple(sorted(self.entries, key=lambda entry: entry.name))
        for one, other in pairwise(entries):
            if one.name == other.name:
                raise ValueError(f"two entries have the name {one.name}")
        by_origin: dict[OriginId, Entry] = {}
        for entry in entries:
            if (other := by_origin.setdefault(entry.origin, entry)) is not entry:
                raise ValueError(f"{other.name} and {entry.name} have one key, or keys with the same origin id")
        object.__setattr__(self, "entries", entries)
        object.__setattr__(self, "_by_origin", by_origin)

    def __len__(self) -> int:
        return len(self.entries)

    def get(self, origin: OriginId) -> Entry | None:
        """The entry of an origin, be it valid, removed or out of date."""
        return self._by_origin.get(origin)

    def of_key(self, public_key: bytes) -> Entry | None:
        """The same by its key. Another key with the same origin id finds nothing."""
        entry = self._by_origin.get(origin_id(public_key))
        return entry if entry is not None and entry.public_key == public_key else None

    def named(self, name: str) -> Entry | None:
        return next((entry for entry in self.entries if entry.name == name), None)

    @property
    def changed_at(self) -> int:
        """The serial of the roster that last changed who may train."""
        return max((max(one.trains_from, one.trains_until or 0) for one in self.entries), default=0)

    def voters(self, since: int, until: int) -> list[frozenset[OriginId]]:
        """Who could train by each of the rosters with these serials, both included; those that say the same once."""
        changes = {serial for one in self.entries for serial in (one.trains_from, one.trains_until or 0)}
        serials = sorted({since, *(serial for serial in changes if since < serial <= until)})
        return [frozenset(one.origin for one in self.entries if one.could_train_at(serial)) for serial in serials]

    def full_at(self, clients: int) -> int | None:
        """The first serial at which so many hosts could train; None: there was none."""
        serials = sorted({0, *(one.trains_from for one in self.entries)})
        return next((serial for serial in serials if len(self.voters(serial, serial)[0]) >= clients), None)

    def signed_bytes(self, operator: bytes, run: str) -> bytes:
        """What the operator signs. operator: its public key, 32 bytes."""
        domain = struct.pack(">32sH", operator, len(run.encode())) + run.encode()
        head = struct.pack(">QI", self.serial, len(self.entries))
        has_serials = any(entry.trains_from or entry.trains_until is not None for entry in self.entries)
        has_cuts = has_serials or any(entry.cut is not None for entry in self.entries)
        entries = b"".join(entry.packed(with_cut=has_cuts, with_serials=has_serials) for entry in self.entries)
        return b"seedflood roster %d\0" % (1 + has_cuts + has_serials) + domain + head + entries

    def is_signed(self, operator: bytes, run: str, verify: Callable[[bytes, bytes, bytes], bool]) -> bool:
        return verify(operator, self.signed_bytes(operator, run), self.signature)

    def signed(self, sign: Callable[[bytes], bytes], operator: bytes, run: str) -> Self:
        """The same with a signature. sign: by the operator's private key."""
        return replace(self, signature=sign(self.signed_bytes(operator, run)))

    def replaces(self, other: "Roster | None", operator: bytes, run: str) -> bool:
        """Does it count where the other one is known? Both are signed. Of two with one serial all hosts choose the
        same."""
        if other is None or self.serial != other.serial:
            return other is None or self.serial > other.serial
        ours, theirs = (hashlib.sha256(one.signed_bytes(operator, run)).digest() for one in (self, other))
        return ours < theirs

    def contradicts(self, other: "Roster | None") -> bool:
        """Does it have the serial of the other one, and say something else?"""
        return other is not None and self.serial == other.serial and self.entries != other.entries

    # The next edition, to be signed

    def adding(self, *entries: Entry) -> "Roster":
        """With these hosts. The same name and key with other roles or times replaces what stood there before. Raises
        ValueError if a key belongs to another host; who was removed, or may no longer train, does not return."""
        for entry in entries:
            known = self.get(entry.origin)
            if known is not None and (known.is_removed or known.name != entry.name):
                fate = "was removed, and does not return: give the host a new key" if known.is_removed else "is on it"
                raise ValueError(f"the key of {entry.name} is that of {known.name}, which {fate}")
        anew = {entry.origin for entry in entries}
        new = (entry.following(self.get(entry.origin), self.serial + 1) for entry in entries)
        return Roster(self.serial + 1, (*(one for one in self.entries if one.origin not in anew), *new))

    def removing(self, names: Iterable[str]) -> "Roster":
        """Without these hosts: their entries stay, without a role. Raises ValueError if one is not on it."""
        gone = set(names)
        for name in sorted(gone):
            if (entry := self.named(name)) is None or entry.is_removed:
                raise ValueError(f"{name} is not on the roster" if entry is None else f"{name} was removed already")
        serial = self.serial + 1
        entries = (replace(e, roles=()).following(e, serial) if e.name in gone else e for e in self.entries)
        return Roster(serial, tuple(entries))

    def cutting(self, name: str, cut: Cut) -> "Roster":
        """With a cut of a removed host, which is final. Raises ValueError if the host is not removed, or was cut off
        already."""
        entry = self.named(name)
        if entry is None or not entry.is_removed:
            raise ValueError(f"{name} is not on the roster" if entry is None else f"{name} is not removed yet")
        if entry.cut is not None:
            raise ValueError(f"{name} was cut off already, and a cut is final")
        return Roster(self.serial + 1, tuple(replace(one, cut=cut) if one is entry else one for one in self.entries))
