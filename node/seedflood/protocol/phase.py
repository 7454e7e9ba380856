"""The life of a round, from the first step to the last:

joining     until enough is known to speak (`catchup`): nobody contradicts what it said in a past life
measuring   a `Measure` was handed out, `published` is awaited
collecting  the own bundle is published; its window is open, and perhaps those of the `delay` rounds before: the
            next round begins when none that is in its way is (`windows`)
finishing   no steps are left: wait until the neighbours hold everything, then `Outputs.is_finished`
left        `leave` was called: relay until the shell closes the links, say nothing of our own
"""

from enum import Enum


class Phase(Enum):
    JOINING = "joining"
    MEASURING = "measuring"
    COLLECTING = "collecting"
    FINISHING = "finishing"
    LEFT = "left"
