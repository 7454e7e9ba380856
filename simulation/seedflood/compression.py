"""The updates that simulated origins publish: any that the run allows, drawn from the seed of the world."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from seedflood.protocol.origin import OriginId
from seedflood.protocol.seedflood.bundles import LOSS_BYTES, LOSS_MAX, LOSS_UNIT_BITS, UpdateValue
from seedflood.protocol.seedflood.payload import NO_ROW, Coefficients, Compression, Pairs, encode_loss
from seedflood.protocol.seedflood.rules import Rules

UpdateKind = Literal["pairs", "coefficients", "rewards"]
UPDATE_KINDS: tuple[UpdateKind, ...] = ("pairs", "coefficients")
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


def make_compression(update_kind: UpdateKind, rng: random.Random) -> Compression:
    """A form of updates of this kind, small enough for many hosts."""
    match update_kind:
        case "pairs":
            return Pairs()
        case "coefficients" | "rewards":
            groups = tuple(rng.randint(1, 9) for _ in range(rng.randint(1, 4)))
            return Rewards(groups) if update_kind == "rewards" else Coefficients(groups)


def draw_round(rules: Rules, origin: OriginId, step: int, rng: random.Random) -> tuple[UpdateValue, ...]:
    """What an origin might measure in the round that begins at this step."""
    return tuple(_draw_value(rules, origin, one, rng) for one in range(step, step + rules.local_steps))


def _draw_value(rules: Rules, origin: OriginId, step: int, rng: random.Random) -> UpdateValue:
    match rules.compression:
        case Rewards() as compression:
            chance = 0.8 if step % WAVE_STEPS < GOOD_STEPS else 0.2
            sizes = [1 if rng.random() < DIFFERING else GROUP for _ in range(PROMPTS)]
            right = [size * sum(rng.random() < chance for _ in range(GROUP // size)) for size in sizes]
            most = compression.exponent_max if any(0 < one < GROUP for one in right) else 0
            loss = round((1 - sum(right) / (PROMPTS * GROUP)) * 2**LOSS_UNIT_BITS)
            return _draw_gradient(compression, most, rng, loss)
        case Coefficients() as compression:
            return _draw_gradient(compression, compression.exponent_max, rng)
        case Pairs(limit):
            most = min(limit, SCALAR_SEEN_MAX)
            return rng.randint(0, LOSS_MAX), rng.randint(-most, most)


def _draw_gradient(compression: Coefficients, most: int, rng: random.Random, loss: int = 0) -> bytes:
    """most: the largest exponent."""
    exponents = [rng.randint(0, most) for _ in range(compression.exponents)]
    signs, sparse = [rng.random() < 0.5 for _ in range(sum(compression.groups))], compression.sparse
    sent = sorted(rng.sample(range(sparse.rows), sparse.kept))
    rows = {row: [rng.random() < 0.5 for _ in range(sparse.columns)] for row in sent}
    return encode_coefficients(compression, exponents, signs, loss, rows)


def decode_coefficients(compression: Coefficients, payload: bytes) -> list[int]:
    """All F integers of an admitted payload, by the simplest code: `training/seedflood/compression` must agree."""
    exponents = [e for e, count in zip(payload, compression.groups, strict=False) for _ in range(count)]
    bits = _bits(payload[compression.exponents : compression.rows_at])
    dense = [(2 * bit - 1) * (1 << e >> 1) for e, bit in zip(exponents, bits, strict=False)]
    sparse, sent = compression.sparse, {}
    for at in range(compression.rows_at, compression.size - LOSS_BYTES, sparse.row_bytes):
        row = payload[at] + 256 * payload[at + 1]
        signs = _bits(payload[at + 2 : at + sparse.row_bytes])[: sparse.columns]
        sent[row] = [(2 * bit - 1) * (1 << payload[compression.exponents - 1] >> 1) for bit in signs]
    return dense + [one for row in range(sparse.rows) for one in sent.get(row, [0] * sparse.columns)]


def _bits(data: bytes) -> list[int]:
    return [byte >> k & 1 for byte in data for k in range(8)]


def encode_coefficients(
    compression: Coefficients,
    exponents: Sequence[int],
    signs: Sequence[bool],
    loss: int = 0,
    rows: Mapping[int, Sequence[bool]] | None = None,
) -> bytes:
    """The payload of exponents, and of what is positive of the values of all groups and of some rows of a sparse slot.
    loss: in units of 2^-11."""
    assert (len(exponents), len(signs)) == (compression.exponents, sum(compression.groups))
    sent = [row.to_bytes(2, "little") + _packed(signs) for row, signs in (rows or {}).items()]
    none = [NO_ROW.to_bytes(2, "little") + bytes(compression.sparse.row_bytes - 2)] * (
        compression.sparse.kept - len(sent)
    )
    return bytes(exponents) + _packed(signs) + b"".join(sent + none) + encode_loss(loss)


def _packed(signs: Sequence[bool]) -> bytes:
    return sum(1 << k for k, sign in enumerate(signs) if sign).to_bytes((len(signs) + 7) // 8, "little")
