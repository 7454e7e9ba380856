"""The roster of a closed run: the hosts that belong to it, signed by its operator.

The operator's public key and the run's name are part of the run id. The list is not, because it changes during the run.
So a roster is bound to operator and name. The one with the greater serial counts. If an operator has signed two with
one serial, all hosts choose the same one: the signed bytes with the smaller SHA-256.

A host that was removed stays on the list, without a role. So a host that joins later knows the key that signed the
updates of the removed one, and nobody mistakes that for a newcomer. Its entry may say which of its updates count
(`Cut`). An entry also says from which serial on, and until which, its host could train. So a host with the newest
roster also knows which hosts could train by any earlier one. Certificates depend on that.
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
"""train: may publish, relay and read. relay: may link, and pass on messages of others. read: may link, too; it says
that this host is there only to look."""

ROLES: tuple[Role, ...] = ("train", "relay", "read")

ENTRIES_MAX = 4096
"""The most entries, those of removed hosts included: half a mebibyte at most."""

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
    """Which updates of a removed host count: those of all steps except the holes, which count as skipped. Raises
    ValueError with a sentence if it cannot be used."""

    holes: tuple[tuple[int, int], ...]
    """(first step, last step), in order. The last one ends with STEP_MAX, so nothing new is ever taken."""
    since: int
    content: bytes
    """32 bytes: the digest of what the host had published from the step `since` on, as its algorithm takes it."""

    def __post_init__(self) -> None:
        before = -1
        is_in_order = True
        for first, last in self.holes:
            is_in_order = is_in_order and before < first <= last
            before = last
        if not is_in_order or before != STEP_MAX:
            raise ValueError(f"the holes of a cut must follow each other, and the last one must end with {STEP_MAX}")
        if not 0 <= self.since <= STEP_MAX or len(self.content) != CONTENT_BYTES:
            raise ValueError("the digest of a cut, or the step where it begins, is out of range")

    @classmethod
    def keeping(cls, held: Iterable[tuple[int, int]], since: int, content: bytes) -> Self:
        """The cut that keeps these steps, given in order, and no others."""
        holes = []
        begin = 0
        for first, last in held:
            if begin < first:
                holes.append((begin, first - 1))
            begin = last + 1
        if begin <= STEP_MAX:
            holes.append((begin, STEP_MAX))
        return cls(tuple(holes), since, content)

    def excludes(self, first: int, last: int) -> bool:
        """Is one of these steps in a hole?"""
        place = bisect_left(self.holes, first, key=lambda hole: hole[1])
        if place == len(self.holes):
            return False
        begin, _ = self.holes[place]
        return begin <= last

    def packed(self) -> bytes:
        holes = b"".join(struct.pack(">QQ", *hole) for hole in self.holes)
        return struct.pack(">I", len(self.holes)) + holes + struct.pack(">Q", self.since) + self.content


@dataclass(frozen=True, slots=True)
class Entry:
    """One host. Raises ValueError with a sentence if it cannot be used."""

    name: str
    public_key: bytes
    roles: tuple[Role, ...] = ("train",)
    """Empty if the host was removed."""
    not_before: int | None = None
    not_after: int | None = None
    """Unix seconds, both included; None: no limit."""
    cut: Cut | None = None
    """Which updates of a removed host count, once the operator has decided it."""
    trains_from: int = 0
    trains_until: int | None = None
    """The serials of the rosters that gave the host the role to train, and that took it away. 0 and 0: it never had
    it, and is removed."""

    def __post_init__(self) -> None:
        if _NAME.fullmatch(self.name) is None:
            raise ValueError(f'"{self.name[:80]}" is no name: letters, digits, ".", "_" and "-", 63 at most')
        if len(self.public_key) != KEY_BYTES:
            raise ValueError(f"the key of {self.name} has {len(self.public_key)} bytes and not {KEY_BYTES}")
        unknown = [role for role in self.roles if role not in ROLES]
        if unknown:
            raise ValueError(f'"{unknown[0]}" is no role ({self.name}); choose of {", ".join(ROLES)}')
        for moment in (self.not_before, self.not_after):
            if moment is not None and not 0 <= moment <= SECONDS_MAX:
                raise ValueError(f"a time of {self.name} is out of range")
        if self.not_before is not None and self.not_after is not None and self.not_before > self.not_after:
            raise ValueError(f"the entry of {self.name} ends before it begins")
        for serial in (self.trains_from, self.trains_until):
            if serial is not None and not 0 <= serial <= SERIAL_MAX:
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
        if self.is_removed:
            return False
        has_begun = self.not_before is None or at >= self.not_before
        has_ended = self.not_after is not None and at >= self.not_after + 1
        return has_begun and not has_ended

    def is_over(self, at: float) -> bool:
        """Was it removed, or is the time over in which it could train?"""
        if self.is_removed:
            return True
        return "train" in self.roles and self.not_after is not None and at >= self.not_after + 1

    def could_train_at(self, serial: int) -> bool:
        """Could it train by the roster with this serial?"""
        may_have_trained = self.is_removed or "train" in self.roles or self.trains_until is not None
        if not may_have_trained or serial < self.trains_from:
            return False
        return self.trains_until is None or serial < self.trains_until

    def following(self, known: "Entry | None", serial: int) -> "Entry":
        """This entry as the roster with this serial has it, if the roster before has `known` of its host. Raises
        ValueError."""
        trains = "train" in self.roles
        had_the_role = known is not None and (known.trains_until is not None or known.could_train_at(serial - 1))
        if known is None or not had_the_role:
            return replace(self, trains_from=serial if trains else 0, trains_until=None if self.roles else 0)
        if trains and known.trains_until is not None:
            raise ValueError(f"{self.name} lost the role to train, and does not get it again: give the host a new key")
        is_losing_role = known.trains_until is None and not trains
        until = serial if is_losing_role else known.trains_until
        return replace(self, trains_from=known.trains_from, trains_until=until)

    def packed(self, *, with_cut: bool, with_serials: bool) -> bytes:
        """What the operator signs of this entry. -1 stands for no time and for no serial, four zero bytes for no
        cut."""
        name = self.name.encode()
        role_bits = sum(1 << ROLES.index(role) for role in self.roles)
        times = [-1 if moment is None else moment for moment in (self.not_before, self.not_after)]
        parts = [
            struct.pack(">32sB", self.public_key, len(name)),
            name,
            struct.pack(">Bqq", role_bits, *times),
        ]
        if with_cut:
            parts.append(self.cut.packed() if self.cut is not None else bytes(4))
        if with_serials:
            until = -1 if self.trains_until is None else self.trains_until
            parts.append(struct.pack(">Qq", self.trains_from, until))
        return b"".join(parts)


@dataclass(frozen=True, slots=True)
class Roster:
    """All hosts that belong to a run. Raises ValueError with a sentence if it cannot be used."""

    serial: int
    entries: tuple[Entry, ...] = ()
    """Sorted by name. No two have one name, one key or one origin id."""
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
            other = by_origin.setdefault(entry.origin, entry)
            if other is not entry:
                raise ValueError(f"{other.name} and {entry.name} have one key, or keys with the same origin id")
        object.__setattr__(self, "entries", entries)
        object.__setattr__(self, "_by_origin", by_origin)

    def __len__(self) -> int:
        return len(self.entries)

    def get(self, origin: OriginId) -> Entry | None:
        """The entry of an origin, be it valid, removed or out of date."""
        return self._by_origin.get(origin)

    def of_key(self, public_key: bytes) -> Entry | None:
        """The entry of a key. Another key with the same origin id finds nothing."""
        entry = self._by_origin.get(origin_id(public_key))
        if entry is None or entry.public_key != public_key:
            return None
        return entry

    def named(self, name: str) -> Entry | None:
        return next((entry for entry in self.entries if entry.name == name), None)

    @property
    def changed_at(self) -> int:
        """The serial of the roster that last changed which hosts may train."""
        return max(self._changes(), default=0)

    def _changes(self) -> set[int]:
        """The serials of the rosters that changed which hosts may train. 0 may be among them; no roster has it."""
        changes = set()
        for entry in self.entries:
            changes.add(entry.trains_from)
            changes.add(entry.trains_until or 0)
        return changes

    def voters(self, since: int, until: int) -> list[frozenset[OriginId]]:
        """The hosts that could train by each of the rosters with these serials, both included. Rosters between which
        nothing changed are there once."""
        serials = {since}
        serials |= {serial for serial in self._changes() if since < serial <= until}
        return [self._voters_at(serial) for serial in sorted(serials)]

    def _voters_at(self, serial: int) -> frozenset[OriginId]:
        return frozenset(entry.origin for entry in self.entries if entry.could_train_at(serial))

    def full_at(self, clients: int) -> int | None:
        """The first serial at which so many hosts could train; None: there was none."""
        for serial in sorted({0, *(entry.trains_from for entry in self.entries)}):
            if len(self._voters_at(serial)) >= clients:
                return serial
        return None

    def signed_bytes(self, operator: bytes, run: str) -> bytes:
        """What the operator signs. operator: its public key, 32 bytes."""
        has_serials = any(entry.trains_from or entry.trains_until is not None for entry in self.entries)
        has_cuts = has_serials or any(entry.cut is not None for entry in self.entries)
        # Older rosters have no serials, or no cuts either. They are still signed in the form without these.
        form = b"seedflood roster %d\0" % (1 + has_cuts + has_serials)
        domain = struct.pack(">32sH", operator, len(run.encode())) + run.encode()
        head = struct.pack(">QI", self.serial, len(self.entries))
        entries = [entry.packed(with_cut=has_cuts, with_serials=has_serials) for entry in self.entries]
        return form + domain + head + b"".join(entries)

    def is_signed(self, operator: bytes, run: str, verify: Callable[[bytes, bytes, bytes], bool]) -> bool:
        return verify(operator, self.signed_bytes(operator, run), self.signature)

    def signed(self, sign: Callable[[bytes], bytes], operator: bytes, run: str) -> Self:
        """The same with a signature. sign: by the operator's private key."""
        return replace(self, signature=sign(self.signed_bytes(operator, run)))

    def replaces(self, other: "Roster | None", operator: bytes, run: str) -> bool:
        """Does it count where the other one is known? Both are signed. Of two with one serial all hosts choose the
        same."""
        if other is None:
            return True
        if self.serial != other.serial:
            return self.serial > other.serial
        ours = hashlib.sha256(self.signed_bytes(operator, run)).digest()
        theirs = hashlib.sha256(other.signed_bytes(operator, run)).digest()
        return ours < theirs

    def contradicts(self, other: "Roster | None") -> bool:
        """Does it have the serial of the other one, and say something else?"""
        return other is not None and self.serial == other.serial and self.entries != other.entries

    # The next edition, to be signed

    def adding(self, *entries: Entry) -> "Roster":
        """With these hosts. An entry with the same name and key, and other roles or times, replaces the one before.
        Raises ValueError if a key belongs to another host, to one that was removed, or to one that may no longer
        train and would train again."""
        for entry in entries:
            known = self.get(entry.origin)
            if known is None:
                continue
            whose = f"the key of {entry.name} is that of {known.name}"
            if known.is_removed:
                raise ValueError(f"{whose}, which was removed, and does not return: give the host a new key")
            if known.name != entry.name:
                raise ValueError(f"{whose}, which is on it")
        serial = self.serial + 1
        replaced = {entry.origin for entry in entries}
        kept = [entry for entry in self.entries if entry.origin not in replaced]
        new = [entry.following(self.get(entry.origin), serial) for entry in entries]
        return Roster(serial, (*kept, *new))

    def removing(self, names: Iterable[str]) -> "Roster":
        """Without these hosts: their entries stay, without a role. Raises ValueError if one is not on it."""
        gone = set(names)
        for name in sorted(gone):
            entry = self.named(name)
            if entry is None:
                raise ValueError(f"{name} is not on the roster")
            if entry.is_removed:
                raise ValueError(f"{name} was removed already")
        serial = self.serial + 1
        entries = []
        for entry in self.entries:
            if entry.name in gone:
                entries.append(replace(entry, roles=()).following(entry, serial))
            else:
                entries.append(entry)
        return Roster(serial, tuple(entries))

    def cutting(self, name: str, cut: Cut) -> "Roster":
        """With a cut of a removed host, which is final. Raises ValueError if the host is not removed, or was cut off
        already."""
        cut_off = self.named(name)
        if cut_off is None:
            raise ValueError(f"{name} is not on the roster")
        if not cut_off.is_removed:
            raise ValueError(f"{name} is not removed yet")
        if cut_off.cut is not None:
            raise ValueError(f"{name} was cut off already, and a cut is final")
        entries = (replace(entry, cut=cut) if entry is cut_off else entry for entry in self.entries)
        return Roster(self.serial + 1, tuple(entries))
