from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Frame(_message.Message):
    __slots__ = ("hello", "updates", "members", "frontier_digest", "ping", "pong", "goodbye", "pull", "pull_end", "pull_more", "replica_digest", "standing", "epoch_part", "votes", "block_digests", "equivocation", "algorithm", "seen", "roster", "answers")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    UPDATES_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    FRONTIER_DIGEST_FIELD_NUMBER: _ClassVar[int]
    PING_FIELD_NUMBER: _ClassVar[int]
    PONG_FIELD_NUMBER: _ClassVar[int]
    GOODBYE_FIELD_NUMBER: _ClassVar[int]
    PULL_FIELD_NUMBER: _ClassVar[int]
    PULL_END_FIELD_NUMBER: _ClassVar[int]
    PULL_MORE_FIELD_NUMBER: _ClassVar[int]
    REPLICA_DIGEST_FIELD_NUMBER: _ClassVar[int]
    STANDING_FIELD_NUMBER: _ClassVar[int]
    EPOCH_PART_FIELD_NUMBER: _ClassVar[int]
    VOTES_FIELD_NUMBER: _ClassVar[int]
    BLOCK_DIGESTS_FIELD_NUMBER: _ClassVar[int]
    EQUIVOCATION_FIELD_NUMBER: _ClassVar[int]
    ALGORITHM_FIELD_NUMBER: _ClassVar[int]
    SEEN_FIELD_NUMBER: _ClassVar[int]
    ROSTER_FIELD_NUMBER: _ClassVar[int]
    ANSWERS_FIELD_NUMBER: _ClassVar[int]
    hello: Hello
    updates: Updates
    members: Members
    frontier_digest: FrontierDigest
    ping: Ping
    pong: Pong
    goodbye: Goodbye
    pull: Pull
    pull_end: PullEnd
    pull_more: PullMore
    replica_digest: ReplicaDigest
    standing: Standing
    epoch_part: EpochPart
    votes: bytes
    block_digests: BlockDigests
    equivocation: Equivocation
    algorithm: bytes
    seen: Seen
    roster: Roster
    answers: int
    def __init__(self, hello: _Optional[_Union[Hello, _Mapping]] = ..., updates: _Optional[_Union[Updates, _Mapping]] = ..., members: _Optional[_Union[Members, _Mapping]] = ..., frontier_digest: _Optional[_Union[FrontierDigest, _Mapping]] = ..., ping: _Optional[_Union[Ping, _Mapping]] = ..., pong: _Optional[_Union[Pong, _Mapping]] = ..., goodbye: _Optional[_Union[Goodbye, _Mapping]] = ..., pull: _Optional[_Union[Pull, _Mapping]] = ..., pull_end: _Optional[_Union[PullEnd, _Mapping]] = ..., pull_more: _Optional[_Union[PullMore, _Mapping]] = ..., replica_digest: _Optional[_Union[ReplicaDigest, _Mapping]] = ..., standing: _Optional[_Union[Standing, _Mapping]] = ..., epoch_part: _Optional[_Union[EpochPart, _Mapping]] = ..., votes: _Optional[bytes] = ..., block_digests: _Optional[_Union[BlockDigests, _Mapping]] = ..., equivocation: _Optional[_Union[Equivocation, _Mapping]] = ..., algorithm: _Optional[bytes] = ..., seen: _Optional[_Union[Seen, _Mapping]] = ..., roster: _Optional[_Union[Roster, _Mapping]] = ..., answers: _Optional[int] = ...) -> None: ...

class Hello(_message.Message):
    __slots__ = ("protocol_version", "run_id", "base_digest", "member", "members", "frontier", "roster", "form", "clock")
    PROTOCOL_VERSION_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    BASE_DIGEST_FIELD_NUMBER: _ClassVar[int]
    MEMBER_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    FRONTIER_FIELD_NUMBER: _ClassVar[int]
    ROSTER_FIELD_NUMBER: _ClassVar[int]
    FORM_FIELD_NUMBER: _ClassVar[int]
    CLOCK_FIELD_NUMBER: _ClassVar[int]
    protocol_version: int
    run_id: bytes
    base_digest: bytes
    member: Member
    members: _containers.RepeatedCompositeFieldContainer[Member]
    frontier: Frontier
    roster: Roster
    form: bytes
    clock: int
    def __init__(self, protocol_version: _Optional[int] = ..., run_id: _Optional[bytes] = ..., base_digest: _Optional[bytes] = ..., member: _Optional[_Union[Member, _Mapping]] = ..., members: _Optional[_Iterable[_Union[Member, _Mapping]]] = ..., frontier: _Optional[_Union[Frontier, _Mapping]] = ..., roster: _Optional[_Union[Roster, _Mapping]] = ..., form: _Optional[bytes] = ..., clock: _Optional[int] = ...) -> None: ...

class Seen(_message.Message):
    __slots__ = ("address", "is_reachable")
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    IS_REACHABLE_FIELD_NUMBER: _ClassVar[int]
    address: str
    is_reachable: bool
    def __init__(self, address: _Optional[str] = ..., is_reachable: bool = ...) -> None: ...

