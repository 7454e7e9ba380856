"""What simulated origins tell: any of all that a run allows, drawn from the seed of the world."""

import random
from typing import Literal, get_args

from seedflood.protocol.messages import SCALAR_MAX, Told
from seedflood.protocol.payload import Coefficients, Pairs, Slopes, Telling, encode_coefficients, encode_slopes

Tell = Literal["pairs", "coefficients", "slopes"]
TELLS: tuple[Tell, ...] = get_args(Tell)

SCALAR_SEEN_MAX = 1 << 24


def make_telling(tell: Tell, rng: random.Random) -> Telling:
    """One of this kind, small enough for many hosts."""
    match tell:
        case "pairs":
            return Pairs()
        case "coefficients":
            return Coefficients(tuple(rng.randint(1, 9) for _ in range(rng.randint(1, 4))), bits=rng.choice((4, 8)))
        case "slopes":
            return Slopes(rng.randint(1, 8))


def draw_told(telling: Telling, rng: random.Random) -> Told:
    """What an origin could measure at a step."""
    match telling:
        case Pairs():
            return rng.getrandbits(32), rng.randint(-SCALAR_SEEN_MAX, SCALAR_SEEN_MAX)
        case Coefficients(slots, bits):
            exponents = [rng.randint(0, telling.exponent_max) for _ in slots]
            most = (1 << bits - 1) - 1
            return encode_coefficients(telling, exponents, [rng.randint(-most, most) for _ in range(telling.values)])
        case Slopes(count):
            return encode_slopes([rng.randint(-SCALAR_MAX, SCALAR_MAX) for _ in range(count)])
