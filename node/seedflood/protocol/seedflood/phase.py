"""The life of a node, from the first step of a run to the last, as one table.

joining     until enough is known to speak (`catchup`): nobody contradicts what it said in a past life
measuring   a `Measure` was handed out, `published` is awaited
collecting  the own bundle is published; its window is open, and perhaps those of the `delay` rounds before: the
            next round begins when none that is in its way is (`open_windows`)
finishing   no steps are left: wait until the neighbours hold everything
relaying    of a node without a model: from its start until it leaves (`relaying`)
finished    `Outputs.is_finished` was said: relay until the shell closes the links, and sum what comes late
left        `leave` was called: relay until the shell closes the links, say nothing of our own
"""

from collections.abc import Mapping
from enum import StrEnum

from seedflood.protocol.lifecycle import PhaseMachine


class Phase(StrEnum):
    JOINING = "joining"
    MEASURING = "measuring"
    COLLECTING = "collecting"
    FINISHING = "finishing"
    FINISHED = "finished"
    RELAYING = "relaying"
    LEFT = "left"


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
