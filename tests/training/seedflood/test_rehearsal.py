"""A run in one process: the same updates as that of separate hosts."""

from pathlib import Path

import pytest

from seedflood.config import NodeSettings, RunSettings, merge
from seedflood.protocol.seedflood.bundles import Update
from seedflood.training.seedflood.rehearsal import Rehearsal
from seedflood.training.seedflood.trainer import Trainer
from seedflood.training.shards import equal_shares

pytestmark = pytest.mark.usefixtures("drawn_once")

RUN = RunSettings.of(
    model="embedded", task="embedded", clients=3, steps=4, local_steps=2, train_examples=96, batch_size=4
)


def test_a_rehearsal_ends_where_separate_hosts_end(tmp_path: Path):
    rehearsal = Rehearsal(RUN, equal_shares(NodeSettings(state=tmp_path, evaluate_examples=8), RUN.clients))
    hosts = [Trainer(RUN, NodeSettings(state=tmp_path, shard=f"{k}/3", evaluate_examples=8)) for k in (1, 2, 3)]
    for step in (0, 2):
        rehearsal.advance()
        rounds = [host.measure(origin, step, 2) for origin, host in enumerate(hosts, 1)]
        updates = [
            Update(origin, step + k, probe)
            for origin, measured in enumerate(rounds, 1)
            for k, probe in enumerate(measured.probes)
        ]
        for host in hosts:
            host.replica.apply(updates)
    assert rehearsal.step == 4
    assert {host.digest() for host in hosts} == {rehearsal.trainers[0].digest()}
    assert rehearsal.evaluate() == hosts[0].evaluate()


def test_with_a_delay_a_round_is_measured_before_the_last_ones_are_applied(tmp_path: Path):
    node = NodeSettings(state=tmp_path, evaluate_examples=8)
    run = RunSettings(**merge(RUN.model_dump(), {"steps": 8, "seedflood": {"delay": 2}}))
    rehearsal = Rehearsal(run, equal_shares(node, run.clients))
    applied: list[int] = []
    apply = rehearsal.trainers[0].replica.apply

    def note(updates):
        updates = list(updates)
        applied.append(min(update.step for update in updates))
        apply(updates)

    rehearsal.trainers[0].replica.apply = note
    before = [(rehearsal.step, list(applied)) for _ in range(4) if rehearsal.advance()]
    assert before == [(2, []), (4, []), (6, [0]), (8, [0, 2, 4, 6])]


def test_origins_of_a_rehearsal_have_rows_of_their_own(tmp_path: Path):
    rehearsal = Rehearsal(RUN, equal_shares(NodeSettings(state=tmp_path), RUN.clients))
    shares = [{row.line for row in trainer.task.train_rows} for trainer in rehearsal.trainers]
    assert [len(share) for share in shares] == [32, 32, 32]
    assert len(set.union(*shares)) == 96


@pytest.mark.long
def test_a_long_run_keeps_what_it_has_learned(tmp_path: Path):
    run = RunSettings.of(task="embedded", train_examples=512, steps=30_000, seed=2)
    rehearsal = Rehearsal(run, equal_shares(NodeSettings(state=tmp_path, evaluate_examples=256), run.clients))
    accuracies = []
    while rehearsal.step < 250:
        rehearsal.advance()
        if rehearsal.step % 50 == 0:
            accuracies.append(rehearsal.evaluate().figures["accuracy"])
    assert max(accuracies) >= 0.93  # 0.95 to 0.96; another processor rounds otherwise
    assert accuracies[-1] >= max(accuracies) - 0.02


@pytest.mark.long
def test_gradients_learn_at_ten_times_the_default_rate(tmp_path: Path):
    hosts = equal_shares(NodeSettings(state=tmp_path, evaluate_examples=128), RUN.clients)
    keys = {"task": "embedded", "estimate": "gradient", "train_examples": 1024, "clients": 3, "steps": 60}
    rate = Rehearsal(RunSettings.of(**keys), hosts).learning_rate
    rehearsal = Rehearsal(RunSettings.of(**keys, learning_rate=10 * rate), hosts)
    while rehearsal.step < 60:
        rehearsal.advance()
    assert rehearsal.trainers[0].replica.halvings >= 2
    assert rehearsal.evaluate().figures["accuracy"] > 0.8
