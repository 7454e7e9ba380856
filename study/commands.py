"""What `python -m study` does with a folder: measures, says what is left, and writes the report."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Self

from seedflood.config import NodeSettings, ObjectiveSettings, RunSettings
from study.forecast import forecast, measured_speeds, sampled_speeds
from study.harness import Display, cores, run
from study.measure import sample
from study.plan import PLANS, Plan, Study, check_methods, find_plan
from study.report import write_report
from study.results import Results, alone
from study.rows import Split, objective_of, split
from study.timings import Timing
from study.traffic import Traffic


@dataclass(frozen=True, slots=True)
class Request:
    """A study that was asked for. Every method raises what it needs: DataError, ModelError, JournalError, OSError."""

    out: Path
    plan: Plan
    model: str
    objective: ObjectiveSettings
    data: str | None
    methods: Sequence[str]

    @classmethod
    def of(cls, out: Path, plan: str, model: str, task: str | None, data: str | None, methods: Sequence[str]) -> Self:
        """Raises UsageError."""
        objective = objective_of(task or ("embedded" if model == "embedded" else "sst2"))
        return cls(out, find_plan(plan), model, objective, data, check_methods(methods))

    def run(self, jobs: int | None) -> None:
        """Measures what is left."""
        with alone(self.out), Display() as show:
            rows = self._rows()
            run(self._study(rows), rows, Results(self.out), jobs or cores(), show)

    def time(self) -> None:
        """Measures estimates and updates, in this process."""
        with alone(self.out), TemporaryDirectory(prefix="seedflood-study-") as home:
            node = NodeSettings(data=str(self._rows().tuning), state=Path(home), device="cpu")
            settings = RunSettings.of(model=self.model, objective=self.objective, batch_size=self.plan.batch_size)
            Timing.take(settings, node, Path(self.model).name).keep(self.out)

    def count_bytes(self) -> None:
        """Measures what a step of each method sends, in this process."""
        with alone(self.out), TemporaryDirectory(prefix="seedflood-study-") as home:
            node = NodeSettings(data=str(self._rows().tuning), state=Path(home), device="cpu")
            settings = RunSettings.of(model=self.model, objective=self.objective, clients=2, batch_size=1)
            Traffic.take(settings, node, Path(self.model).name, self.methods).keep(self.out)

    def forecast(self, jobs: int | None) -> dict[str, Any]:
        """What is left, part by part, and the hours that it will take. If nothing was measured of this model, a few
        steps are measured for it."""
        rows, results = self._rows(), Results(self.out)
        study = self._study(rows)
        if speeds := measured_speeds(study, results):
            basis = f"cells of this model that were measured, of {len(speeds)} of {len(study.used())} methods"
        else:
            speeds = sampled_speeds(study, lambda cell: sample(cell, rows))
            basis = f"a few steps of {' and '.join(speeds)}, measured just now: others may take half or twice as long"
        shares = list(forecast(study, results, speeds))
        hours = round(sum(share.seconds for share in shares) / 3600 / (jobs or cores()), 2)
        parts = {share.title: f"{share.left} of {share.cells} cells left" for share in shares}
        return {**parts, "hours": hours, "hours rest on": basis}

    def report(self, path: Path) -> dict[str, Any]:
        """Writes what there is."""
        results = Results(self.out)
        timings, traffic = Timing.read(self.out), Traffic.read(self.out)
        write_report(PLANS.values(), results, timings, traffic, path, self.out / "figures")
        return {"report": str(path), "results": str(results.path), "cells": len(results)}

    def _rows(self) -> Split:
        return split(self.objective, self.data, self.plan.rows, self.out / "rows")

    def _study(self, rows: Split) -> Study:
        return Study(self.plan, self.model, self.objective.task, rows.digest, self.methods)
