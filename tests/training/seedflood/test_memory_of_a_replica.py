"""Apart from other tests of replicas: these draw each basis once, and keep all of them."""

import gc

import pytest
import torch
from reference import tiny_base, tiny_settings

from seedflood.protocol.seedflood.bundles import Update
from seedflood.training.seedflood.replica import Replica


@pytest.mark.long
def test_the_memory_of_a_replica_does_not_grow_with_the_run(tmp_path):
    replica = Replica(tiny_base(), tiny_settings(refresh_period=2), tmp_path)

    def train(epochs):
        for epoch in epochs:
            replica.open_epoch(epoch)
            replica.apply([Update(0, 2 * epoch, (epoch, 1 << 20)), Update(1, 2 * epoch + 1, (epoch, 1 << 20))])
            replica.digest()
        gc.collect()
        return sum(one.nbytes for one in gc.get_objects() if issubclass(type(one), torch.Tensor))

    before = train(range(20))
    assert train(range(20, 60)) == before
