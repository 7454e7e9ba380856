"""The updates that simulated origins publish: any that the run allows, drawn from the seed of the world."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from seedflood.protocol.origin import OriginId
from seedflood.protocol.seedflood.messages import LOSS_BYTES, LOSS_MAX, LOSS_UNIT_BITS, Told
from seedflood.protocol.seedflood.payload import Coefficients, Pairs, Telling, encode_loss
from seedflood.protocol.seedflood.rules import Rules

Tell = Literal["pairs", "coefficients", "rewards"]
TELLS: tuple[Tell, ...] = ("pairs", "coefficients")
"""One of these is drawn if the plan names none."""

SCALAR_SEEN_MAX = 1 << 24

PROMPTS, GROUP = 4, 8
DIFFERING = 0.3
"""The share of groups in which texts may differ in their reward. A quarter of the steps has none."""
WAVE_STEPS, GOOD_STEPS = 32, 12
"""Rewards are high for so many steps of a wave, and then low: as in a run that unlearns."""


@dataclass(frozen=True, slots=True)
class Rewards(Coefficients):
    """As coefficients, of hosts that learn by reward: what is lost is a share of few texts, and the gradient is zero
    where no group of them has a difference."""


def make_telling(tell: Tell, rng: random.Random) -> Telling:
    """A form of updates of this kind, small enough for many hosts."""
    match tell:
        case "pairs":
            return Pairs()
        case "coefficients" | "rewards":
            groups = tuple(rng.randint(1, 9) for _ in range(rng.randint(1, 4)))
            return Rewards(groups) if tell == "rewards" else Coefficients(groups)


def draw_round(rules: Rules, origin: OriginId, step: int, rng: random.Random) -> tuple[Told, ...]:
    """What an origin might measure in the round that begins at this step."""
    return tuple(_draw_told(rules, origin, one, rng) for one in range(step, step + rules.local_steps))


def _draw_told(rules: Rules, origin: OriginId, step: int, rng: random.Random) -> Told:
    match rules.telling:
        case Rewards() as telling:
            chance = 0.8 if step % WAVE_STEPS < GOOD_STEPS else 0.2
            sizes = [1 if rng.random() < DIFFERING else GROUP for _ in range(PROMPTS)]
            right = [size * sum(rng.random() < chance for _ in range(GROUP // size)) for size in sizes]
            most = telling.exponent_max if any(0 < one < GROUP for one in right) else 0
            loss = round((1 - sum(right) / (PROMPTS * GROUP)) * 2**LOSS_UNIT_BITS)
            return _draw_gradient(telling, most, rng, loss)
        case Coefficients() as telling:
            return _draw_gradient(telling, telling.exponent_max, rng)
        case Pairs(limit):
            most = min(limit, SCALAR_SEEN_MAX)
            return rng.randint(0, LOSS_MAX), rng.randint(-most, most)


def _draw_gradient(telling: Coefficients, most: int, rng: random.Random, loss: int = 0) -> bytes:
    """most: the largest exponent."""
    exponents = [rng.randint(0, most) for _ in telling.groups]
    return encode_coefficients(telling, exponents, [rng.random() < 0.5 for _ in range(telling.values)], loss)


def decode_coefficients(telling: Coefficients, payload: bytes) -> list[int]:
    """All F integers of an admitted payload, by the simplest code. `training/seedflood/telling` must give the same."""
    bits = (byte >> k & 1 for byte in payload[len(telling.groups) : -LOSS_BYTES] for k in range(8))
    exponents = [e for e, count in zip(payload, telling.groups, strict=False) for _ in range(count)]
    return [(2 * bit - 1) * (1 << e >> 1) for e, bit in zip(exponents, bits, strict=False)]


def encode_coefficients(telling: Coefficients, exponents: Sequence[int], signs: Sequence[bool], loss: int = 0) -> bytes:
    """The payload of exponents by group, and of what is positive of the F values. loss: in units of 2^-11."""
    assert (len(exponents), len(signs)) == (len(telling.groups), telling.values)
    bits = sum(1 << k for k, is_positive in enumerate(signs) if is_positive)
    return bytes(exponents) + bits.to_bytes((telling.values + 7) // 8, "little") + encode_loss(loss)
