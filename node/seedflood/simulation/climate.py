"""What a world is like for the whole of a run, before anything goes wrong in it: drawn from the seed.

usual    steps take longer than hops
far      hops take longer than many steps
uneven   hosts of very different speed: one is fast and all others are slow, or each has a pace of its own
"""

import random
from dataclasses import dataclass, replace

from seedflood.simulation.network import Weather
from seedflood.simulation.work import Pace

USUAL_PACE = Pace(0.2, 0.8)
FAR_PACE = Pace(0.01, 0.025)
FAR_DELAYS = (0.15, 0.3)
SLOWEST_FACTOR = 40.0
REDIAL_SECONDS = (1.0, 2.5)
"""Of so many, at most, is the pause between two dials: production waits half as long as it is patient."""


@dataclass(frozen=True, slots=True)
class Climate:
    """paces: of each host."""

    name: str
    weather: Weather
    paces: tuple[Pace, ...]


def draw_climate(names: tuple[str, ...], weather: Weather, clients: int, rng: random.Random) -> Climate:
    """One of these, with dialling of any kind; the usual one alone is always the same."""
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
