"""How well a swarm pre-trains: GASLoC on a ring against DiLoCo at rounds of twenty local steps, and against D-Adam and
DSGD at one step per exchange; Choco sends a tenth of the bytes. All see the same number of tokens.

Four workers in one process train a small OPT from scratch on film reviews, each on reviews of its own, and exchange
their parameters as bytes. Three run seeds. Perplexities are on held-out reviews, of every worker's own parameters, in
the mean over the workers. What is tuned is tuned with the first seed alone, for each algorithm from values of its own:
the outer step's momentum and learning rate (`OUTERS`), and SGD's learning rate.
"""

import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from statistics import mean
from typing import Any

import torch
from transformers import AutoTokenizer, OPTConfig, OPTForCausalLM

from benchmarks import swarm
from benchmarks.measure import Metric, make_metric, ratios, shared_folder
from seedflood.cluster.topology import make_topology
from seedflood.protocol.gasloc.matching import weight
from seedflood.training.encoding import TextEncoder
from seedflood.training.formats import TextFormat
from seedflood.training.gasloc.initial import draw_weights
from seedflood.training.gasloc.outer import PLAIN, Outer, OuterSettings
from seedflood.training.gasloc.packing import PackedTask, pack
from seedflood.training.gasloc.schedule import Schedule
from seedflood.training.gasloc.trainer import Trainer
from seedflood.training.gasloc.worker import WorkerSettings
from seedflood.training.models import prepare_model
from seedflood.training.rows import Row
from seedflood.training.sources import read_data
from study.methods.follower import Follower
from study.methods.follower import average as average_round
from study.methods.gasloc import gossip as gossip_round
from study.methods.largest import Choco, Sparse

SEEDS = (1, 2, 3)
WORKERS = 4
STEPS, LOCAL_STEPS = 200, 20
BATCH_SIZE, LENGTH = 8, 64
TRAIN_REVIEWS, VALIDATION_REVIEWS = 3000, 50
SHAPE: dict[str, Any] = {
    "hidden_size": 64,
    "word_embed_proj_dim": 64,
    "ffn_dim": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
}
ADAMW_RATE, WARMUP_STEPS = 4e-3, 20
SGD_RATES = (0.3, 1.0)
SINGLE_OUTERS = tuple(OuterSettings(eta, gamma) for eta, gamma in ((1.0, 0.3), (0.5, 0.5), (0.2, 0.8)))
"""For one step per exchange. eta / (1 - gamma) is 1: that is how far a steady progress is carried."""

OUTERS = tuple(OuterSettings(eta, gamma) for eta, gamma in ((1.0, 0.0), (1.0, 0.5), (0.7, 0.9)))

CHOCO_FRACTION = 0.05
CHOCO_STEPS = (0.2, 0.5)

PARTS = ("gasloc", "diloco", "single", "dadam", "dsgd", "choco", "swarm")
"""`swarm`: real daemons (`swarm`)."""

RATIOS = (("gasloc", "diloco", 1.03), ("single", "dadam", 1.0), ("single", "dsgd", 1.0), ("gasloc", "dadam", None))
"""Of perplexities, seed by seed, and what they should be at most."""

Begin = Callable[[Sequence[Follower]], Callable[[], object]]
"""Before the first local step; what it returns ends each round."""


@dataclass(frozen=True, slots=True)
class Algorithm:
    """begin: how a round ends. local_steps: how many it has. share: of the parameters' bytes, what a round sends."""

    name: str
    worker: WorkerSettings
    outer: OuterSettings
    begin: Begin
    local_steps: int = LOCAL_STEPS
    share: float = 1.0


@dataclass(frozen=True, slots=True)
class Course:
    """perplexity: mean over the workers. spread: the largest less the least. sent_bytes: per worker and link."""

    perplexity: float
    spread: float
    seconds: float
    sent_bytes: int


def run(parts: Sequence[str] = ()) -> dict[str, Metric]:
    """parts: of `PARTS`; without, all."""
    adamw = WorkerSettings("AdamW", ADAMW_RATE, schedule=Schedule(WARMUP_STEPS, STEPS))
    sgd = [replace(adamw, optimiser="SGD", learning_rate=rate, options={"momentum": 0.9}) for rate in SGD_RATES]
    algorithms = {
        "gasloc": [Algorithm("GASLoC", adamw, outer, gossip) for outer in OUTERS],
        "diloco": [Algorithm("DiLoCo", adamw, outer, average) for outer in OUTERS],
        "single": [Algorithm("GASLoC", adamw, outer, gossip, 1) for outer in SINGLE_OUTERS],
        "dadam": [Algorithm("D-Adam", adamw, PLAIN, gossip, 1)],
        "dsgd": [Algorithm("DSGD", one, PLAIN, gossip, 1) for one in sgd],
        "choco": [
            Algorithm("Choco", adamw, PLAIN, partial(tell_largest, step), share=2 * CHOCO_FRACTION)
            for step in CHOCO_STEPS
        ],
    }
    found = {name: _all_seeds(algorithms[name]) for name in parts or algorithms if name in algorithms}
    metrics = {f"pretrain.{name}_perplexity": make_metric(_perplexities(courses)) for name, courses in found.items()}
    for name, other, target in RATIOS:
        if name in found and other in found:
            values = ratios(_perplexities(found[name]), _perplexities(found[other]))
            metrics[f"pretrain.{name}_to_{other}"] = make_metric(values, target)
    if not parts or "swarm" in parts:
        metrics |= swarm.run()
    return metrics


