"""The phase of a node, and the one place where it changes; each algorithm has phases and a table of its own."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Generic, TypeVar

P = TypeVar("P", bound=StrEnum)


def follow(now: P, then: P, transitions: Mapping[P, tuple[P, ...]]) -> P:
    """The next phase. transitions: what may follow each phase. Raises AssertionError if it may not follow."""
    if then not in transitions[now]:
        raise AssertionError(f"{then.value} does not follow {now.value}")
    return then


class PhaseMachine(Generic[P]):
    """Goes from phase to phase as a table allows. transitions: of each algorithm: what may follow each phase."""

    transitions: Mapping[P, tuple[P, ...]]

    def __init__(self, first: P) -> None:
        self.phase = first

    def enter(self, phase: P) -> None:
        """Raises AssertionError, having changed nothing, if the phase may not follow."""
        self.phase = follow(self.phase, phase, self.transitions)
