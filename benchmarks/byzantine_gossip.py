"""What hosts that lie cost a run of GASLoC: loss and accuracy of the honest hosts at its end, kind of lie by kind.

All hosts are in one process and exchange their parameters as bytes. Every host may be matched with every other one, as
in a daemon, and one closing round ends the run. A liar knows what all honest hosts hold, goes on from their mean, and
offers something else in every round. Every run is there twice: with plain mixing, and *bounded* by the reach of each
host. Honest runs of all hosts, and of the honest ones without the liars, stand beside them.

*Embedded*: the embedded model and its task. *Fine-tuning*: the small OPT and SST-2, 1,024 sentences. *Pre-training*: a
smaller one from scratch, on film reviews.
"""

import copy
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from statistics import mean
from typing import Any

import torch
from torch import Tensor

from benchmarks import pretrain
from benchmarks.measure import Metric, make_metric, shared_folder
from seedflood.config import NodeSettings, RunSettings
from seedflood.protocol.gasloc.matching import Edge, Lottery, edge_of, match, weight
from seedflood.training.evaluation import evaluate
from seedflood.training.gasloc.exchange import Difference
from seedflood.training.gasloc.flat import Layout
from seedflood.training.gasloc.outer import Outer, OuterSettings, Term
from seedflood.training.gasloc.reach import WIDE
from seedflood.training.gasloc.schedule import Schedule
from seedflood.training.gasloc.trainer import NORM_FACTOR
from seedflood.training.gasloc.worker import Worker, WorkerSettings
from seedflood.training.loading import load_base, load_rows
from seedflood.training.models import BaseModel
from seedflood.training.objectives.batches import Batch, LabelledBatch
from seedflood.training.objectives.objective import Batches
from seedflood.training.shards import equal_shares
from study.methods.gasloc import arrived

SEEDS = (1, 2, 3)
CROWDS = ((4, 1), (8, 2))
"""(hosts, how many of them lie)"""

PARTS = ("embedded", "fine-tuning", "pre-training")
STEPS, LOCAL_STEPS = 48, 4
TRAIN_EXAMPLES = 1024
BATCH_SIZE = 8
RATES = {"embedded": 1e-3, "fine-tuning": 5e-4}

LOSS_MAX, HONEST_LOSS_MAX = 0.06, 0.005
"""How much worse a run with liars may end than one without them, and an honest one than by plain mixing."""

OUTERS = {
    "plain": OuterSettings(encoding="bfloat16"),
    "bounded": OuterSettings(encoding="bfloat16", is_bounded=True),
}


@dataclass(frozen=True, slots=True)
class Scene:
    """What a liar knows. honest: the mean of the honest hosts, before the exchange. start: the base model. progress:
    how far the first host has come in this round; (F,) each. layout: of the tensors in them. seed: of the run."""

    round: int
    honest: Tensor
    start: Tensor
    progress: Tensor
    layout: Layout
    seed: int

    def drawn(self) -> Tensor:
        """The same random direction in every round, for all liars; each tensor as large as in `progress`."""
        generator = torch.Generator().manual_seed(self.seed)
        return self._as_large(torch.randn(len(self.honest), generator=generator), self.progress)

    def noise(self) -> Tensor:
        """Random numbers; each tensor as large as that of an honest host."""
        generator = torch.Generator().manual_seed(1_000 * self.seed + self.round)
        return self._as_large(torch.randn(len(self.honest), generator=generator), self.honest)

    def _as_large(self, drawn_F: Tensor, model_F: Tensor) -> Tensor:
        made_F = torch.zeros_like(drawn_F)
        for place in self.layout.places:
            part = slice(place.start, place.end)
            made_F[part] = drawn_F[part] * (model_F[part].norm() / drawn_F[part].norm())
        return made_F


def blow_up(scene: Scene) -> Tensor:
    """One matrix, the last of the layers, as large as a host may be."""
    made_F, places = scene.honest.clone(), [place for place in scene.layout.places if len(place.shape) > 1]
    part = slice(places[-1].start, places[-1].end)
    made_F[part] *= 0.9 * NORM_FACTOR * scene.start.norm() / made_F[part].norm()
    return made_F


def prick(scene: Scene) -> Tensor:
    """One number of each tensor, as large as a host may be."""
    made_F, starts = scene.honest.clone(), [place.start for place in scene.layout.places]
    made_F[starts] = 0.9 * NORM_FACTOR * scene.start.norm() / math.sqrt(len(starts))
    return made_F


