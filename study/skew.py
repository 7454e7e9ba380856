"""Rows dealt to clients so that labels are spread unevenly, by a Dirichlet distribution of some concentration.

The shares are drawn row by row from Polya's urn, which has exactly this distribution and needs only integers. So they
are the same on every machine, whatever its mathematical library.
"""

from collections import defaultdict
from collections.abc import Hashable, Sequence
from pathlib import Path

from seedflood.config import ObjectiveSettings
from seedflood.training.formats import PromptFormat, choose_format
from seedflood.training.randomness import blocks, derive_key
from seedflood.training.sources import read_data
from study.rows import TRAIN_FILE, VALIDATION_FILE, write_rows

SKEW_UNIT = 1 << 16
"""A concentration is rounded to units of 2^-16, for the urn."""


def deal(objective: ObjectiveSettings, folder: Path, clients: int, seed: int, skew: float, home: Path) -> list[Path]:
    """Writes a folder with rows for each client below `home`: its share of the training rows of `folder`, and all
    validation rows. skew: the concentration. Raises DataError or ConfigError."""
    splits = read_data(str(folder))
    train, validation = splits.train.rows, splits.validation.rows
    form = choose_format(objective, train[0].columns)
    assert isinstance(form, PromptFormat), "texts have no labels"
    shares = split_rows([row.columns[form.label_column] for row in train], clients, seed, skew)
    folders = [home / f"client {k + 1}" for k in range(clients)]
    for one, share in zip(folders, shares, strict=True):
        one.mkdir(parents=True, exist_ok=True)
        write_rows(one / TRAIN_FILE, [train[place] for place in share])
        write_rows(one / VALIDATION_FILE, validation)
    return folders


def split_rows(labels: Sequence[Hashable], count: int, seed: int, skew: float) -> list[list[int]]:
    """Splits the positions 0 .. len(labels) - 1 into `count` shares: dealt label by label from an urn; then each empty
    share is given a row of the largest one. None is empty if there are as many rows as shares."""
    by_label: dict[Hashable, list[int]] = defaultdict(list)
    for position, label in enumerate(labels):
        by_label[label].append(position)
    shares: list[list[int]] = [[] for _ in range(count)]
    for number, label in enumerate(sorted(by_label, key=str)):
        drawn = _urn(len(by_label[label]), count, derive_key("label skew", seed, number), skew)
        for position, index in zip(by_label[label], drawn, strict=True):
            shares[index].append(position)
    for share in shares:
        if not share and len(largest := max(shares, key=len)) > 1:
            share.append(largest.pop())
    return [sorted(share) for share in shares]


def _urn(draws: int, count: int, key: int, skew: float) -> list[int]:
    """Dirichlet-multinomial draws: with weight count * skew a new ball of any colour, else the colour of an old
    ball."""
    words = blocks(key, 0, draws).tolist()
    fresh_weight = max(1, round(skew * SKEW_UNIT)) * count
    colours: list[int] = []
    for drawn, (high, low, colour, _) in enumerate(words):
        ball = (((high << 32) | low) * (fresh_weight + drawn * SKEW_UNIT)) >> 64
        if ball < fresh_weight:
            colours.append((colour * count) >> 32)
        else:
            colours.append(colours[(ball - fresh_weight) // SKEW_UNIT])
    return colours
