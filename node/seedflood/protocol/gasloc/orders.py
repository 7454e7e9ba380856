"""Orders for the compute side, and their answers.

They must be carried out in order, and one thread may do all of them; `Keep`, `KeepCheckpoint` and `OpenCopy` concern
the disk and may run beside the others. `Mix` and `Correct` *add* to the present parameters: local steps may have gone
on since the parameters of the round were encoded.
"""

from dataclasses import dataclass
from typing import NamedTuple

from seedflood.protocol.gasloc.transfer import Sink
from seedflood.protocol.origin import OriginId


@dataclass(frozen=True, slots=True)
class Restore:
    """Load the newest checkpoint, or the base model if there is none. Answered by `restored`."""


@dataclass(frozen=True, slots=True)
class TakeLocalSteps:
    """Take local steps. Answered by `stepped`. round: in whose exchange they will count, as far as is known."""

    round: int
    count: int


@dataclass(frozen=True, slots=True)
class Encode:
    """Encode the present parameters, and keep these bytes until the `Mix` of the round is done. Answered by `encoded`.
    A round may get another number before it is exchanged; the bytes stay the same."""

    round: int
    encoding: str


@dataclass(frozen=True, slots=True)
class Keep:
    """All bytes of a partner are here. Check that they have this digest, and write the difference of ours and theirs,
    both as they were sent, durably to the disk. Answered by `kept`."""

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
    """The outer step of the round: add -alpha * weight * (ours - theirs) for each partner, and
    gamma * (phi - phi_prev). It comes once for each round, perhaps without partners."""

    round: int
    partners: tuple[Share, ...]


@dataclass(frozen=True, slots=True)
class Gather:
    """All bytes of a sum are here. Check that they have this digest, and add them, `hosts` times, to those of the round
    that are here already. Answered by `gathered`."""

    round: int
    partner: OriginId
    digest: bytes
    hosts: int
    sink: Sink


@dataclass(frozen=True, slots=True)
class Total:
    """Make the mean of our own parameters and all that was gathered for the round ready to travel. Answered by
    `totalled`. has_momentum: add gamma * (mean - the mean before)."""

    round: int
    has_momentum: bool


@dataclass(frozen=True, slots=True)
class Agree:
    """The outer step of a round in which all agree: go on from these parameters, as they have travelled, after checking
    their digest. sink: None: what `Total` has made. is_last: at the end of the run. Answered by `taken`."""

    round: int
    digest: bytes
    sink: Sink | None
    is_last: bool


@dataclass(frozen=True, slots=True)
class Close:
    """The round is over, and the parameters stay as they are."""

    round: int


@dataclass(frozen=True, slots=True)
class Correct:
    """Add -alpha * weight * (ours - theirs) of this earlier round: the partner has mixed it, and we have not yet."""

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
    orders, across restarts. Answered by `checkpointed` once it is durable."""

    serial: int
    round: int


@dataclass(frozen=True, slots=True)
class OpenCopy:
    """A neighbour joins: open the newest checkpoint for reading. Answered by `opened`."""

    peer: OriginId


@dataclass(frozen=True, slots=True)
class Adopt:
    """Take parameters and optimiser state from this copy, after checking its digest. Answered by `adopted`."""

    donor: OriginId
    digest: bytes
    sink: Sink


Agreeing = Gather | Total | Agree | Close
Order = Restore | TakeLocalSteps | Encode | Keep | Mix | Agreeing | Correct | Drop | KeepCheckpoint | OpenCopy | Adopt
