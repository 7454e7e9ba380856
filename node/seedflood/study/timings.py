"""What estimates and updates cost on a model, whatever it learns: a file of JSON lines, one for each model."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

from seedflood import durable
from seedflood.config import NodeSettings, RunSettings
from seedflood.errors import DataError
from seedflood.study.measure import commit
from seedflood.study.methods.applying import Applying, dense_seconds, seconds_of
from seedflood.study.methods.clients import use_one_thread

TIMINGS_FILE = "timings.jsonl"
UPDATES = (16, 64, 256, 1024)


@dataclass(frozen=True, slots=True)
class Applied:
    """Seconds of applying so many updates; both ways."""

    count: int
    subspace_seconds: float
    dense_seconds: float


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds of one core: of two forwards on a batch, and of an estimate on it, both ways."""

    model: str
    parameters: int
    batch_size: int
    rank: int
    commit: str
    forwards_seconds: float
    estimate_seconds: float
    dense_estimate_seconds: float
    updates: tuple[Applied, ...]

    @classmethod
    def from_facts(cls, facts: Mapping[str, object]) -> Self:
        updates = facts["updates"]
        assert isinstance(updates, list), "a list of objects"
        return cls(**{**facts, "updates": tuple(Applied(**one) for one in updates)})  # type: ignore[arg-type]


def take(run: RunSettings, node: NodeSettings, name: str) -> Timing:
    """Measures in this process, for some minutes with a large model. name: of the model, as it is to be shown. Raises
    ConfigError, ModelError or DataError."""
    use_one_thread()
    applying = Applying(run, node)
    return Timing(
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


def keep(timing: Timing, folder: Path) -> None:
    """Instead of the one that the model had. Raises OSError or DataError."""
    kept = {**read(folder), timing.model: timing}
    lines = "".join(json.dumps(asdict(one)) + "\n" for one in kept.values())
    durable.write(folder / TIMINGS_FILE, lines.encode(), mode=0o644)


def read(folder: Path) -> dict[str, Timing]:
    """By model. Raises DataError."""
    path = folder / TIMINGS_FILE
    try:
        lines = path.read_text().splitlines() if path.exists() else []
        found = [Timing.from_facts(json.loads(line)) for line in lines]
    except (ValueError, TypeError, KeyError) as error:
        raise DataError(f"{path} has no timings of a study ({error}): remove it.", path=str(path)) from error
    return {one.model: one for one in found}
