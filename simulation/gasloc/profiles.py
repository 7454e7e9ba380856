"""Named fault profiles for hosts that train by GASLoC, each given as what it adds to no faults at all."""

from dataclasses import dataclass, replace

from simulation import profiles
from simulation.profiles import CHURN, CLIMATES, CRASHES, FULL_DISKS, KEYS, NETWORK, PARTITIONS, STORM

NARROW = (4e3, 4e4, 4e6)
"""Bytes per second of slow links: a content takes several rounds, less than one, or almost no time."""
DISKS = {**FULL_DISKS, "lose_disk": 0.02}
LIARS_MAX = 1 / 3


@dataclass(frozen=True, slots=True)
class Profile(profiles.Profile):
    """liars: the largest share of hosts that lie (`liars`)."""

    liars: float = 0.0


PROFILES: dict[str, Profile] = {
    "none": Profile(),
    "network": Profile(STORM, NETWORK),
    "crashes": Profile(rates=CRASHES),
    "disks": Profile(rates={**DISKS, "kill": 0.01}),
    "churn": Profile(rates=CHURN, late=0.2),
    "partitions": Profile(rates=PARTITIONS),
    "speeds": Profile(climates=("uneven",)),
    "slow-links": Profile(replace(STORM, rates=NARROW), NETWORK),
    "keys": Profile(STORM, KEYS),
    "climates": Profile(STORM, climates=CLIMATES),
    "liars": Profile(late=0.2, late_seconds=(10.0, 30.0), liars=LIARS_MAX),
    "all": Profile(
        replace(STORM, rates=NARROW),
        {**NETWORK, **CRASHES, **FULL_DISKS, "leave": 0.02, **PARTITIONS},
        late=0.1,
        climates=CLIMATES,
    ),
    "losses": Profile(STORM, {**CRASHES, **DISKS, "copy_key": 0.02}, late=0.2),
}
"""all: faults that do not change the mean of the replicas. losses: also faults that destroy replicas."""
