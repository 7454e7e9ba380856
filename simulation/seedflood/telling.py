"""The updates that simulated origins publish: any that the run allows, drawn from the seed of the world."""

import random
from typing import Literal, get_args

from seedflood.protocol.origin import OriginId
from seedflood.protocol.seedflood.messages import LOSS_MAX, Told
from seedflood.protocol.seedflood.payload import (
    VALUE_MAX,
    Coefficients,
    Pairs,
    Telling,
    encode_coefficients,
)
from seedflood.protocol.seedflood.rules import Rules

Tell = Literal["pairs", "coefficients"]
TELLS: tuple[Tell, ...] = get_args(Tell)

SCALAR_SEEN_MAX = 1 << 24


def make_telling(tell: Tell, rng: random.Random) -> Telling:
    """A form of updates of this kind, small enough for many hosts."""
    match tell:
        case "pairs":
            return Pairs()
        case "coefficients":
            return Coefficients(tuple(rng.randint(1, 9) for _ in range(rng.randint(1, 4))))


def draw_round(rules: Rules, origin: OriginId, step: int, rng: random.Random) -> tuple[Told, ...]:
    """What an origin might measure in the round that begins at this step."""
    return tuple(_draw_told(rules, origin, one, rng) for one in range(step, step + rules.local_steps))


def _draw_told(rules: Rules, origin: OriginId, step: int, rng: random.Random) -> Told:
    match rules.telling:
        case Coefficients(groups) as telling:
            exponents = [rng.randint(0, telling.exponent_max) for _ in groups]
            values = [rng.randint(-VALUE_MAX, VALUE_MAX) for _ in range(telling.values)]
            return encode_coefficients(telling, exponents, values)
        case Pairs(limit):
            most = min(limit, SCALAR_SEEN_MAX)
            return rng.randint(0, LOSS_MAX), rng.randint(-most, most)