class Roster(_message.Message):
    __slots__ = ("serial", "entries", "signature")
    SERIAL_FIELD_NUMBER: _ClassVar[int]
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    serial: int
    entries: _containers.RepeatedCompositeFieldContainer[RosterEntry]
    signature: bytes
    def __init__(self, serial: _Optional[int] = ..., entries: _Optional[_Iterable[_Union[RosterEntry, _Mapping]]] = ..., signature: _Optional[bytes] = ...) -> None: ...

class RosterEntry(_message.Message):
    __slots__ = ("public_key", "name", "roles", "not_before", "not_after", "cut", "trains_from", "trains_until")
    PUBLIC_KEY_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    ROLES_FIELD_NUMBER: _ClassVar[int]
    NOT_BEFORE_FIELD_NUMBER: _ClassVar[int]
    NOT_AFTER_FIELD_NUMBER: _ClassVar[int]
    CUT_FIELD_NUMBER: _ClassVar[int]
    TRAINS_FROM_FIELD_NUMBER: _ClassVar[int]
    TRAINS_UNTIL_FIELD_NUMBER: _ClassVar[int]
    public_key: bytes
    name: str
    roles: int
    not_before: int
    not_after: int
    cut: Cut
    trains_from: int
    trains_until: int
    def __init__(self, public_key: _Optional[bytes] = ..., name: _Optional[str] = ..., roles: _Optional[int] = ..., not_before: _Optional[int] = ..., not_after: _Optional[int] = ..., cut: _Optional[_Union[Cut, _Mapping]] = ..., trains_from: _Optional[int] = ..., trains_until: _Optional[int] = ...) -> None: ...

class Cut(_message.Message):
    __slots__ = ("holes", "since", "content")
    HOLES_FIELD_NUMBER: _ClassVar[int]
    SINCE_FIELD_NUMBER: _ClassVar[int]
    CONTENT_FIELD_NUMBER: _ClassVar[int]
    holes: _containers.RepeatedScalarFieldContainer[int]
    since: int
    content: bytes
    def __init__(self, holes: _Optional[_Iterable[int]] = ..., since: _Optional[int] = ..., content: _Optional[bytes] = ...) -> None: ...

class Updates(_message.Message):
    __slots__ = ("origins", "bundles")
    ORIGINS_FIELD_NUMBER: _ClassVar[int]
    BUNDLES_FIELD_NUMBER: _ClassVar[int]
    origins: _containers.RepeatedScalarFieldContainer[int]
    bundles: bytes
    def __init__(self, origins: _Optional[_Iterable[int]] = ..., bundles: _Optional[bytes] = ...) -> None: ...

class Member(_message.Message):
    __slots__ = ("public_key", "name", "incarnation", "version", "neighbours", "first_step", "last_step", "signature", "hop_milliseconds", "algorithm")
    PUBLIC_KEY_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    NEIGHBOURS_FIELD_NUMBER: _ClassVar[int]
    FIRST_STEP_FIELD_NUMBER: _ClassVar[int]
    LAST_STEP_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    HOP_MILLISECONDS_FIELD_NUMBER: _ClassVar[int]
    ALGORITHM_FIELD_NUMBER: _ClassVar[int]
    public_key: bytes
    name: str
    incarnation: int
    version: int
    neighbours: _containers.RepeatedScalarFieldContainer[int]
    first_step: int
    last_step: int
    signature: bytes
    hop_milliseconds: int
    algorithm: bytes
    def __init__(self, public_key: _Optional[bytes] = ..., name: _Optional[str] = ..., incarnation: _Optional[int] = ..., version: _Optional[int] = ..., neighbours: _Optional[_Iterable[int]] = ..., first_step: _Optional[int] = ..., last_step: _Optional[int] = ..., signature: _Optional[bytes] = ..., hop_milliseconds: _Optional[int] = ..., algorithm: _Optional[bytes] = ...) -> None: ...

class Members(_message.Message):
    __slots__ = ("members",)
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    members: _containers.RepeatedCompositeFieldContainer[Member]
    def __init__(self, members: _Optional[_Iterable[_Union[Member, _Mapping]]] = ...) -> None: ...

class Frontier(_message.Message):
    __slots__ = ("origins", "marks", "range_counts", "ranges")
    ORIGINS_FIELD_NUMBER: _ClassVar[int]
    MARKS_FIELD_NUMBER: _ClassVar[int]
    RANGE_COUNTS_FIELD_NUMBER: _ClassVar[int]
    RANGES_FIELD_NUMBER: _ClassVar[int]
    origins: _containers.RepeatedScalarFieldContainer[int]
    marks: _containers.RepeatedScalarFieldContainer[int]
    range_counts: _containers.RepeatedScalarFieldContainer[int]
    ranges: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, origins: _Optional[_Iterable[int]] = ..., marks: _Optional[_Iterable[int]] = ..., range_counts: _Optional[_Iterable[int]] = ..., ranges: _Optional[_Iterable[int]] = ...) -> None: ...

