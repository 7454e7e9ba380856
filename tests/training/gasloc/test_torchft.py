"""DiLoCo against torchft: recorded vectors always, torchft itself where it is installed."""

import json
from pathlib import Path

import numpy
import pytest
import torch
from dense_gossip import agree, exchange, weights_of
from torchft_vectors import (
    INNER_RATE,
    LOCAL_STEPS,
    MOMENTUM,
    OUTER_RATE,
    ROUNDS,
    SEEDS,
    WORKERS,
    beginnings,
    torchft_course,
)

from seedflood.training.gasloc.outer import Outer, OuterSettings

RECORDED = json.loads(Path(__file__).with_name("torchft.json").read_text())
SETTINGS = OuterSettings(OUTER_RATE, 1.0, MOMENTUM)


def our_course(seed, end_round):
    """Of the mean of the workers, who go down their parabolas as torchft's do."""
    start_F, centre_WF = beginnings(seed)
    values = [torch.tensor(start_F, dtype=torch.float32) for _ in range(WORKERS)]
    centres = torch.tensor(centre_WF, dtype=torch.float32)
    outers = [Outer(value_F, SETTINGS) for value_F in values]
    for _ in range(ROUNDS):
        for value_F, centre_F in zip(values, centres, strict=True):
            for _ in range(LOCAL_STEPS):
                value_F -= INNER_RATE * (value_F - centre_F)
        end_round(outers)
        yield torch.stack(values).double().mean(dim=0).numpy()


def follow(outers):
    mean_F = torch.stack([outer.propose().told(0) for outer in outers]).mean(dim=0)
    for outer in outers:
        outer.follow(mean_F)


def gossip(outers):
    exchange(outers, weights_of("complete", WORKERS))


def tree(outers):
    agree(outers, [0, *((worker - 1) // 2 for worker in range(1, WORKERS))])


@pytest.mark.parametrize("end_round", [follow, gossip, tree])
@pytest.mark.parametrize("seed", SEEDS)
def test_the_mean_takes_the_course_of_torchfts_diloco(seed, end_round):
    for found, expected in zip(our_course(seed, end_round), RECORDED[str(seed)], strict=True):
        numpy.testing.assert_allclose(found, expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_recorded_course_is_torchfts(seed):
    pytest.importorskip("torchft.local_sgd")
    numpy.testing.assert_allclose(torchft_course(seed), RECORDED[str(seed)], rtol=0, atol=1e-12)
