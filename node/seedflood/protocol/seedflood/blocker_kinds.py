"""The reasons for which a node that trains by SeedFlood waits."""

from typing import Literal

BlockerKind = Literal[
    "disk full",
    "no link",
    "donor",
    "former neighbour",
    "own past",
    "announcement",
    "window",
    "joining",
    "never joined",
    "last words",
    "end",
    "away",
    "agreement",
    "own replica",
]
"""Why a node waits. A blocker names the origin that the node waits for, called "the other" here.

disk full         our disk is full, and nothing of ours is published before there is space
no link           the node needs a link with any neighbour to take part
donor             not everything that the other held when we linked is here yet
former neighbour  our journal was lost, and the other may know what we said
own past          steps that we are known to have published are not here, or somebody may still know of more
announcement      the other has not confirmed that it expects us
window            updates of the other are missing in the open window
joining           the other has not caught up yet, and the run begins with all clients
never joined      the same, for clients that nobody has heard of
last words        updates of the other are missing, and the run cannot end without them
end               others have ended the run, and the other has not, so that a relay stays for it
away              the run ends, and the other, a neighbour, is not linked
agreement         the other has not confirmed that it holds the same updates, with the same digest
own replica       our coefficients are being rebuilt, or are in doubt
"""
