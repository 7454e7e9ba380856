"""The results of a run: evaluations before, during and after it, and the exported model.

The model is evaluated on the compute thread. Figures go to the telemetry hub and into `result.json`.
"""

import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, Protocol

from seedflood.config import Settings
from seedflood.errors import SeedfloodError
from seedflood.host.compute import Run, nothing
from seedflood.host.evaluation_schedule import EvaluationSchedule
from seedflood.host.places import JOURNAL_FILE
from seedflood.host.report import Figures, Report
from seedflood.log import log
from seedflood.operations.hub import TelemetryHub
from seedflood.operations.rise import Best, find_rise
from seedflood.training.card import Learned, model_card
from seedflood.training.evaluation import Evaluation
from seedflood.training.generation import Sample
from seedflood.transport.links import Links

UNEXPORTED = "the model was not exported; what was learned is kept, and a node that starts again tries once more"

UNEXPORTABLE = "the model could not be exported now; the run goes on"


class Learner(Protocol):
    """The trainer of any algorithm. Only the compute thread calls it."""

    def complete(self) -> None:
        """Called when the run is over: finishes what is still open."""

    def evaluate(self) -> Evaluation: ...

    def samples(self) -> list[Sample]:
        """What the model says to some prompts, if the task has any."""

    def export(self, folder: Path, card: str) -> Path:
        """Writes the model as a Hugging Face folder with a model card. Raises SeedfloodError."""

    def try_export(self, folder: Path) -> None:
        """Does the same with no weights, and leaves nothing. Raises SeedfloodError if the export would."""

    @property
    def base_digest(self) -> bytes:
        """Of the weights before training, 32 bytes."""

    def count_rows(self) -> dict[str, int]:
        """How many rows there are, by what they are for."""

    def digest(self) -> bytes:
        """A digest of what was learned, 32 bytes."""


def try_export(settings: Settings, trainer: Learner) -> SeedfloodError | None:
    """What would refuse the export at the end of a run is reported before it begins. Called on the compute thread,
    before the journal is opened. Raises SeedfloodError.

    A host that has begun goes on: others may wait for it, and what is wrong may be mended until the end. Returns what
    is wrong there.
    """
    folder = settings.node.export
    has_begun = (settings.node.state / JOURNAL_FILE).exists()
    try:
        if folder is not None:
            trainer.try_export(folder)
    except SeedfloodError as error:
        if not has_begun:
            raise
        return error
    return None


class Results:
    """report: the figures that are known so far. digest: of what was learned; set when the run is concluded.
    unexported: why the model was not exported at the end of the run."""

    digest: bytes
    unexported: Exception | None = None

    def __init__(self, settings: Settings, trainer: Learner, report: Report, hub: TelemetryHub, run: Run) -> None:
        self.report = report
        self._settings = settings
        self._trainer = trainer
        self._hub = hub
        self._run = run
        node = settings.node
        self._is_evaluated = node.evaluate_examples != 0
        self._evaluation_schedule = EvaluationSchedule(
            node.evaluate_every if self._is_evaluated else 0, settings.run.steps
        )
        self._logged_at = float("-inf")

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
        if self._evaluation_schedule.is_due(step, self._hub.measured_seconds):
            self._evaluate(step, nothing)

    def log_progress(self, step: int, links: Links, facts: Callable[[], dict[str, Any]]) -> None:
        """Logs how far the run is, if it is time for that, or at its end. facts: what the algorithm adds."""
        hub, steps, now = self._hub, self._settings.run.steps, time.monotonic()
        if step < steps and now - self._logged_at < self._settings.node.progress_seconds:
            return
        self._logged_at = now
        log.info(
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

    def conclude(self, then: Callable[[], None], step: int) -> None:
        """Called when the run is over: final evaluation and export, then `then`. step: with which it ended."""
        self._run(self._trainer.complete, nothing)
        if self._is_evaluated:
            self._evaluate(step, self.report.after.update)
            self._write_samples("after")
        self._run(self._trainer.digest, lambda digest: self._export(digest, then))

    def _export(self, digest: bytes, then: Callable[[], None]) -> None:
        """Writes the model, if one is wanted. By now the final figures are known, for its card."""
        folder, trainer = self._settings.node.export, self._trainer
        self.digest = digest
        if folder is None:
            then()
            return

        def export() -> Exception | None:
            rows, figures = trainer.count_rows(), self.report.figures()
            learned = Learned(self._settings.run, trainer.base_digest, digest, rows, figures)
            try:
                trainer.export(folder, model_card(learned))
            except Exception as error:  # the result of the run is to be kept, whatever it is
                return error
            return None

        def note(refused: Exception | None) -> None:
            self.unexported = refused
            if refused is None:
                self._hub.log("exported", folder=str(folder))
            else:
                self._hub.log(UNEXPORTED, "error", reason=str(refused))
            then()

        self._run(export, note)

    def _evaluate(self, step: int, then: Callable[[Figures], None]) -> None:
        def evaluate() -> tuple[Evaluation, float]:
            began = time.monotonic()
            return self._trainer.evaluate(), time.monotonic() - began

        def note(done: tuple[Evaluation, float]) -> None:
            result, seconds = done
            self._evaluation_schedule.took(seconds, self._hub.measured_seconds)
            figures, best = result.rounded(), self.report.best
            rise = find_rise(step, result.loss, best, result.texts)
            self._hub.evaluated(step, figures, result.counts(), rise)
            if math.isfinite(result.loss) and (best is None or result.loss < best.loss):
                self.report.best = Best(step, result.loss)
                self.report.keep()  # a node that was restarted is to see that the loss has risen
            then({**figures, **result.counts()})

        self._run(evaluate, note)

    def _write_samples(self, when: Literal["before", "after"]) -> None:
        """Has the model answer prompts of validation rows, for people to see what it has learned."""

        def note(samples: list[Sample]) -> None:
            for number, one in enumerate(samples):
                self.report.sampled(number, when, one)
                self._hub.log(f"written {when}", prompt=one.prompt, written=one.written)

        self._run(self._trainer.samples, note)
