"""Two of six hosts lie from the first step on, and what one of them sent of it comes late: a model that the first steps
lead astray does not stay there."""

import pytest

from lies import opposite
from seedflood.cluster.plan import secret_of
from seedflood.config import NodeSettings, RunSettings
from seedflood.identity import Identity, write_key
from seedflood.protocol.seedflood.bundles import Update
from seedflood.training.seedflood.trainer import Trainer
from seedflood.training.shards import equal_shares

HOSTS, STEPS = 6, 64


@pytest.fixture
def hosts(tmp_path):
    """Trainers on one replica, by the origins of keys that are the same in every run of this test: with them the model
    was led to a plateau, and stayed there."""
    run = RunSettings.of(
        clients=HOSTS,
        model="embedded",
        task="embedded",
        estimate="gradient",
        rank=8,
        batch_size=32,
        steps=STEPS,
        refresh_period=STEPS,
        train_examples=None,
    )
    places = equal_shares(NodeSettings(state=tmp_path, threads=1), HOSTS)
    first = Trainer(run, places[0])
    trainers = [first, *(first.beside(place) for place in places[1:])]
    return dict(zip((origin_of(tmp_path, number) for number in range(HOSTS)), trainers, strict=True))


def origin_of(folder, number):
    path = folder / f"{number}.pem"
    write_key(path, secret_of(1, number))
    return Identity.load(path).origin


def test_a_third_of_liars_in_the_first_steps_cost_little(hosts):
    *honest, last_but_one, last = hosts
    liars = last_but_one, last
    replica = hosts[honest[0]].replica
    late = []
    for step in range(STEPS):
        updates = []
        for origin, trainer in hosts.items():
            if origin in liars:
                replica.apply(late)
                late = []
            payload = trainer.measure(origin, step, 1).probes[0]
            if origin in liars:
                payload = opposite(trainer.compression, payload)
            updates.append(Update(origin, step, payload))
        if step == 0:
            # Honest hosts measure the second step without it.
            late = [update for update in updates if update.origin == last]
        replica.apply([update for update in updates if update not in late])
    assert hosts[honest[0]].evaluate().figures["accuracy"] > 0.95
