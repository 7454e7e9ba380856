"""What came of a run: evaluations before, during and after it, and the result that is printed and kept.

The model is asked on the compute thread; figures are told to whoever watches the node and kept in `result.json`.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any

import structlog

from seedflood.config import Settings
from seedflood.errors import JournalError
from seedflood.host.compute_thread import Run, nothing
from seedflood.host.report import RESULT_FILE, Figures, Report
from seedflood.operations.hub import TelemetryHub
from seedflood.training.evaluation import Evaluation
from seedflood.training.seedflood.trainer import Trainer

_log = structlog.stdlib.get_logger("seedflood")


class Results:
    """report: the figures, as far as they are known."""

    def __init__(self, settings: Settings, trainer: Trainer, hub: TelemetryHub, run: Run) -> None:
        self.report = Report(settings.node.state / RESULT_FILE, trainer.task.objective.names)
        self._settings = settings
        self._trainer = trainer
        self._hub = hub
        self._run = run

    def evaluate_before(self) -> None:
        """Figures of the base model: measured in the first life of a node, remembered in all later ones."""
        if self._settings.node.evaluate and not self.report.recall():

            def remember(figures: Figures) -> None:
                self.report.before = figures
                self.keep()

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

    def publish(self, result: Mapping[str, Any]) -> None:
        """On stdout, and in the state folder."""
        self.keep(dict(result))
        self._hub.tell("finished", digest=result["digest"][:16], steps=result["steps"])
        try:
            print(json.dumps(result), flush=True)
        except OSError as error:
            _log.warning("nobody reads stdout; the result is in the state folder", reason=str(error))

    def keep(self, result: dict[str, Any] | None = None) -> None:
        try:
            self.report.keep(result)
        except JournalError as error:  # figures are no reason to end: a full disk may have space again
            _log.warning("figures were not kept", reason=str(error))

    def _evaluate(self, step: int, then: Callable[[Figures], None]) -> None:
        def tell(result: Evaluation) -> None:
            figures = result.rounded()
            self._hub.evaluated(step, figures, result.rows)
            then({**figures, "rows": result.rows})

        self._run(self._trainer.evaluate, tell)