LIES: Mapping[str, Callable[[Scene], Tensor]] = {
    "minus": lambda scene: -scene.honest,
    "random": Scene.noise,
    "blown_up": blow_up,
    "needles": prick,
    "zeros": lambda scene: torch.zeros_like(scene.honest),
    "drift": lambda scene: scene.honest + (scene.round + 1) * scene.drawn(),
    "old": lambda scene: scene.start,
    "turned": lambda scene: 2 * scene.start - scene.honest,
}
"""turned: it comes as far as the others, the other way. drift: all liars further and further in one direction."""

WRONG = "wrong_rows"
"""It trains like the others, on wrong labels, or on tokens of which each stands for another one."""

KINDS = (*LIES, WRONG)


class WrongRows:
    """Rows whose answers are wrong, for a worker."""

    def __init__(self, rows: Batches, vocabulary: int) -> None:
        self.objective = rows.objective
        self.validation = rows.validation
        self._rows = rows
        self._others_V = torch.randperm(vocabulary, generator=torch.Generator().manual_seed(1))

    def batch(self, origin: int, step: int) -> Batch:
        batch = self._rows.batch(origin, step)
        if isinstance(batch, LabelledBatch):
            return replace(batch, label_B=1 - batch.label_B)
        return replace(batch, tokens_BT=self._others_V[batch.tokens_BT])


@dataclass(frozen=True, slots=True)
class Host:
    worker: Worker
    outer: Outer
    rows: Batches


@dataclass(frozen=True, slots=True)
class Course:
    """Figures of the first host at the end, which is honest."""

    loss: float
    accuracy: float


Change = Callable[[Batches, int], Batches]
"""What becomes of a host's rows; the number is that of the words in the vocabulary."""


