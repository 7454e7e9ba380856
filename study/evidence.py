"""What claims and choices rest on: the rows of a study, by part, method and setting."""

from contextlib import suppress
from dataclasses import dataclass

from study.cell import best
from study.links import Links
from study.plan import BYTES, Study
from study.results import Results
from study.summary import Row, Spread, halfway, rows_of, tries_of
from study.timings import Timing

AS_GOOD = 0.01
"""Of accuracy, or of a loss where there is none: who is less than this worse is as good."""


@dataclass(frozen=True)
class Evidence:
    """timing: of the model. Every method and `updates` raise LookupError where a result is missing."""

    study: Study
    results: Results
    timing: Timing | None = None

    def row(self, title: str, method: str, setting: str = "base") -> Row:
        """Of a part of the plan, with a result for each seed."""
        for part in self.study.plan.parts:
            for row in rows_of(self.study, part, self.results) if part.title == title else ():
                if (row.method, row.setting) == (method, setting) and len(row.results) == len(self.study.plan.seeds):
                    return row
        raise LookupError(f"{title}: {method}, {setting}")

    def worth(self, title: str, method: str, setting: str = "base") -> Spread:
        """The accuracy on test rows; where there is none, the loss with its sign changed. More is better."""
        row = self.row(title, method, setting)
        accuracy, loss = row.spread("accuracy"), row.spread("loss")
        if accuracy is not None:
            return accuracy
        return Spread(-loss.mean, -loss.high, -loss.low) if loss is not None else Spread.of([float("-inf")])

    def accuracy_of(self, method: str) -> Spread | None:
        """On test rows, in the base setting; None where there is none."""
        with suppress(LookupError):
            return self.row(BYTES, method).spread("accuracy")
        return None

    def accuracy_before(self) -> Spread | None:
        """Of the models that clients begin with, on validation rows."""
        starts = [
            one.course[0] for row in rows_of(self.study, self.study.plan.parts[0], self.results) for one in row.results
        ]
        found = [float(start["accuracy"]) for start in starts if start.get("accuracy") is not None]
        return Spread.of(found) if found else None

    def bytes_of(self, method: str) -> float:
        """Over an edge in one direction, in the base setting."""
        sent = self.row(BYTES, method).spread("edge_bytes")
        return sent.mean if sent is not None else float("inf")

    def seconds(self, row: Row, links: Links) -> float:
        """To the loss that all times of the study are compared by; infinite if it was not reached."""
        found = row.seconds_to(self.goal(), links)
        return float("inf") if found is None else found.mean

    def goal(self) -> float:
        """See `summary.halfway`."""
        part = next(part for part in self.study.plan.parts if part.title == BYTES)
        loss = halfway(rows_of(self.study, part, self.results))
        if loss is None:
            raise LookupError("a loss to compare times by")
        return loss

    def tried(self, method: str, **options: float) -> float:
        """The least validation loss of the tries with these options."""
        cells = tries_of(self.study, method, self.results)
        these = [cell for cell in cells if cell in self.results and options.items() <= dict(cell.options).items()]
        if not these:
            raise LookupError(f"tries of {method}")
        return best(self.results[cell] for cell in these).loss

    @property
    def updates(self) -> Timing:
        """What the model's updates cost."""
        if self.timing is None:
            raise LookupError("timings")
        return self.timing


def is_as_good(one: Spread, other: Spread) -> bool:
    return one.mean >= other.mean - AS_GOOD


def is_better(one: Spread, other: Spread) -> bool:
    """With every seed better than the other with any."""
    return one.low > other.high
