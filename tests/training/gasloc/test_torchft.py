"""DiLoCo against torchft: recorded vectors always, torchft itself where it is installed."""

import json
from pathlib import Path

import numpy
import pytest
import torch
from dense_gossip import exchange, weights_of
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

from seedflood.training.gasloc.outer import OuterSettings
from study.methods.follower import Follower, average

RECORDED = json.loads(Path(__file__).with_name("torchft.json").read_text())
SETTINGS = OuterSettings(OUTER_RATE, MOMENTUM)


def our_course(seed, end_round):
    """Of the mean of the workers, who go down their parabolas as torchft's do."""
    start_F, centre_WF = beginnings(seed)
    values = [torch.tensor(start_F, dtype=torch.float32) for _ in range(WORKERS)]
    centres = torch.tensor(centre_WF, dtype=torch.float32)
    outers = [Follower(value_F, SETTINGS) for value_F in values]
    for _ in range(ROUNDS):
        for value_F, centre_F in zip(values, centres, strict=True):
            for _ in range(LOCAL_STEPS):
                value_F -= INNER_RATE * (value_F - centre_F)
        end_round(outers)
        yield torch.stack(values).double().mean(dim=0).numpy()


def gossip(outers):
    exchange(outers, weights_of("complete", WORKERS))


@pytest.mark.parametrize("end_round", [average, gossip])
@pytest.mark.parametrize("seed", SEEDS)
def test_the_mean_takes_the_course_of_torchfts_diloco(seed, end_round):
    for found, expected in zip(our_course(seed, end_round), RECORDED[str(seed)], strict=True):
        numpy.testing.assert_allclose(found, expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_recorded_course_is_torchfts(seed):
    pytest.importorskip("torchft.local_sgd")
    numpy.testing.assert_allclose(torchft_course(seed), RECORDED[str(seed)], rtol=0, atol=1e-12)
