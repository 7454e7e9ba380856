"""Which faults strike in a simulated run, and how often. These can strike nodes of any algorithm."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from simulation.network import Weather


@dataclass(frozen=True, slots=True)
class Profile:
    """weather: faults of links. rates: faults of each kind (see `faults.Chaos`) per host and virtual second. late:
    share of hosts that join late, and when they do, in seconds. climates: one of them is drawn (`climate`).
    """

    weather: Weather = field(default_factory=Weather)
    rates: Mapping[str, float] = field(default_factory=dict)
    late: float = 0.0
    late_seconds: tuple[float, float] = (2.0, 10.0)
    climates: tuple[str, ...] = ("usual",)


STORM = Weather(delay_max=0.05, duplicate=0.05, reorder=0.1, lose=0.05, break_per_second=0.02)

NETWORK = {"silence": 0.02}
CRASHES = {"kill": 0.03, "lose_power": 0.02, "pause": 0.02, "slow_down": 0.01, "black_out": 0.002}
FULL_DISKS = {"fill_disk": 0.02}
CHURN = {"leave": 0.04, "kill": 0.01}
PARTITIONS = {"partition": 0.02}
KEYS = {"copy_key": 0.05}
ROSTER = {"remove": 0.02, "run_out": 0.01, "admit": 0.01}
"""What the operator of a closed run does meanwhile."""
CLIMATES = ("usual", "far", "uneven")
