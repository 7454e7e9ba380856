"""SeedFlood (arXiv 2602.18181), and this project's estimates beside the paper's: the code of a daemon, in one process.

In strict windows all replicas are equal, so one stands for all (`Rehearsal`). With the option `hops` everyone has one
of its own (`Relay`). Bytes are those of real frames, signed and encoded, one for each bundle: a daemon that sends
several at once sends less. In a flood a host forwards a bundle to all neighbours but the one that it came from. So each
bundle is sent 2 edges - clients + 1 times.
"""

import time
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from seedflood.config import RunSettings
from seedflood.identity import Identity
from seedflood.protocol.seedflood.bundles import Updates, make_bundle
from seedflood.training.causal import CausalModel
from seedflood.training.loading import load_base
from seedflood.training.seedflood.rehearsal import Rehearsal, Turn
from seedflood.training.seedflood.trainer import Trainer, make_replica
from seedflood.transport.codec import encode
from study.methods.clients import timed
from study.methods.method import Cost, Method, Option, Order, Problem
from study.methods.relay import Relay

TIMES_DEFAULT: tuple[Mapping[str, Option], ...] = tuple({"times_default": factor} for factor in (0.1, 0.3, 1.0, 3.0))
"""Learning rates, as multiples of the one that the daemon takes by itself."""


class TwoSided(Method):
    """The paper's estimate, in the project's subspace. Options are keys of [run.seedflood]; times_default: the learning
    rate, as a multiple of the default; hops: how far an update goes in a round (as far as it has to, without it)."""

    source = "SeedFlood, arXiv 2602.18181, algorithm 1 and section 4"
    order: ClassVar[Order] = "zeroth"
    grid = TIMES_DEFAULT
    settings: ClassVar[Mapping[str, Any]] = {"estimate": "two-sided"}

    def __init__(self, problem: Problem) -> None:
        options = {**self.settings, **problem.options}
        factor, hops = float(options.pop("times_default", 1.0)), options.pop("hops", None)
        run = _with(problem.run, options)
        default = make_replica(run, load_base(run, problem.node), problem.node).default_rate
        self._graph = problem.graph
        self._hops = int(hops or problem.graph.diameter)
        self.run = _with(run, {**options, "learning_rate": factor * default})
        self._swarm = (
            Relay(self.run, problem.hosts, problem.graph, self._hops) if hops else Rehearsal(self.run, problem.hosts)
        )
        self._key, self._run_id = Identity.generate(), run.run_id()

    def advance(self) -> Cost:
        clients = self._graph.clients
        begun = time.perf_counter()
        with timed() as seconds:
            turns = self._swarm.advance()
        share = sum(one.round.seconds for one in turns) / (time.perf_counter() - begun)
        steps = len(turns[0].round.probes)
        frames = sum(frame_bytes(one, self._key, self._run_id) for one in turns)
        forwards, backwards = self._passes(steps)
        return Cost(
            steps,
            frames * flood_share(len(self._graph.edges), clients),
            min(self._hops, self._graph.diameter),
            forwards,
            backwards,
            share * seconds[0] / clients,
            (1 - share) * seconds[0] / len(self._replicas),
        )

    def average(self) -> CausalModel:
        swarm = self._swarm
        return swarm.average() if isinstance(swarm, Relay) else swarm.trainers[0].replica.causal

    def consensus_error(self) -> float:
        return self._swarm.consensus_error() if isinstance(self._swarm, Relay) else 0.0

    def digests(self) -> set[bytes]:
        """Of all replicas."""
        return {trainer.digest() for trainer in self._replicas}

    @property
    def _replicas(self) -> Sequence[Trainer]:
        """One trainer of each replica."""
        return self._swarm.trainers if isinstance(self._swarm, Relay) else self._swarm.trainers[:1]

    def _passes(self, steps: int) -> tuple[float, float]:
        """Forwards and backwards of a round of so many steps."""
        return 2.0 * steps, 0.0


class Coefficients(TwoSided):
    """The gradient in the subspace, all of it, by its signs."""

    source = "this project: gradients in the subspace (ARCHITECTURE.md)"
    order = "first"
    settings: ClassVar[Mapping[str, Any]] = {"estimate": "gradient"}

    def _passes(self, steps: int) -> tuple[float, float]:
        return float(steps), float(steps)


def frame_bytes(turn: Turn, key: Identity, run_id: bytes) -> int:
    """Of the bundle of a round, as it goes over a link."""
    bundle = make_bundle(turn.origin, turn.step, turn.round.probes)
    signed = bundle.with_signature(key.sign(bundle.signed_bytes(run_id, key.public_key)))
    return sum(len(frame) for frame in encode(Updates((signed,))))


def flood_share(edges: int, clients: int) -> float:
    """How often a bundle goes over an edge in one direction, in the mean, until everyone has it."""
    return (2 * edges - clients + 1) / (2 * edges)


def _with(run: RunSettings, options: Mapping[str, Any]) -> RunSettings:
    given = run.model_dump(exclude={"seedflood", "gasloc", "objective"}, exclude_unset=True)
    return RunSettings(**given, objective=run.objective, seedflood=options)
