"""A whole run in one process, without a network: what `seedflood tune` and the benchmarks learn from.

In strict windows every replica holds the same updates when it measures, so one replica serves all origins: each has
rows of its own, measures on them, and what all of them told is applied when the last has measured, or with `delay = D`
so many rounds later. The same code as in a daemon does all of it (`Trainer`), so a rehearsal ends with the weights of
the run whose origins bear these ids.
"""

from collections import deque
from dataclasses import dataclass

from seedflood.config import NodeSettings, RunSettings
from seedflood.protocol.origin import OriginId
from seedflood.protocol.seedflood.messages import Update
from seedflood.training.evaluation import Evaluation
from seedflood.training.seedflood.trainer import Round, Trainer


@dataclass(frozen=True, slots=True)
class Measured:
    """A round of one origin."""

    origin: OriginId
    step: int
    round: Round


class Rehearsal:
    """All origins of a run, taking turns on one replica. Raises what loading a `Trainer` raises."""

    def __init__(self, run: RunSettings, node: NodeSettings) -> None:
        """node: its model, data and device; the shard of each origin is its own."""
        self.run = run
        shards = [node.model_copy(update={"shard": f"{k + 1}/{run.clients}"}) for k in range(run.clients)]
        first = Trainer(run, shards[0])
        self.trainers = [first, *(first.beside(shard) for shard in shards[1:])]
        self.step = 0
        """The next one."""
        self._on_the_way: deque[list[Update]] = deque()

    def advance(self) -> list[Measured]:
        """One round of every origin, measured, and the one applied whose delay is over; the last one applies all."""
        step, count = self.step, self.run.seedflood.local_steps
        told = [
            Measured(origin, step, trainer.measure(origin, step, count))
            for origin, trainer in enumerate(self.trainers, 1)
        ]
        self._on_the_way.append(
            [Update(one.origin, at, probe) for one in told for at, probe in enumerate(one.round.probes, step)]
        )
        self.step += count
        while len(self._on_the_way) > (self.run.seedflood.delay if self.step < self.run.steps else 0):
            self.trainers[0].apply(self._on_the_way.popleft())
        return told

    def evaluate(self) -> Evaluation:
        """Of the validation rows, with the weights as they stand: what is on its way is not in them."""
        return self.trainers[0].evaluate()

    @property
    def learning_rate(self) -> float:
        """Of the run, or the default."""
        return self.trainers[0].replica.learning_rate
