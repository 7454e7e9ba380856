"""Orders for the compute side, and their answers.

They must be carried out in order, and one thread may do all of them; `Keep`, `KeepCheckpoint` and `OpenCopy` concern
the disk and may run beside the others. `Mix` and `Correct` *add* to the present parameters: local steps may have gone
on since the parameters of the round were encoded.
"""

from dataclasses import dataclass
from typing import NamedTuple

from seedflood.protocol.gasloc.transfer import Content, Sink
from seedflood.protocol.origin import OriginId


@dataclass(frozen=True, slots=True)
class Restore:
    """Load the newest checkpoint, or the base model if there is none. Answered by `Restored`."""


@dataclass(frozen=True, slots=True)
class TakeLocalSteps:
    """Take local steps. Answered by `Stepped`. round: in whose exchange they will count, as far as is known."""

    round: int
    count: int


@dataclass(frozen=True, slots=True)
class Encode:
    """Encode the present parameters, and keep these bytes until the `Mix` of the round is done. Answered by `Encoded`.
    A round may get another number before it is exchanged; the bytes stay the same."""

    round: int
    encoding: str


@dataclass(frozen=True, slots=True)
class Keep:
    """All bytes of a partner are here. Check that they have this digest, and write the difference of ours and theirs,
    both as they were sent, durably to the disk. Answered by `KeptPart`."""

    round: int
    partner: OriginId
    digest: bytes
    sink: Sink


class Share(NamedTuple):
    """One partner of a round. weight: of the pair, equal on both sides."""

    partner: OriginId
    weight: float


@dataclass(frozen=True, slots=True)
class Mix:
    """The outer step of the round: add -weight * (ours - theirs) for each partner and, with momentum,
    gamma * (phi - phi_prev). It comes once for each round, perhaps without partners. left: what earlier closing rounds
    have left of the distance between replicas, by the graph; partners are not further apart."""

    round: int
    partners: tuple[Share, ...]
    has_momentum: bool
    left: float = 1.0


@dataclass(frozen=True, slots=True)
class Correct:
    """Add -weight * (ours - theirs) of this earlier round: the partner has mixed it, and we have not yet."""

    round: int
    partner: OriginId
    weight: float


@dataclass(frozen=True, slots=True)
class Drop:
    """Delete what was kept of this partner and round; it is no longer needed."""

    round: int
    partner: OriginId


@dataclass(frozen=True, slots=True)
class KeepCheckpoint:
    """Write the present parameters and the state of the optimiser to the disk, with both numbers. serial counts these
    orders, across restarts. Answered by `Checkpointed`."""

    serial: int
    round: int


@dataclass(frozen=True, slots=True)
class Publish:
    """The run is over for us: make the present parameters ready to be fetched, as they are. Nothing changes them any
    more but a `Take`. Answered by `Ready`."""


@dataclass(frozen=True, slots=True)
class Take:
    """End with these parameters in place of ours, after checking their digest, and make them ready to be fetched.
    Answered by `Taken`."""

    giver: OriginId
    digest: bytes
    sink: Sink


@dataclass(frozen=True, slots=True)
class OpenCopy:
    """A neighbour joins: open the newest checkpoint for reading. Answered by `Opened`."""

    peer: OriginId


@dataclass(frozen=True, slots=True)
class Adopt:
    """Go on from this copy of a checkpoint, after checking its digest. Answered by `Adopted`."""

    donor: OriginId
    digest: bytes
    sink: Sink


AtTheEnd = Publish | Take
Order = Restore | TakeLocalSteps | Encode | Keep | Mix | Correct | Drop | KeepCheckpoint | OpenCopy | Adopt | AtTheEnd


class Restored(NamedTuple):
    """serial, round: of the checkpoint that was loaded; zeros for the base model."""

    serial: int
    round: int


class Stepped(NamedTuple):
    """The local steps are taken."""


class Encoded(NamedTuple):
    """content: must not change until the `Mix` of the round."""

    content: Content


class KeptPart(NamedTuple):
    """is_right: the bytes have the digest, and what is needed of them is on the disk."""

    round: int
    partner: OriginId
    digest: bytes
    is_right: bool


class Checkpointed(NamedTuple):
    """The checkpoint is durable, or the disk had no space for it."""

    serial: int
    is_written: bool = True


class Opened(NamedTuple):
    """content: the checkpoint, None if there is none yet. round: of it."""

    peer: OriginId
    content: Content | None
    round: int


class Adopted(NamedTuple):
    """is_right: the copy has the digest that was offered, and is loaded."""

    is_right: bool


class Ready(NamedTuple):
    """content: our parameters at the end of the run. It does not change before a `Take`."""

    content: Content


class Taken(NamedTuple):
    """content: our parameters now, as for a `Publish`; None: it was not what was offered, and they are those from
    before."""

    content: Content | None


Answer = Restored | Stepped | Encoded | KeptPart | Checkpointed | Opened | Adopted | Ready | Taken
