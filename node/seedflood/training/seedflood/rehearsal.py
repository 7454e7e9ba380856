"""A whole run in one process, without a network: what benchmarks and the study learn from.

In strict windows every replica holds the same updates when it measures, so one replica serves all origins. Each origin
has rows of its own and measures on them. What all of them published is applied when the last one has measured, or with
`delay = D` that many rounds later. The code is that of a daemon (`Trainer`), so a rehearsal ends with the weights of
the run whose origins have these ids; but for `ahead`, with which texts are here as old as they may be.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from seedflood.config import NodeSettings, RunSettings
from seedflood.protocol.origin import OriginId
from seedflood.protocol.seedflood.bundles import Update
from seedflood.protocol.seedflood.turns import Turns
from seedflood.training.evaluation import Evaluation
from seedflood.training.seedflood.trainer import Round, Trainer


@dataclass(frozen=True, slots=True)
class Turn:
    """A round of one origin."""

    origin: OriginId
    step: int
    round: Round


class Rehearsal:
    """All origins of a run, taking turns on one replica. Raises what loading a `Trainer` raises."""

    def __init__(self, run: RunSettings, hosts: Sequence[NodeSettings]) -> None:
        """hosts: says of each origin where its rows are; of the first one, which model and device."""
        self.run = run
        first = Trainer(run, hosts[0])
        self.trainers = [first, *(first.beside(host) for host in hosts[1:])]
        rounds, count = run.seedflood.turn_rounds(run.clients), run.seedflood.local_steps
        self._turns = Turns(rounds, count, run.run_id())
        self.step = 0
        """The next step."""
        self._on_the_way: deque[list[Update]] = deque()

    def advance(self) -> list[Turn]:
        """Measures one round of every origin whose turn it is, and applies the round whose delay is over; after the
        last round, all of them."""
        step, count = self.step, self.run.seedflood.local_steps
        turns = [
            Turn(origin, step, trainer.measure(origin, step, count))
            for origin, trainer in enumerate(self.trainers, 1)
            if self._turns.has(origin, step)
        ]
        if self.run.objective.ahead:
            for origin, trainer in enumerate(self.trainers, 1):
                while trainer.write_ahead(origin, step + count - 1):
                    pass
        self._on_the_way.append(
            [Update(one.origin, at, probe) for one in turns for at, probe in enumerate(one.round.probes, step)]
        )
        self.step += count
        while len(self._on_the_way) > (self.run.seedflood.delay if self.step < self.run.steps else 0):
            self.trainers[0].replica.apply(self._on_the_way.popleft())
        return turns

    def evaluate(self) -> Evaluation:
        """The figures over the validation rows, with the weights as they are: rounds that are delayed are not in
        them."""
        return self.trainers[0].evaluate()

    @property
    def learning_rate(self) -> float:
        """The learning rate of the run, or the default one."""
        return self.trainers[0].replica.learning_rate