def gossip(outers: Sequence[Outer]) -> Callable[[], object]:
    """Everyone exchanges with both neighbours on a ring."""
    return partial(gossip_round, outers, _neighbours(len(outers)))


def tell_largest(step: float, outers: Sequence[Outer]) -> Callable[[], None]:
    """Choco: everyone sends both neighbours on a ring the largest of what they do not know of it. step: how far it goes
    towards what they sent."""
    workers = [Choco(outer.values_F, fraction=CHOCO_FRACTION, gamma=step) for outer in outers]
    neighbours = _neighbours(len(outers))

    def end() -> None:
        sent = [Sparse.unpack(worker.propose().pack(), len(worker.public_F)) for worker in workers]
        for worker, its, others in zip(workers, sent, neighbours, strict=True):
            share = weight(len(others))
            worker.mix(its, [(share, sent[other]) for other in others])

    return end


def average(outers: Sequence[Follower]) -> Callable[[], object]:
    """Everyone follows the mean, as an all-reduce makes it."""
    return partial(average_round, outers)


def follow(algorithm: Algorithm, seed: int) -> Course:
    """All workers of an algorithm, side by side."""
    trainers = [make_trainer(algorithm, seed, index) for index in range(WORKERS)]
    outers = [Follower(trainer.worker.flat.values_F, trainer.outer.settings) for trainer in trainers]
    begun, sent, end_round = time.perf_counter(), 0, algorithm.begin(outers)
    while trainers[0].worker.step < STEPS:
        for trainer in trainers:
            trainer.worker.take_steps(algorithm.local_steps)
        end_round()
        sent += int(algorithm.share * 4 * len(trainers[0].worker.flat.values_F))
    seconds = time.perf_counter() - begun
    found = [trainer.evaluate().figures["perplexity"] for trainer in trainers]
    return Course(mean(found), max(found) - min(found), seconds, sent)


def _all_seeds(tries: Iterable[Algorithm]) -> list[Course]:
    """Of the one that is best with the first seed."""
    tried = [(_printed(one, SEEDS[0]), one) for one in tries]
    first, best = min(tried, key=lambda one: one[0].perplexity)
    return [first, *(_printed(best, seed) for seed in SEEDS[1:])]


def _perplexities(courses: Sequence[Course]) -> list[float]:
    return [course.perplexity for course in courses]


def _printed(algorithm: Algorithm, seed: int) -> Course:
    course = follow(algorithm, seed)
    outer, worker = algorithm.outer, algorithm.worker
    print(
        f"{algorithm.name}, seed {seed}: {worker.optimiser} {worker.learning_rate:g}, eta {outer.eta:g}, gamma "
        f"{outer.gamma:g}, {algorithm.local_steps} local steps: perplexity {course.perplexity:.1f} (spread "
        f"{course.spread:.1f}), {course.seconds:.0f} s, {course.sent_bytes / 1e6:.1f} MB per link",
        file=sys.stderr,
        flush=True,
    )
    return course


def make_trainer(algorithm: Algorithm, seed: int, index: int) -> Trainer:
    tokenizer, packed, held_out = _data()
    config = OPTConfig(
        vocab_size=len(tokenizer),
        max_position_embeddings=256,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        dropout=0.0,
        **SHAPE,
    )
    module = OPTForCausalLM(config)
    draw_weights(module, seed)
    task = PackedTask(packed[index], held_out, batch_size=BATCH_SIZE, run_seed=seed)
    return Trainer(prepare_model(module, tokenizer), task, index, algorithm.worker, algorithm.outer)


@cache
def _data() -> tuple[Any, list[torch.Tensor], torch.Tensor]:
    """The tokenizer, packed rows of every worker, and those that nobody trains on."""
    shared = shared_folder()
    tokenizer = AutoTokenizer.from_pretrained(shared / "models" / "tiny-opt")
    splits = read_data(str(shared / "data" / "imdb"))
    train, validation = splits.train.rows, splits.validation.rows
    shares: list[list[Row]] = [train[index:TRAIN_REVIEWS:WORKERS] for index in range(WORKERS)]
    encoder = TextEncoder(tokenizer, TextFormat(), LENGTH)
    return tokenizer, [pack(share, encoder) for share in shares], pack(validation[:VALIDATION_REVIEWS], encoder)


def _neighbours(workers: int) -> list[list[int]]:
    edges = make_topology("ring", workers)
    return [[sum(edge) - worker for edge in edges if worker in edge] for worker in range(workers)]
