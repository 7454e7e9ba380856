"""Two of six daemons tell the opposite of what they measure, as large as can be: the others learn as if all were
honest, end with one digest, and see who it was."""

import json
from dataclasses import replace

import pytest

from clusters import Closed, Cluster
from lies import opposite
from seedflood.cluster.plan import secret_of
from seedflood.host.seedflood.contradictions import CONTRADICTS
from seedflood.identity import Identity, write_key
from seedflood.operations.status import describe
from seedflood.protocol.swarm.roster import Entry
from seedflood.training.seedflood.trainer import Trainer

HONEST, LIARS = ("a", "b", "c", "d"), ("x", "y")
NAMES = (*HONEST, *LIARS)
RUN = {"clients": len(NAMES), "estimate": "gradient", "batch_size": 32, "steps": 64, "refresh_period": 64}
RUN |= {"train_examples": None}
ACCURACY_LOST_MAX, LOSS_GAINED_MAX = 0.03, 0.06


@pytest.fixture
def lie(monkeypatch):
    """Makes the hosts with these keys lie, from their first step on."""
    measure = Trainer.measure

    def begin(*keys):
        origins = {key.origin for key in keys}

        def measured(trainer, origin, step, count):
            one = measure(trainer, origin, step, count)
            if origin not in origins:
                return one
            return replace(one, probes=tuple(opposite(trainer.compression, told) for told in one.probes))

        monkeypatch.setattr(Trainer, "measure", measured)

    return begin


@pytest.fixture
async def closed(tmp_path):
    """What makes closed runs, of which all are alike but for who lies: the batches of a host follow from its key."""
    made = []

    def make(name):
        folder = tmp_path / name
        one = Closed(Cluster(folder), folder)
        made.append(one.cluster)
        for number, host in enumerate(NAMES):
            write_key(folder / host / "identity.pem", secret_of(1, number))
            one.keys[host] = Identity.load(folder / host / "identity.pem")
        one.sign(one.roster.adding(*(Entry(host, key.public_key) for host, key in one.keys.items())))
        return one

    yield make
    for cluster in made:
        await cluster.close()


async def ended(closed, window):
    """The daemons of a run that is over; they serve."""
    cluster = closed.cluster
    run = RUN | {"window": window, "operator": closed.operator.public_key.hex()}
    for number, name in enumerate(NAMES):
        peers = [NAMES[number - 1]] * (number > 0) + [NAMES[0]] * (number == len(NAMES) - 1)
        node = {"roster": closed.path, "then": "serve", "shard": f"{number + 1}/{len(NAMES)}"}
        await cluster.start(name, peers, run, node | {"evaluate_examples": None, "evaluate_every": 0})
    daemons = cluster.daemons
    await cluster.until(lambda: all(one.result is not None for one in daemons.values()))
    assert len({one.result["digest"] for one in daemons.values()}) == 1
    return daemons


@pytest.mark.long
@pytest.mark.parametrize("window", ["strict", "bounded"])
async def test_two_liars_of_six_move_nobody_and_are_seen_by_all(closed, lie, window):
    honest = (await ended(closed("honest"), window))["a"]
    among_liars = closed("lying")
    lie(*(among_liars.keys[name] for name in LIARS))
    daemons = await ended(among_liars, window)
    result = daemons["a"].result
    assert result["accuracy_after"] >= honest.result["accuracy_after"] - ACCURACY_LOST_MAX
    assert result["loss_after"] <= honest.result["loss_after"] + LOSS_GAINED_MAX
    for name in HONEST:
        status = json.loads(json.dumps(describe(daemons[name].hub)))
        assert {one["name"] for one in status["members"] if one["contradicts"]} == set(LIARS)
        assert all(one["reputation"] < 0 for one in status["members"] if one["name"] in LIARS)
        assert sorted(one["member"] for one in status["events"] if one["event"] == CONTRADICTS) == [*LIARS]
    assert not any(one["contradicts"] for one in describe(honest.hub)["members"])
