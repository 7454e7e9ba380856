"""What comes of a run: evaluations before, during and after it.

The model is asked on the compute thread; figures are told to whoever watches the node and kept in `result.json`.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from seedflood.config import Settings
from seedflood.host.compute_thread import Run, nothing
from seedflood.host.report import Figures, Report
from seedflood.operations.hub import TelemetryHub
from seedflood.training.evaluation import Evaluation


class Learner(Protocol):
    """A trainer, whatever it trains by; for the compute thread alone."""

    def complete(self) -> None:
        """The run is over: nothing is left open."""

    def evaluate(self) -> Evaluation: ...

    def export(self, folder: Path) -> Path:
        """Writes the model as a Hugging Face folder."""

    def digest(self) -> bytes:
        """32 bytes of what was learned."""


class Results:
    """report: the figures, as far as they are known."""

    def __init__(self, settings: Settings, trainer: Learner, report: Report, hub: TelemetryHub, run: Run) -> None:
        self.report = report
        self._settings = settings
        self._trainer = trainer
        self._hub = hub
        self._run = run

    def evaluate_before(self) -> None:
        """Figures of the base model: measured in the first life of a node, remembered in all later ones."""
        if self._settings.node.evaluate and not self.report.recall():

            def remember(figures: Figures) -> None:
                self.report.before = figures
                self.report.keep()

            self._evaluate(0, remember)

    def evaluate_on_the_way(self, step: int) -> None:
        """If the settings want it now."""
        every = self._settings.node.evaluate_every
        if every and step - self.report.evaluated_at >= every and step < self._settings.run.steps:
            self.report.evaluated_at = step
            self._evaluate(step, nothing)

    def conclude(self, then: Callable[[bytes], None]) -> None:
        """The run is over: final figures and export; `then` is given the digest."""
        self._run(self._trainer.complete, nothing)
        if self._settings.node.evaluate:
            self._evaluate(self._settings.run.steps, self.report.after.update)
        folder = self._settings.node.export
        if folder is not None:
            self._run(
                lambda: self._trainer.export(folder),
                lambda path: self._hub.tell("exported", folder=str(path)),
            )
        self._run(self._trainer.digest, then)

    def _evaluate(self, step: int, then: Callable[[Figures], None]) -> None:
        def tell(result: Evaluation) -> None:
            figures = result.rounded()
            self._hub.evaluated(step, figures, result.rows)
            then({**figures, "rows": result.rows})

        self._run(self._trainer.evaluate, tell)
