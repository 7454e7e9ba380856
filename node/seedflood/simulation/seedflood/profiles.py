"""What goes wrong in a simulated run, and how often: named sets of faults, each a difference to none at all."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from seedflood.simulation.network import Weather


@dataclass(frozen=True, slots=True)
class Profile:
    """rates: faults of a kind (see `faults.Chaos`) per host and virtual second. late: share of hosts that join late.

    climates: one of them is drawn (`climate`). liars: the largest share of hosts that lie (`liars`).
    """

    weather: Weather = field(default_factory=Weather)
    rates: Mapping[str, float] = field(default_factory=dict)
    late: float = 0.0
    climates: tuple[str, ...] = ("usual",)
    liars: float = 0.0


STORM = Weather(delay_max=0.05, duplicate=0.05, reorder=0.1, lose=0.05, break_per_second=0.02)

NETWORK = {"silence": 0.02}
CRASHES = {"kill": 0.03, "lose_power": 0.02, "pause": 0.02, "slow_down": 0.01, "black_out": 0.002}
DISKS = {"fill_disk": 0.02, "damage": 0.02, "lose_disk": 0.02, "corrupt": 0.02}
CHURN = {"leave": 0.04, "kill": 0.01}
PARTITIONS = {"partition": 0.02}
AMNESIA = {"meet_amnesiac": 0.1, "interrupt": 0.05}
EPOCH_ENDS = {"leave_at_epoch_end": 0.3}
ADOPTION = {"fill_joining": 0.2, "lose_disk": 0.1}
KEYS = {"copy_key": 0.05}
SOMETIMES = {"leave_at_epoch_end": 0.05, "fill_joining": 0.05, "copy_key": 0.03}
CLIMATES = ("usual", "far", "uneven")
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
    "liars": Profile(liars=LIARS_MAX),
    "all": Profile(
        STORM,
        {**NETWORK, **CRASHES, **DISKS, **CHURN, **PARTITIONS, **AMNESIA, **SOMETIMES},
        late=0.1,
        climates=CLIMATES,
    ),
}
