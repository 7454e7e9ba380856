"""The journal of exchanges, so that a crash breaks nobody's round.

A pair of hosts mixes together or not at all; otherwise the mean of all replicas would move. The host that comes first
in the round's draw (`matching`) decides. The other one is *prepared* from the moment it says that it has kept the
partner's parameters until it hears the decision. This is a two-phase commit between two hosts, with presumed abort. But
nobody is blocked: a prepared host goes on, and adds its part later (`Correct`) if the decision comes late.

Three things are durable before anyone hears of them: our offers (never two different ones for one round and partner),
that we are prepared, and that we have decided to mix.

Mixing is linear. So after a crash the parts that the loaded checkpoint lacks are simply added again; only local steps
are lost. serial: the first checkpoint that contains a part.
"""

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from seedflood.protocol.gasloc.matching import weight
from seedflood.protocol.origin import OriginId
from seedflood.protocol.swarm.outputs import Outbox, Outputs, Record

KEY_PREFIX = b"gasloc "

_HEAD = struct.Struct(">q32sq")
_ENTRY = struct.Struct(">QH32sQ")


@dataclass(slots=True)
class LedgerEntry:
    """A pair that we are prepared for, or have mixed. degree: the weight of the pair follows from it. theirs: digest of
    the partner's parameters. serial: the first checkpoint that contains the part; 0 while the decision is missing."""

    round: int
    degree: int
    theirs: bytes
    serial: int = 0

    @property
    def is_doubt(self) -> bool:
        return self.serial == 0

    @property
    def weight(self) -> float:
        return weight(self.degree)


@dataclass(slots=True)
class Account:
    """What is known of one partner. offered_round, offered_digest: of our last offer. mixed_round: the last that we
    decided to mix. entries: pairs that may still be needed."""

    offered_round: int = -1
    offered_digest: bytes = bytes(32)
    mixed_round: int = -1
    entries: list[LedgerEntry] = field(default_factory=list)

    def packed(self) -> bytes:
        head = _HEAD.pack(self.offered_round, self.offered_digest, self.mixed_round)
        return head + b"".join(_ENTRY.pack(one.round, one.degree, one.theirs, one.serial) for one in self.entries)

    @classmethod
    def unpack(cls, data: bytes) -> "Account":
        entries = [LedgerEntry(*fields) for fields in _ENTRY.iter_unpack(data[_HEAD.size :])]
        offered_round, offered_digest, mixed_round = _HEAD.unpack_from(data)
        return cls(offered_round, offered_digest, mixed_round, entries)


class Ledger:
    """One account per partner, each a record of the journal. serial: of the next checkpoint."""

    def __init__(self, outbox: Outbox[Outputs]) -> None:
        self.serial = 1
        self._accounts: dict[OriginId, Account] = {}
        self._outbox = outbox

    def recall(self, records: Mapping[bytes, bytes]) -> None:
        for key, value in records.items():
            if key.startswith(KEY_PREFIX):
                origin = int.from_bytes(key[len(KEY_PREFIX) :], "big")
                self._accounts[origin] = Account.unpack(value)

    @property
    def last_round(self) -> int:
        """The last round in which anything was offered; -1 before."""
        return max((account.offered_round for account in self._accounts.values()), default=-1)

    def doubt(self, partner: OriginId) -> LedgerEntry | None:
        """The pair with this partner that we are prepared for."""
        account = self._accounts.get(partner)
        return next((one for one in account.entries if one.is_doubt), None) if account else None

    def doubts(self) -> list[tuple[OriginId, LedgerEntry]]:
        return [(origin, one) for origin, one in self.entries() if one.is_doubt]

    def entries(self) -> Iterator[tuple[OriginId, LedgerEntry]]:
        for origin, account in self._accounts.items():
            for one in account.entries:
                yield origin, one

    def has_mixed(self, partner: OriginId, round_: int) -> bool:
        """Did we decide to mix this round with the partner? Only the last pair of the two is ever asked about: no other
        one begins before it is settled."""
        account = self._accounts.get(partner)
        return account is not None and account.mixed_round == round_

    def offer(self, partner: OriginId, round_: int, digest: bytes) -> None:
        account = self._account(partner)
        assert account.offered_round < round_ or account.offered_digest == digest, "two offers for one round"
        account.offered_round, account.offered_digest = round_, digest
        self._write(partner)

    def prepare(self, partner: OriginId, round_: int, degree: int, theirs: bytes) -> None:
        assert self.doubt(partner) is None, "one doubt after the other"
        self._account(partner).entries.append(LedgerEntry(round_, degree, theirs))
        self._write(partner)

    def decide(self, partner: OriginId, round_: int, degree: int, theirs: bytes) -> None:
        """Records our decision to mix."""
        account = self._account(partner)
        account.mixed_round = round_
        account.entries.append(LedgerEntry(round_, degree, theirs, self.serial))
        self._write(partner)

    def settle(self, partner: OriginId, entry: LedgerEntry, *, is_mixed: bool) -> None:
        """The decision about a pair that we were prepared for has come."""
        if is_mixed:
            entry.serial = self.serial
        else:
            self._account(partner).entries.remove(entry)
        self._write(partner)

    def restored(self, serial: int) -> list[tuple[OriginId, LedgerEntry]]:
        """A checkpoint is loaded (0: the base model). Returns the parts that it lacks; they will be in the next one."""
        self.serial = 1 + max([serial, *(one.serial for _, one in self.entries())])
        lacking = [(origin, one) for origin, one in self.entries() if one.serial > serial]
        for _, one in lacking:
            one.serial = self.serial
        for origin in {origin for origin, _ in lacking}:
            self._write(origin)
        return lacking

    def replaced(self) -> list[tuple[OriginId, int]]:
        """No earlier part is to be added any more: other parameters have replaced ours, or ours are final. Returns
        (partner, round) of doubts that are not needed any more."""
        return self._forget(self.doubts())

    def take_serial(self) -> int:
        """The serial of a checkpoint that is to be written now."""
        self.serial += 1
        return self.serial - 1

    def checkpointed(self, serial: int) -> list[tuple[OriginId, int]]:
        """This checkpoint is durable. Returns (partner, round) of everything that is not needed any more."""
        return self._forget([(origin, one) for origin, one in self.entries() if 0 < one.serial <= serial])

    def _forget(self, found: list[tuple[OriginId, LedgerEntry]]) -> list[tuple[OriginId, int]]:
        for origin, one in found:
            self._accounts[origin].entries.remove(one)
            self._write(origin)
        return [(origin, one.round) for origin, one in found]

    def _account(self, partner: OriginId) -> Account:
        return self._accounts.setdefault(partner, Account())

    def _write(self, partner: OriginId) -> None:
        self._outbox.keep_record(Record(KEY_PREFIX + partner.to_bytes(8, "big"), self._account(partner).packed()))
