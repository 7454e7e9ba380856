"""A run of real daemons against a slow reference: one process, dense directions, float64, naive code."""

import json
import sys
from pathlib import Path

import pytest
import torch
from forks import run_command

from seedflood.config import Settings, load_settings
from seedflood.host.places import JOURNAL_FILE, KEY_FILE
from seedflood.identity import Identity
from seedflood.protocol.seedflood.seeds import probe_seed
from seedflood.storage.seedflood.journal import BundleJournal
from seedflood.training.loading import load_base, load_rows
from seedflood.training.models import load_model
from seedflood.training.seedflood.estimate import to_fixed_point
from seedflood.training.seedflood.replica import Replica

sys.path.append(str(Path(__file__).parent.parent / "training"))
from reference import dense_losses, dense_weights, direction, distinct_parameters, root

pytestmark = [pytest.mark.system, pytest.mark.long, pytest.mark.shared]

NODES, STEPS = 4, 5


@pytest.fixture(scope="module")
def run(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four daemons on a ring fine-tune tiny-opt on SST-2; the folder of the run, with the export of node 1."""
    folder = tmp_path_factory.mktemp("reference") / "run"
    model, data = str(shared / "models" / "tiny-opt"), str(shared / "data" / "sst2")
    arguments = [
        "local",
        "--nodes",
        str(NODES),
        "--topology",
        "ring",
        "--model",
        model,
        "--task",
        "sst2",
        "--data",
        data,
    ]
    arguments += ["--steps", str(STEPS), "--folder", str(folder), "--export", str(folder.parent / "export")]
    arguments += ["--evaluate-every", "0", "--set", "node.evaluate_examples=0", "--set", "run.seedflood.window=strict"]
    arguments += ["--json"]
    ran = run_command(*arguments)
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout)["digests_equal"]
    return folder


def test_the_weights_are_the_float64_sum_of_all_updates(run: Path):
    settings = settings_of(run, 1)
    base = load_base(settings.run, settings.node)
    replica = Replica(base, settings.run)
    plain = load_base(settings.run, settings.node).model
    period = settings.run.seedflood.refresh_period
    path, run_id = settings.node.state / JOURNAL_FILE, settings.run.run_id()
    with BundleJournal.open(path, run_id, base.digest, refresh_period=period) as journal:
        updates = [update for bundle in journal.replay() for update in bundle.updates()]
    assert len(updates) == NODES * STEPS
    rate = replica.learning_rate / settings.run.clients
    expected = dense_weights(plain, replica.subspace, updates, refresh_period=period, rate=rate)
    assert relative_difference(run, expected) < 1e-5


def test_the_weights_are_those_of_the_same_run_in_one_process(run: Path):
    expected = train_naively(run, STEPS)
    assert relative_difference(run, expected) < 1e-5


def train_naively(run: Path, steps: int) -> dict[str, torch.Tensor]:
    """The whole run again: estimates by dense perturbation of a plain model, all arithmetic in float64."""
    nodes = [settings_of(run, k + 1) for k in range(NODES)]
    rows = nodes[0].run
    base = load_base(rows, nodes[0].node)
    tasks = [load_rows(rows, node.node, base) for node in nodes]
    origins = [Identity.load_or_create(node.node.state / KEY_FILE).origin for node in nodes]
    replica = Replica(base, rows)  # for its subspace and learning rate; its weights are not used
    model = load_base(rows, nodes[0].node).model.to(torch.float64)
    parameters = [parameter for _, parameter in distinct_parameters(model)]
    with torch.no_grad():
        for step in range(steps):
            epoch = step // replica.refresh_period
            measured = []
            for origin, task in zip(origins, tasks, strict=True):
                seed = probe_seed(rows.seed, origin, step)
                batch, words = task.batch(origin, step), task.objective.words
                plus, minus = dense_losses(model, replica.subspace, epoch, seed, batch, replica.epsilon, words)
                scalar, _ = to_fixed_point((plus - minus) / (2 * replica.epsilon))
                measured.append((seed, scalar))
            for seed, scalar in measured:
                for index, parameter in enumerate(parameters):
                    alpha = root(step) * scalar * 2.0**-20 * replica.learning_rate / rows.clients
                    parameter.sub_(direction(replica.subspace, epoch, seed, index), alpha=alpha)
    return {name: parameter.detach() for name, parameter in distinct_parameters(model)}


def settings_of(run: Path, number: int) -> Settings:
    return load_settings(run / f"node-{number}" / "peers.toml")


def relative_difference(run: Path, expected: dict[str, torch.Tensor]) -> float:
    """The worst parameter: norm of the difference over norm of the weights."""
    exported = dict(distinct_parameters(load_model(str(run.parent / "export")).model))
    pairs = [(exported[name].detach().to(torch.float64), weight) for name, weight in expected.items()]
    worst = max(float((actual - weight).norm() / weight.norm()) for actual, weight in pairs)
    print(f"relative difference {worst:.2e}")
    return worst
