"""Which training rows belong to which host: disjoint shares that cover the run's rows, as a function of the run seed.

With `label_skew` the labels are spread unevenly, by a Dirichlet distribution of that concentration. The shares are
drawn row by row from Polya's urn, which has exactly this distribution and needs only integers. So all hosts agree on
them to the last row, whatever their mathematical library.
"""

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from seedflood.errors import ConfigError
from seedflood.training import randomness

SKEW_UNIT = 1 << 16
"""label_skew is rounded to units of 2^-16, for the urn."""


@dataclass(frozen=True, slots=True)
class Shard:
    """Share number `index` (from 0) of `count`."""

    index: int = 0
    count: int = 1


def parse_shard(text: str) -> Shard:
    """Reads a share: "2/16" is the second of sixteen. Raises ConfigError."""
    match = re.fullmatch(r"\s*(\d{1,9})\s*/\s*(\d{1,9})\s*", text)
    if match is None or not 1 <= int(match[1]) <= int(match[2]):
        raise ConfigError(f'shard = "{text}" is no share: write "1/{match[2] if match else 16}" for the first of them.')
    return Shard(int(match[1]) - 1, int(match[2]))


def choose_rows(rows: int, examples: int | None, run_seed: int) -> list[int]:
    """The indices of the rows that a run trains on: `examples` of all (None: all), in an order by the run seed."""
    order: list[int] = randomness.permutation(randomness.derive_key("training rows", run_seed), rows).tolist()
    return order if examples is None else order[:examples]


def split_rows(labels: Sequence[int], count: int, run_seed: int, label_skew: float | None = None) -> list[list[int]]:
    """Splits the positions 0 .. len(labels) - 1 into `count` shares. None is empty if there are as many rows as shares.

    Without label_skew a share is every count-th row. With it, rows are dealt label by label from an urn; then each
    empty share is given a row of the largest one.
    """
    if label_skew is None:
        return [list(range(index, len(labels), count)) for index in range(count)]
    by_label: dict[int, list[int]] = defaultdict(list)
    for position, label in enumerate(labels):
        by_label[label].append(position)
    shares: list[list[int]] = [[] for _ in range(count)]
    for label, positions in sorted(by_label.items()):
        drawn = _urn(len(positions), count, run_seed, label, label_skew)
        for position, index in zip(positions, drawn, strict=True):
            shares[index].append(position)
    for share in shares:
        if not share and len(largest := max(shares, key=len)) > 1:
            share.append(largest.pop())
    return [sorted(share) for share in shares]


def _urn(draws: int, count: int, run_seed: int, label: int, skew: float) -> list[int]:
    """Dirichlet-multinomial draws: with weight count * skew a new ball of any colour, else the colour of an old
    ball."""
    key = randomness.derive_key("label skew", run_seed, label)
    words = randomness.blocks(key, 0, draws).tolist()
    fresh_weight = max(1, round(skew * SKEW_UNIT)) * count
    colours: list[int] = []
    for drawn, (high, low, colour, _) in enumerate(words):
        ball = (((high << 32) | low) * (fresh_weight + drawn * SKEW_UNIT)) >> 64
        if ball < fresh_weight:
            colours.append((colour * count) >> 32)
        else:
            colours.append(colours[(ball - fresh_weight) // SKEW_UNIT])
    return colours
