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
    "away",
    "agreement",
    "own replica",
]
"""Why a node waits.

disk full         nothing of ours is published before there is room
no link           to take part it needs a link with a neighbour
donor             what it held when we linked is not all here
former neighbour  our journal was lost, and it may know what we said
own past          steps that we are known to have said are not here, or somebody else may still know of more
announcement      it has not confirmed that it expects us
window            the open window lacks its updates
joining           it is there and has not caught up, and the run begins with all clients
never joined      the same of hosts that nobody has heard of
last words        the run lacks its updates
away              it is our neighbour at the end of the run, and not linked
agreement         it has not said that it holds the same, with the same digest
own replica       our coefficients are made again, or are in doubt
"""
