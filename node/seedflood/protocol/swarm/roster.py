"""The roster of a closed run: who belongs to it, signed by its operator.

The operator's public key and a nonce are part of the run id; the list is not, because it changes while the run goes on.
So a roster is bound to operator and nonce. The one with the greater serial counts. If an operator has signed two with
one serial, all hosts choose the same one: the signed bytes with the smaller SHA-256.

Whoever was removed stays on the list, without a role. So a host that joins later knows the key that signed what the
removed one had published, and nobody mistakes it for a newcomer.
"""

import hashlib
import re
import struct
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

NONCE_CHARACTERS_MAX = 64
KEY_BYTES, SIGNATURE_BYTES = 32, 64

_NAME = re.compile(NAME_PATTERN)


@dataclass(frozen=True, slots=True)
class Entry:
    """One host. roles: none if it was removed. not_before, not_after: unix seconds, both included; None: no limit.
    Raises ValueError with a sentence if it cannot be used."""

    name: str
    public_key: bytes
    roles: tuple[Role, ...] = ("train",)
    not_before: int | None = None
    not_after: int | None = None

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

    def packed(self) -> bytes:
        name, bits = self.name.encode(), sum(1 << ROLES.index(role) for role in self.roles)
        times = (-1 if moment is None else moment for moment in (self.not_before, self.not_after))
        return struct.pack(">32sB", self.public_key, len(name)) + name + struct.pack(">Bqq", bits, *times)


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

    def signed_bytes(self, operator: bytes, nonce: str) -> bytes:
        """What the operator signs. operator: its public key, 32 bytes."""
        domain = struct.pack(">32sH", operator, len(nonce.encode())) + nonce.encode()
        head = struct.pack(">QI", self.serial, len(self.entries))
        return b"seedflood roster 1\0" + domain + head + b"".join(entry.packed() for entry in self.entries)

    def is_signed(self, operator: bytes, nonce: str, verify: Callable[[bytes, bytes, bytes], bool]) -> bool:
        """Has the operator signed it, for this run?"""
        return verify(operator, self.signed_bytes(operator, nonce), self.signature)

    def signed(self, sign: Callable[[bytes], bytes], operator: bytes, nonce: str) -> Self:
        """The same with a signature. sign: by the operator's private key."""
        return replace(self, signature=sign(self.signed_bytes(operator, nonce)))

    def replaces(self, other: "Roster | None", operator: bytes, nonce: str) -> bool:
        """Does it count where the other one is known? Both are signed. Of two with one serial all hosts choose the
        same."""
        if other is None or self.serial != other.serial:
            return other is None or self.serial > other.serial
        ours, theirs = (hashlib.sha256(one.signed_bytes(operator, nonce)).digest() for one in (self, other))
        return ours < theirs

    def contradicts(self, other: "Roster | None") -> bool:
        """Does it have the serial of the other one, and say something else?"""
        return other is not None and self.serial == other.serial and self.entries != other.entries

    # The next edition, to be signed

    def adding(self, *entries: Entry) -> "Roster":
        """With these hosts. The same name and key with other roles or times replaces what was said before. Raises
        ValueError if a key belongs to another host; who was removed does not return."""
        for entry in entries:
            known = self.get(entry.origin)
            if known is not None and (known.is_removed or known.name != entry.name):
                fate = "was removed, and does not return: give the host a new key" if known.is_removed else "is on it"
                raise ValueError(f"the key of {entry.name} is that of {known.name}, which {fate}")
        anew = {entry.origin for entry in entries}
        return Roster(self.serial + 1, (*(one for one in self.entries if one.origin not in anew), *entries))

    def removing(self, names: Iterable[str]) -> "Roster":
        """Without these hosts: their entries stay, without a role. Raises ValueError if one is not on it."""
        gone = set(names)
        for name in sorted(gone):
            if (entry := self.named(name)) is None or entry.is_removed:
                raise ValueError(f"{name} is not on the roster" if entry is None else f"{name} was removed already")
        entries = (replace(entry, roles=()) if entry.name in gone else entry for entry in self.entries)
        return Roster(self.serial + 1, tuple(entries))
