"""What all nodes of a run agree on, whatever they train by."""

from dataclasses import dataclass

ORIGINS_PER_CLIENT = 4
ORIGINS_SPARE = 64

REPAIR_SECONDS = 2.0
"""Between two comparisons on a link, of 40 bytes each: a lost frame goes unnoticed for no longer."""


@dataclass(frozen=True, slots=True)
class SwarmRules:
    """run_id and base_digest: 32 bytes each. clients: how many origins take part. steps: the length of the run."""

    run_id: bytes
    base_digest: bytes
    clients: int
    steps: int

    @property
    def form(self) -> bytes:
        """What a relay cannot know without a model (`Hello.form`)."""
        return b""

    @property
    def origins_max(self) -> int:
        """The most keys that are known: some hosts lose theirs, but strangers must not come without end."""
        return ORIGINS_PER_CLIENT * self.clients + ORIGINS_SPARE


@dataclass(frozen=True, slots=True)
class Patience:
    """How long this node waits, in seconds.

    repair: between two comparisons of frontiers. start: for all clients to join before the first window closes (strict
    windows wait for ever). linger: at the end, for neighbours that are away. redial: within it, every host that is up
    has dialled its peers again.
    """

    repair_seconds: float = REPAIR_SECONDS
    start_seconds: float = 60.0
    linger_seconds: float = 60.0
    redial_seconds: float = 30.0
