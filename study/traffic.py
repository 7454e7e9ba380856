"""What each method sends in a step with a model, whatever it learns: a round between two hosts is run and encoded."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

from seedflood.config import NodeSettings, RunSettings
from seedflood.training.loading import load_base
from study.measure import commit
from study.methods import METHODS
from study.methods.central import Central
from study.methods.clients import use_one_thread
from study.methods.method import Graph, Method, Problem
from study.of_model import OfModel

PAIR = Graph(2, ((0, 1),))


@dataclass(frozen=True, slots=True)
class Traffic(OfModel):
    """step_bytes: by method, in one direction, with parameters exchanged after each step. Without the central ones."""

    FILE: ClassVar[str] = "traffic.jsonl"

    step_bytes: Mapping[str, float]

    @classmethod
    def take(cls, run: RunSettings, node: NodeSettings, name: str, methods: Sequence[str]) -> Self:
        """Measures in this process; a large model takes minutes, and memory for some copies of it. Raises ConfigError,
        ModelError or DataError."""
        use_one_thread()
        parameters = load_base(run, node).parameters_count
        sent = {
            method: _sent(run, node, METHODS[method]) for method in methods if not issubclass(METHODS[method], Central)
        }
        return cls(name, parameters, commit(), sent)


def _sent(run: RunSettings, node: NodeSettings, kind: type[Method]) -> float:
    cost = kind(Problem(run, node, PAIR, 1, kind.grid[0])).advance()
    return cost.edge_bytes / cost.steps
