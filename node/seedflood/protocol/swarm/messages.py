"""What nodes of any run say to each other, whatever they train by: who they are, whom they know, how far away they are.

Signatures cover the encodings made here, not the wire's: they carry a domain and the run, so a statement cannot be
replayed in another run or as anything else.
"""

import struct
from collections.abc import Callable
from dataclasses import dataclass, field

from seedflood.protocol.frontier import Held
from seedflood.protocol.origin import STEP_MAX, OriginId, origin_id
from seedflood.protocol.swarm.roster import Roster

NEIGHBOURS_MAX = 1024
"""The most neighbours in a statement."""
ALGORITHM_BYTES_MAX = 1024
"""The most bytes of `Member.algorithm`: a statement floods to everyone."""

FORM_BYTES_MAX = 4096
"""The most bytes of `Hello.form`."""

OPAQUE_BYTES_MAX = 256 << 10
"""The most bytes of an `Opaque` message: live frames wait while it is sent."""

INCARNATION_MAX = 1 << 62
"""Far beyond any clock. A process that finds a newer incarnation of itself counts on from that one."""

Verify = Callable[[bytes, bytes, bytes], bool]
"""(public key, message, signature) -> did this key sign the message?"""

Sign = Callable[[bytes], bytes]
"""message -> signature by this node's own key."""


@dataclass(frozen=True, slots=True)
class Member:
    """A membership statement: who an origin is, whom it is linked with, and whether it has left.

    The newest (incarnation, version) of an origin is believed. incarnation: grows with each start of the origin.
    first_step: the first step this incarnation will measure. last_step: after leaving, the last it has measured
    (-1: none); None while it takes part. hop_milliseconds: the slow end of the delays it measures to its neighbours.
    algorithm: what else the way of training wants everyone to know; bytes that only it reads.
    """

    public_key: bytes
    name: str
    incarnation: int
    version: int = 0
    neighbours: tuple[OriginId, ...] = ()
    first_step: int = 0
    last_step: int | None = None
    hop_milliseconds: int = 0
    algorithm: bytes = b""
    signature: bytes = b""
    origin: OriginId = field(init=False, repr=False, compare=False)  # asked for far more often than statements are made

    def __post_init__(self) -> None:
        object.__setattr__(self, "origin", origin_id(self.public_key))

    def __hash__(self) -> int:
        """Statements are looked up far more often than made, and bytes remember their hash."""
        return hash(self.signature)

    @property
    def age(self) -> tuple[int, int]:
        """Orders the statements of one origin: greater is newer."""
        return (self.incarnation, self.version)

    @property
    def has_left(self) -> bool:
        return self.last_step is not None

    @property
    def has_spoken(self) -> bool:
        """Does it state from which step on its origin takes part? Until it has caught up, it does not."""
        return self.first_step < STEP_MAX

    def signed_bytes(self, run_id: bytes) -> bytes:
        """What the signature covers. run_id: 32 bytes."""
        name = self.name.encode()
        last = -2 if self.last_step is None else self.last_step
        return b"".join(
            (
                b"seedflood member 4\0",
                run_id,
                self.public_key,
                struct.pack(">H", len(name)),
                name,
                struct.pack(">QQQqH", self.incarnation, self.version, self.first_step, last, len(self.neighbours)),
                struct.pack(f">{len(self.neighbours)}Q", *self.neighbours),
                struct.pack(">II", self.hop_milliseconds, len(self.algorithm)),
                self.algorithm,
            )
        )


@dataclass(frozen=True, slots=True)
class Hello:
    """First message on a link, from both sides: who I am, what I hold, whom I know, and in a closed run who belongs to
    it.

    base_digest: empty from a relay that has still to learn it. form: what a relay has to know of the run beside
    `[run]`, as the algorithm spells it. clock: what the sender's clock reads, in unix seconds; 0: it does not say.
    Operators are shown it, and nothing is decided by it."""

    run_id: bytes
    base_digest: bytes
    member: Member
    members: tuple[Member, ...] = ()
    frontier: tuple[Held, ...] = ()
    protocol_version: int = 10
    roster: Roster | None = None
    form: bytes = b""
    clock: int = 0


@dataclass(frozen=True, slots=True)
class Members:
    """A batch of membership statements."""

    members: tuple[Member, ...]


@dataclass(frozen=True, slots=True)
class Ping:
    """sent_at: the sender's clock in seconds, returned as it is by the pong."""

    sent_at: float


@dataclass(frozen=True, slots=True)
class Pong:
    sent_at: float


@dataclass(frozen=True, slots=True)
class Goodbye:
    """Last message on a link that is closed on purpose."""

    reason: str = ""


class AlgorithmMessage:
    """A message between neighbours that belongs to one way of training. Each kind is a subclass."""

    __slots__ = ()

    def is_of(self, origin: OriginId) -> bool:
        """Does the sender, this origin, say anything of its own here, which it must find on its disk after a crash?"""
        return True


@dataclass(frozen=True, slots=True)
class Opaque(AlgorithmMessage):
    """What an algorithm spells and reads itself. data: 1 to `OPAQUE_BYTES_MAX` bytes."""

    data: bytes


Message = Hello | Members | Roster | Ping | Pong | Goodbye | AlgorithmMessage
