"""Orders for the compute side, and their answers.

They must be carried out in order, and one thread may do all of them. `Mix` *adds* to the present parameters: local
steps may have gone on since the parameters of the round were encoded.
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


class Share(NamedTuple):
    """One partner of a round. weight: of the pair, equal on both sides. digest, sink: of its parameters, which are all
    here."""

    partner: OriginId
    weight: float
    digest: bytes
    sink: Sink


@dataclass(frozen=True, slots=True)
class Mix:
    """The outer step of the round: add -weight * (ours - theirs) for each partner whose bytes have the digest and, with
    momentum, gamma * (phi - phi_prev). It comes once for each round, perhaps without partners. Answered by
    `RoundMixed`."""

    round: int
    partners: tuple[Share, ...]
    has_momentum: bool


@dataclass(frozen=True, slots=True)
class KeepCheckpoint:
    """Write the present parameters and the state of the optimiser to the disk. round: with which to go on from there;
    another checkpoint for the same round takes its place. Answered by `Checkpointed`."""

    round: int


@dataclass(frozen=True, slots=True)
class Publish:
    """The run is over for us: make the present parameters ready to be fetched, as they are. Nothing changes them any
    more but a `Take`. Answered by `Ready`."""


@dataclass(frozen=True, slots=True)
class Take:
    """End with these parameters in place of ours, after checking their digest, and make them ready to be fetched.
    is_backed: they may be far from ours; else they are refused then. Answered by `Taken`."""

    giver: OriginId
    digest: bytes
    sink: Sink
    is_backed: bool


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
Order = Restore | TakeLocalSteps | Encode | Mix | KeepCheckpoint | OpenCopy | Adopt | AtTheEnd


class Restored(NamedTuple):
    """round: of the checkpoint that was loaded; None: it is the base model."""

    round: int | None


class Stepped(NamedTuple):
    """The local steps are taken."""


class Encoded(NamedTuple):
    """content: must not change until the `Mix` of the round."""

    content: Content


class RoundMixed(NamedTuple):
    """refused: the partners whose bytes were not mixed: they do not have the digest, or are no parameters of the
    run."""

    refused: tuple[OriginId, ...]


class Checkpointed(NamedTuple):
    """The checkpoint is durable, or the disk had no space for it."""

    round: int
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
    """content: our parameters now, as for a `Publish`; None: they are those from before. is_far: what came is what was
    offered, and was refused; else it was not what was offered."""

    content: Content | None
    is_far: bool = False


Answer = Restored | Stepped | Encoded | RoundMixed | Checkpointed | Opened | Adopted | Ready | Taken
