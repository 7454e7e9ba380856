from pathlib import Path

import pytest
import torch

from seedflood.cluster.topology import make_topology
from seedflood.config import NodeSettings, RunSettings
from study.methods.method import Graph, Problem

torch.set_num_threads(1)


@pytest.fixture
def problem(tmp_path: Path):
    """Makes small problems of the embedded model."""

    def make(*, clients=4, local_steps=1, topology="ring", **options):
        settings = {"model": "embedded", "task": "embedded", "train_examples": 64, "batch_size": 4, "steps": 8}
        run = RunSettings.of(**settings, clients=clients)
        graph = Graph(clients, tuple(make_topology(topology, clients)))
        return Problem(run, NodeSettings(state=tmp_path), graph, local_steps, options)

    return make
