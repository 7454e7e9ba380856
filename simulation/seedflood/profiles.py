"""Named fault profiles for hosts that train by SeedFlood, each given as what it adds to no faults at all."""

from dataclasses import dataclass

from simulation import profiles
from simulation.profiles import CHURN, CLIMATES, CRASHES, FULL_DISKS, KEYS, NETWORK, PARTITIONS, STORM


@dataclass(frozen=True, slots=True)
class Profile(profiles.Profile):
    """rates: see `seedflood.faults.SeedfloodChaos`. liars: the largest share of hosts that lie (`liars`)."""

    liars: float = 0.0


DISKS = {**FULL_DISKS, "damage": 0.02, "lose_disk": 0.02, "corrupt": 0.02}
AMNESIA = {"meet_amnesiac": 0.1, "interrupt": 0.05}
EPOCH_ENDS = {"leave_at_epoch_end": 0.3}
ADOPTION = {"fill_joining": 0.2, "lose_disk": 0.1}
CUTS = {"cut": 0.06}
SOMETIMES = {"leave_at_epoch_end": 0.05, "fill_joining": 0.05, "copy_key": 0.03}
LIARS_MAX = 1 / 3

PROFILES: dict[str, Profile] = {
    "none": Profile(),
    "network": Profile(STORM, NETWORK),
    "crashes": Profile(rates=CRASHES),
    "disks": Profile(rates=DISKS),
    "churn": Profile(rates=CHURN, late=0.2),
    "partitions": Profile(rates=PARTITIONS),
    "amnesia": Profile(rates=AMNESIA, late=0.3),
    "epoch-ends": Profile(rates=EPOCH_ENDS, climates=("far",)),
    "speeds": Profile(climates=("uneven",)),
    "adoption": Profile(rates=ADOPTION, late=0.2),
    "keys": Profile(STORM, KEYS),
    "climates": Profile(STORM, climates=CLIMATES),
    "cuts": Profile(rates={**CRASHES, **PARTITIONS, **CUTS}),
    "liars": Profile(liars=LIARS_MAX),
    "all": Profile(
        STORM,
        {**NETWORK, **CRASHES, **DISKS, **CHURN, **PARTITIONS, **AMNESIA, **SOMETIMES},
        late=0.1,
        climates=CLIMATES,
    ),
}
