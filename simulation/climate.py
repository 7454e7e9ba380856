"""The speed of links and hosts for a whole run, drawn from the seed. Faults come on top.

usual    a step takes longer than a hop
far      a hop takes longer than many steps
uneven   hosts of very different speed: one is fast and all others are slow, or each has its own speed
"""

import random
from dataclasses import dataclass, replace

from simulation.network import Weather
from simulation.work import Pace

USUAL_PACE = Pace(0.2, 0.8)
FAR_PACE = Pace(0.01, 0.025)
FAR_DELAYS = (0.15, 0.3)
SLOWEST_FACTOR = 40.0
REDIAL_SECONDS = (1.0, 2.5)
"""The longest pause between two dials is one of these. In production it is half of the patience."""


@dataclass(frozen=True, slots=True)
class Climate:
    """paces: one for each host."""

    name: str
    weather: Weather
    paces: tuple[Pace, ...]


def draw_climate(names: tuple[str, ...], weather: Weather, clients: int, rng: random.Random) -> Climate:
    """Draws one of the named climates, and how hosts dial. `("usual",)` alone draws nothing."""
    if names == ("usual",):
        return Climate("usual", weather, (USUAL_PACE,) * clients)
    name = rng.choice(names)
    pace = FAR_PACE if name == "far" else USUAL_PACE
    if name == "far":
        weather = replace(weather, delay_min=FAR_DELAYS[0], delay_max=FAR_DELAYS[1])
    weather = replace(weather, is_one_sided=rng.random() < 0.5, redial_max=rng.choice(REDIAL_SECONDS))
    paces = _uneven(clients, rng) if name == "uneven" else (pace,) * clients
    return Climate(name, weather, paces)


def _uneven(clients: int, rng: random.Random) -> tuple[Pace, ...]:
    if rng.random() < 0.5:
        fast = rng.randrange(clients)
        factors = [1.0 if index == fast else SLOWEST_FACTOR for index in range(clients)]
    else:
        factors = [SLOWEST_FACTOR ** rng.random() for _ in range(clients)]
    return tuple(USUAL_PACE.slowed(factor / SLOWEST_FACTOR) for factor in factors)
