"""The results of a run: evaluations before, during and after it, and the exported model.

The model is evaluated on the compute thread. Figures go to the telemetry hub and into `result.json`.
"""

import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, Protocol

import structlog

from seedflood.config import Settings
from seedflood.host.compute_thread import Run, nothing
from seedflood.host.occasions import Occasions
from seedflood.host.report import Figures, Report
from seedflood.operations.hub import TelemetryHub
from seedflood.operations.rise import Best, find_rise
from seedflood.training.card import Learned, model_card
from seedflood.training.evaluation import Evaluation
from seedflood.training.generation import Sample
from seedflood.transport.links import Links

_log = structlog.stdlib.get_logger("seedflood")


class Learner(Protocol):
    """The trainer of any algorithm. Only the compute thread calls it."""

    def complete(self) -> None:
        """Called when the run is over: finishes what is still open."""

    def evaluate(self) -> Evaluation: ...

    def samples(self) -> list[Sample]:
        """What the model says to some prompts, if the task has any."""

    def export(self, folder: Path, card: str) -> Path:
        """Writes the model as a Hugging Face folder with a model card."""

    @property
    def base_digest(self) -> bytes:
        """Of the weights before training, 32 bytes."""

    def count_rows(self) -> dict[str, int]:
        """How many rows there are, by what they are for."""

    def digest(self) -> bytes:
        """A digest of what was learned, 32 bytes."""


class Results:
    """report: the figures that are known so far. digest: of what was learned; set when the run is concluded."""

    digest: bytes

    def __init__(self, settings: Settings, trainer: Learner, report: Report, hub: TelemetryHub, run: Run) -> None:
        self.report = report
        self._settings = settings
        self._trainer = trainer
        self._hub = hub
        self._run = run
        node = settings.node
        self._is_evaluated = node.evaluate_examples != 0
        self._occasions = Occasions(node.evaluate_every if self._is_evaluated else 0, settings.run.steps)
        self._told_at = float("-inf")

    def evaluate_before(self) -> None:
        """Evaluates the base model. This is done in a node's first life; later lives read the figures from the
        report."""
        if self._is_evaluated and not self.report.recall():

            def remember(figures: Figures) -> None:
                self.report.before = figures
                self.report.keep()

            self._evaluate(0, remember)
            self._write_samples("before")

    def evaluate_on_the_way(self, step: int) -> None:
        """Evaluates after `step` steps, if it is time for that."""
        if self._occasions.is_due(step, self._hub.measured_seconds):
            self._evaluate(step, nothing)

    def tell_progress(self, step: int, links: Links, facts: Callable[[], dict[str, Any]]) -> None:
        """Logs how far the run is, if it is time for that, or at its end. facts: what the algorithm adds."""
        hub, steps, now = self._hub, self._settings.run.steps, time.monotonic()
        if step < steps and now - self._told_at < self._settings.node.progress_seconds:
            return
        self._told_at = now
        _log.info(
            "progress",
            step=step,
            steps=steps,
            loss=hub.loss,
            step_seconds=round(hub.step_seconds or 0.0, 4),
            spent_seconds=round(hub.spent_seconds() or 0.0, 3),
            sent_bytes=sum(one.bytes_sent for one in links.totals.stats().values()),
            peers=len(links.open),
            **facts(),
        )

    def conclude(self, then: Callable[[], None], steps: int | None = None) -> None:
        """Called when the run is over: final evaluation and export, then `then`. steps: of it, if it ended sooner."""
        self._run(self._trainer.complete, nothing)
        if self._is_evaluated:
            self._evaluate(steps or self._settings.run.steps, self.report.after.update)
            self._write_samples("after")
        self._run(self._trainer.digest, lambda digest: self._export(digest, then))

    def _export(self, digest: bytes, then: Callable[[], None]) -> None:
        """Writes the model, if one is wanted. By now the final figures are known, for its card."""
        folder, trainer = self._settings.node.export, self._trainer
        self.digest = digest
        if folder is None:
            then()
            return

        def export() -> Path:
            rows, figures = trainer.count_rows(), self.report.figures()
            learned = Learned(self._settings.run, trainer.base_digest, digest, rows, figures)
            return trainer.export(folder, model_card(learned))

        def tell(path: Path) -> None:
            self._hub.tell("exported", folder=str(path))
            then()

        self._run(export, tell)

    def _evaluate(self, step: int, then: Callable[[Figures], None]) -> None:
        def evaluate() -> tuple[Evaluation, float]:
            began = time.monotonic()
            return self._trainer.evaluate(), time.monotonic() - began

        def tell(done: tuple[Evaluation, float]) -> None:
            result, seconds = done
            self._occasions.took(seconds, self._hub.measured_seconds)
            figures, best = result.rounded(), self.report.best
            rise = find_rise(step, result.loss, best, result.texts)
            self._hub.evaluated(step, figures, result.counts(), rise)
            if math.isfinite(result.loss) and (best is None or result.loss < best.loss):
                self.report.best = Best(step, result.loss)
                self.report.keep()  # a node that was restarted is to see that the loss has risen
            then({**figures, **result.counts()})

        self._run(evaluate, tell)

    def _write_samples(self, when: Literal["before", "after"]) -> None:
        """Has the model answer prompts of validation rows, for people to see what it has learned."""

        def tell(samples: list[Sample]) -> None:
            for number, one in enumerate(samples):
                self.report.sampled(number, when, one)
                self._hub.tell(f"written {when}", prompt=one.prompt, written=one.written)

        self._run(self._trainer.samples, tell)