class FrontierDigest(_message.Message):
    __slots__ = ("frontier_digest", "before", "is_complete", "members_digest")
    FRONTIER_DIGEST_FIELD_NUMBER: _ClassVar[int]
    BEFORE_FIELD_NUMBER: _ClassVar[int]
    IS_COMPLETE_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_DIGEST_FIELD_NUMBER: _ClassVar[int]
    frontier_digest: bytes
    before: int
    is_complete: bool
    members_digest: bytes
    def __init__(self, frontier_digest: _Optional[bytes] = ..., before: _Optional[int] = ..., is_complete: bool = ..., members_digest: _Optional[bytes] = ...) -> None: ...

class ReplicaDigest(_message.Message):
    __slots__ = ("frontier_digest", "replica_digest")
    FRONTIER_DIGEST_FIELD_NUMBER: _ClassVar[int]
    REPLICA_DIGEST_FIELD_NUMBER: _ClassVar[int]
    frontier_digest: bytes
    replica_digest: bytes
    def __init__(self, frontier_digest: _Optional[bytes] = ..., replica_digest: _Optional[bytes] = ...) -> None: ...

class Standing(_message.Message):
    __slots__ = ("frontier", "replica_digest")
    FRONTIER_FIELD_NUMBER: _ClassVar[int]
    REPLICA_DIGEST_FIELD_NUMBER: _ClassVar[int]
    frontier: Frontier
    replica_digest: bytes
    def __init__(self, frontier: _Optional[_Union[Frontier, _Mapping]] = ..., replica_digest: _Optional[bytes] = ...) -> None: ...

class EpochPart(_message.Message):
    __slots__ = ("epoch", "frontier", "data", "is_last", "certificate")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    FRONTIER_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    IS_LAST_FIELD_NUMBER: _ClassVar[int]
    CERTIFICATE_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    frontier: Frontier
    data: bytes
    is_last: bool
    certificate: bytes
    def __init__(self, epoch: _Optional[int] = ..., frontier: _Optional[_Union[Frontier, _Mapping]] = ..., data: _Optional[bytes] = ..., is_last: bool = ..., certificate: _Optional[bytes] = ...) -> None: ...

class BlockDigests(_message.Message):
    __slots__ = ("origins", "epochs", "numbers", "counts", "fingerprints")
    ORIGINS_FIELD_NUMBER: _ClassVar[int]
    EPOCHS_FIELD_NUMBER: _ClassVar[int]
    NUMBERS_FIELD_NUMBER: _ClassVar[int]
    COUNTS_FIELD_NUMBER: _ClassVar[int]
    FINGERPRINTS_FIELD_NUMBER: _ClassVar[int]
    origins: _containers.RepeatedScalarFieldContainer[int]
    epochs: _containers.RepeatedScalarFieldContainer[int]
    numbers: _containers.RepeatedScalarFieldContainer[int]
    counts: _containers.RepeatedScalarFieldContainer[int]
    fingerprints: bytes
    def __init__(self, origins: _Optional[_Iterable[int]] = ..., epochs: _Optional[_Iterable[int]] = ..., numbers: _Optional[_Iterable[int]] = ..., counts: _Optional[_Iterable[int]] = ..., fingerprints: _Optional[bytes] = ...) -> None: ...

class Equivocation(_message.Message):
    __slots__ = ("origin", "bundles")
    ORIGIN_FIELD_NUMBER: _ClassVar[int]
    BUNDLES_FIELD_NUMBER: _ClassVar[int]
    origin: int
    bundles: bytes
    def __init__(self, origin: _Optional[int] = ..., bundles: _Optional[bytes] = ...) -> None: ...

class Ping(_message.Message):
    __slots__ = ("sent_at",)
    SENT_AT_FIELD_NUMBER: _ClassVar[int]
    sent_at: float
    def __init__(self, sent_at: _Optional[float] = ...) -> None: ...

class Pong(_message.Message):
    __slots__ = ("sent_at",)
    SENT_AT_FIELD_NUMBER: _ClassVar[int]
    sent_at: float
    def __init__(self, sent_at: _Optional[float] = ...) -> None: ...

class Goodbye(_message.Message):
    __slots__ = ("reason",)
    REASON_FIELD_NUMBER: _ClassVar[int]
    reason: str
    def __init__(self, reason: _Optional[str] = ...) -> None: ...

class Pull(_message.Message):
    __slots__ = ("id", "frontier")
    ID_FIELD_NUMBER: _ClassVar[int]
    FRONTIER_FIELD_NUMBER: _ClassVar[int]
    id: int
    frontier: Frontier
    def __init__(self, id: _Optional[int] = ..., frontier: _Optional[_Union[Frontier, _Mapping]] = ...) -> None: ...

class PullEnd(_message.Message):
    __slots__ = ("id", "is_complete")
    ID_FIELD_NUMBER: _ClassVar[int]
    IS_COMPLETE_FIELD_NUMBER: _ClassVar[int]
    id: int
    is_complete: bool
    def __init__(self, id: _Optional[int] = ..., is_complete: bool = ...) -> None: ...

class PullMore(_message.Message):
    __slots__ = ("id",)
    ID_FIELD_NUMBER: _ClassVar[int]
    id: int
    def __init__(self, id: _Optional[int] = ...) -> None: ...
