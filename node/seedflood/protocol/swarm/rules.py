"""What all nodes of a run agree on, whatever they train by."""

from dataclasses import dataclass

ORIGINS_PER_CLIENT = 4
ORIGINS_SPARE = 64


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