@dataclass(frozen=True, slots=True)
class Play:
    """A run. part: of `PARTS`. liars: so many of the hosts lie, the last ones. kind: of the lie."""

    part: str
    outer: OuterSettings
    seed: int
    hosts: int
    liars: int = 0
    kind: str = ""

    def course(self) -> Course:
        hosts = [self._host(index) for index in range(self.hosts)]
        honest, lying = hosts[: self.hosts - self.liars], hosts[self.hosts - self.liars :]
        layout, start_F = hosts[0].worker.flat.layout, hosts[0].outer.values_F.clone()
        for round_ in range(STEPS // LOCAL_STEPS):
            before_F = hosts[0].outer.values_F.clone()
            for host in hosts if self.kind == WRONG else honest:
                host.worker.take_steps(LOCAL_STEPS)
            step_F = hosts[0].outer.values_F - before_F
            self._lie(lying, Scene(round_, _mean(honest), start_F, step_F, layout, self.seed))
            self._exchange(hosts, round_)
        closing_round = STEPS // LOCAL_STEPS
        self._lie(lying, Scene(closing_round, _mean(honest), start_F, step_F, layout, self.seed))
        self._exchange(hosts, closing_round)
        found = evaluate(hosts[0].worker.causal, hosts[0].rows)
        return Course(found.loss, found.figures["accuracy"])

    def _host(self, index: int) -> Host:
        is_wrong = self.kind == WRONG and index >= self.hosts - self.liars
        change: Change = WrongRows if is_wrong else lambda rows, _: rows
        if self.part == "pre-training":
            module, rows = _scratch(self.seed, index)
            settings = WorkerSettings(learning_rate=pretrain.ADAMW_RATE, schedule=Schedule(STEPS // 10, STEPS))
        else:
            module, rows = self._tuned(index)
            settings = WorkerSettings(learning_rate=RATES[self.part], schedule=Schedule(0, STEPS))
        rows = change(rows, module.config.vocab_size)
        worker = Worker(module, rows, index, settings)
        starts = [place.start for place in worker.flat.layout.places]
        return Host(worker, Outer(worker.flat.values_F, self.outer, starts), rows)

    def _tuned(self, index: int) -> tuple[Any, Batches]:
        run, node = _settings(self.part, seed=self.seed, clients=self.hosts)
        base = _base(self.part)
        rows = load_rows(run, equal_shares(node, self.hosts)[index], base)
        return copy.deepcopy(base.model), rows

    def _lie(self, lying: Sequence[Host], scene: Scene) -> None:
        for host in lying:
            if self.kind in LIES:
                host.outer.values_F.copy_(LIES[self.kind](scene))

    def _exchange(self, hosts: Sequence[Host], round_: int) -> None:
        """Everyone exchanges with its partners of the round; in the closing one with all, and exactly."""
        is_closing = round_ == STEPS // LOCAL_STEPS
        graph: dict[Edge, int] = {edge_of(one, other): 0 for one in range(len(hosts)) for other in range(one)}
        partners = match(graph, Lottery(self.seed), round_, None if is_closing else 1)
        offers = [host.outer.propose("float32" if is_closing else None) for host in hosts]
        arrivals = [arrived(offer) for offer in offers]
        mixes: list[list[Term]] = []
        for place, offer in enumerate(offers):
            its = partners.get(place, ())
            degrees = {other: max(len(its), len(partners[other])) for other in its}
            mixes.append([Term(weight(degrees[other]), Difference(offer, arrivals[other])) for other in its])
        for host, terms in zip(hosts, mixes, strict=True):
            host.outer.mix(terms, has_momentum=not is_closing, width=WIDE if is_closing else 1.0)


def run(parts: Sequence[str] = ()) -> dict[str, Metric]:
    """parts: of `PARTS`; without, all."""
    metrics: dict[str, Metric] = {}
    for part in parts or PARTS:
        for hosts, liars in CROWDS:
            metrics |= _compare(part, hosts, liars)
    return metrics


def _compare(part: str, hosts: int, liars: int) -> dict[str, Metric]:
    """One crowd: honest, then with liars of each kind; each with plain mixing and bounded."""
    all_plain = _all_seeds("plain", Play(part, OUTERS["plain"], 1, hosts))
    target = mean(one.loss for one in all_plain.courses) + HONEST_LOSS_MAX
    found = [all_plain, _all_seeds("bounded", Play(part, OUTERS["bounded"], 1, hosts), target)]
    without = _all_seeds("plain", Play(part, OUTERS["plain"], 1, hosts - liars))
    target = mean(one.loss for one in without.courses) + LOSS_MAX
    found.append(without)
    for kind in KINDS:
        for how, outer in OUTERS.items():
            play = Play(part, outer, 1, hosts, liars, kind)
            found.append(_all_seeds(how, play, target if how == "bounded" else None))
    return {name: metric for one in found for name, metric in one.metrics().items()}


@dataclass(frozen=True, slots=True)
class Compared:
    """All seeds of a run. target: of the loss."""

    name: str
    courses: Sequence[Course]
    target: float | None

    def metrics(self) -> dict[str, Metric]:
        losses, accuracies = [one.loss for one in self.courses], [one.accuracy for one in self.courses]
        return {
            f"byzantine_gossip.{self.name}_loss": make_metric(losses, self.target),
            f"byzantine_gossip.{self.name}_accuracy": make_metric(accuracies),
        }


def _all_seeds(how: str, play: Play, target: float | None = None) -> Compared:
    courses = [replace(play, seed=seed).course() for seed in SEEDS]
    lie = f"{play.liars}_of_{play.hosts}_{play.kind}" if play.kind else f"{play.hosts}_honest"
    name = f"{play.part.replace('-', '_')}_{lie}_{how}"
    told = ", ".join(f"{one.accuracy:.3f}/{one.loss:.3f}" for one in courses)
    print(f"{name}: accuracy/loss {told}", file=sys.stderr, flush=True)
    return Compared(name, courses, target)


def _mean(hosts: Sequence[Host]) -> Tensor:
    return torch.stack([host.outer.values_F for host in hosts]).mean(dim=0)


def _scratch(seed: int, index: int) -> tuple[Any, Batches]:
    settings = WorkerSettings(learning_rate=pretrain.ADAMW_RATE)
    algorithm = pretrain.Algorithm("GASLoC", settings, OUTERS["plain"], pretrain.gossip)
    trainer = pretrain.make_trainer(algorithm, seed, index % pretrain.WORKERS)
    return trainer.base.model, trainer.task


def _settings(part: str, **changes: Any) -> tuple[RunSettings, NodeSettings]:
    told = {"steps": STEPS, "batch_size": BATCH_SIZE, **changes}
    if part == "embedded":
        run = RunSettings.of(model="embedded", task="embedded", **told)
        return run, NodeSettings(data="embedded", device="cpu")
    shared = shared_folder()
    model = str(shared / "models" / "tiny-opt")
    run = RunSettings.of(model=model, task="sst2", train_examples=TRAIN_EXAMPLES, **told)
    return run, NodeSettings(data=str(shared / "data" / "sst2"), device="cpu")


@cache
def _base(part: str) -> BaseModel:
    return load_base(*_settings(part))
