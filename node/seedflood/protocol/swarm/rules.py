"""What all nodes of a run agree on, whatever they train by."""

from dataclasses import dataclass

ORIGINS_PER_CLIENT = 4
ORIGINS_SPARE = 64

REPAIR_SECONDS = 2.0
"""Between two comparisons of a link: the longest time for which a lost frame goes unnoticed, at 40 bytes a time."""


@dataclass(frozen=True, slots=True)
class SwarmRules:
    """run_id and base_digest: 32 bytes each. clients: how many origins take part. steps: the length of the run."""

    run_id: bytes
    base_digest: bytes
    clients: int
    steps: int

    @property
    def origins_max(self) -> int:
        """How many keys are known at most: some hosts lose theirs, and strangers must not come without end."""
        return ORIGINS_PER_CLIENT * self.clients + ORIGINS_SPARE


@dataclass(frozen=True, slots=True)
class Patience:
    """How long this node waits, in seconds.

    repair: between two comparisons of frontiers. start: for all clients to join before the first window closes (strict
    waits for ever). linger: at the end, for neighbours that are away. redial: within it, whoever is up has dialled
    again.
    """

    repair_seconds: float = REPAIR_SECONDS
    start_seconds: float = 60.0
    linger_seconds: float = 60.0
    redial_seconds: float = 30.0
