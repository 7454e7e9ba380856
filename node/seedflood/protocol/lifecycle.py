"""The phase of a node, and the one place where it changes; each algorithm has phases and a table of its own."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Generic, TypeVar

P = TypeVar("P", bound=StrEnum)


class PhaseMachine(Generic[P]):
    """Goes from phase to phase as a table allows.

    transitions: of each algorithm: what may follow each phase.
    """

    transitions: Mapping[P, tuple[P, ...]]

    def __init__(self, first: P) -> None:
        self.phase = first

    def enter(self, phase: P) -> None:
        """Raises AssertionError, having changed nothing, if the phase may not follow."""
        if phase not in self.transitions[self.phase]:
            raise AssertionError(f"{phase.value} does not follow {self.phase.value}")
        self.phase = phase
