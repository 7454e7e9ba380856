"""The phases of a node's life; which follows which is told in `node`."""

from enum import Enum


class Phase(Enum):
    JOINING = "joining"
    MEASURING = "measuring"
    COLLECTING = "collecting"
    FINISHING = "finishing"
    LEFT = "left"
