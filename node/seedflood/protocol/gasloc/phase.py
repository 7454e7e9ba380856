"""The life of a node, as one table."""

from collections.abc import Mapping
from enum import StrEnum

from seedflood.protocol.lifecycle import PhaseMachine


class Phase(StrEnum):
    JOINING = "joining"  # until it has parameters: its own checkpoint, the base model, or a copy of a neighbour
    TRAINING = "training"  # local steps are running; with a delay an exchange may run at the same time
    EXCHANGING = "exchanging"  # the parameters of the round are encoded and exchanged; the next local steps wait
    CHOOSING = "choosing"  # no rounds are left: until it has the replica with which all end
    FINISHING = "finishing"  # it has it: wait for hosts that do not have it yet
    FINISHED = "finished"  # `Outputs.is_finished` was returned: answer until the shell closes the links
    LEFT = "left"  # `leave` was called: answer until the shell closes the links


TRANSITIONS: Mapping[Phase, tuple[Phase, ...]] = {
    Phase.JOINING: (Phase.TRAINING, Phase.EXCHANGING, Phase.CHOOSING, Phase.LEFT),
    Phase.TRAINING: (Phase.EXCHANGING, Phase.LEFT),
    Phase.EXCHANGING: (Phase.JOINING, Phase.TRAINING, Phase.EXCHANGING, Phase.CHOOSING, Phase.LEFT),
    Phase.CHOOSING: (Phase.FINISHING, Phase.LEFT),
    Phase.FINISHING: (Phase.CHOOSING, Phase.FINISHED, Phase.LEFT),
    Phase.FINISHED: (Phase.LEFT,),
    Phase.LEFT: (),
}
"""What may follow each phase. To exchanging once more: a round without local steps. Back to joining: our parameters are
stale. Back to choosing: the others have taken another replica."""


class Lifecycle(PhaseMachine[Phase]):
    """The phase of a node, changed by `enter` alone."""

    transitions = TRANSITIONS

    def __init__(self) -> None:
        super().__init__(Phase.JOINING)

    @property
    def is_active(self) -> bool:
        """Does it take part in exchanges?"""
        return self.phase in (Phase.TRAINING, Phase.EXCHANGING)

    @property
    def is_over(self) -> bool:
        return self.phase in (Phase.FINISHING, Phase.FINISHED)
