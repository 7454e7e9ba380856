"""What estimates and updates cost on a model, whatever it learns."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from seedflood.config import NodeSettings, RunSettings
from study.measure import commit
from study.methods.applying import Applying, dense_seconds, seconds_of
from study.methods.clients import use_one_thread
from study.of_model import OfModel

UPDATES = (16, 64, 256, 1024)


@dataclass(frozen=True, slots=True)
class Applied:
    """Seconds of applying so many updates; both ways."""

    count: int
    subspace_seconds: float
    dense_seconds: float


@dataclass(frozen=True, slots=True)
class Timing(OfModel):
    """Seconds of one core: of two forwards on a batch, and of an estimate on it, both ways."""

    FILE: ClassVar[str] = "timings.jsonl"

    batch_size: int
    rank: int
    forwards_seconds: float
    estimate_seconds: float
    dense_estimate_seconds: float
    updates: tuple[Applied, ...]

    @classmethod
    def from_facts(cls, facts: Mapping[str, Any]) -> Self:
        return cls(**{**facts, "updates": tuple(Applied(**one) for one in facts["updates"])})

    @classmethod
    def take(cls, run: RunSettings, node: NodeSettings, name: str) -> Self:
        """Measures in this process, for some minutes with a large model. name: `OfModel.model`. Raises ConfigError,
        ModelError or DataError."""
        use_one_thread()
        applying = Applying(run, node)
        return cls(
            model=name,
            parameters=applying.parameters,
            batch_size=run.batch_size,
            rank=run.seedflood.rank,
            commit=commit(),
            forwards_seconds=seconds_of(applying.forwards),
            estimate_seconds=seconds_of(applying.estimate),
            dense_estimate_seconds=seconds_of(applying.dense_estimate),
            updates=tuple(_applied(applying, count) for count in UPDATES),
        )


def _applied(applying: Applying, count: int) -> Applied:
    return Applied(count, seconds_of(lambda: applying.apply(count)), dense_seconds(applying, count))
