"""The life of a node, from the first step of a run to the last, as one table."""

from collections.abc import Mapping
from enum import StrEnum

from seedflood.protocol.lifecycle import PhaseMachine


class Phase(StrEnum):
    JOINING = "joining"  # until enough is known to publish (`catchup`), so that no past life is contradicted
    MEASURING = "measuring"  # a `Measure` was handed out, a `Measured` is awaited
    COLLECTING = "collecting"  # its bundle is published; its window is open, perhaps with earlier ones (`window`)
    FINISHING = "finishing"  # no steps are left: wait until the neighbours hold everything
    FINISHED = (
        "finished"  # `Outputs.is_finished` was returned: relay until the links are closed, and sum what comes late
    )
    RELAYING = "relaying"  # of a node without a model: from its start until it leaves (`relaying`)
    LEFT = "left"  # `leave` was called: relay until the links are closed, publish nothing of our own


TRANSITIONS: Mapping[Phase, tuple[Phase, ...]] = {
    Phase.JOINING: (Phase.MEASURING, Phase.COLLECTING, Phase.FINISHING, Phase.LEFT),
    Phase.MEASURING: (Phase.COLLECTING, Phase.FINISHING, Phase.LEFT),
    Phase.COLLECTING: (Phase.MEASURING, Phase.FINISHING, Phase.LEFT),
    Phase.FINISHING: (Phase.FINISHED, Phase.LEFT),
    Phase.FINISHED: (Phase.LEFT,),
    Phase.RELAYING: (Phase.LEFT,),
    Phase.LEFT: (),
}
"""What may follow each phase. From joining to collecting: with the open window of a past life. From measuring to
finishing: the run stops before its last step."""


class Lifecycle(PhaseMachine[Phase]):
    """The phase of a node; only `enter` changes it. is_joining: the node has not spoken yet in this life. A node that
    leaves while it joins never does, nor does a relay."""

    transitions = TRANSITIONS

    def __init__(self, *, is_relay: bool = False) -> None:
        super().__init__(Phase.RELAYING if is_relay else Phase.JOINING)
        self.is_joining = True

    def enter(self, phase: Phase) -> None:
        super().enter(phase)
        self.is_joining = self.is_joining and phase is Phase.LEFT
