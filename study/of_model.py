"""What is measured of a model once, whatever it learns: files of JSON lines, one for each model."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

from seedflood import durable
from seedflood.errors import DataError


@dataclass(frozen=True, slots=True)
class OfModel:
    """model: its name, as it is to be shown. commit: of the code. FILE: in the folder of a study."""

    FILE: ClassVar[str]

    model: str
    parameters: int
    commit: str

    @classmethod
    def from_facts(cls, facts: Mapping[str, Any]) -> Self:
        """Raises TypeError or KeyError."""
        return cls(**facts)

    def keep(self, folder: Path) -> None:
        """Instead of the one that the model had. Raises OSError or DataError."""
        kept = {**self.read(folder), self.model: self}
        lines = "".join(json.dumps(asdict(one)) + "\n" for one in kept.values())
        durable.write(folder / self.FILE, lines.encode(), mode=0o644)

    @classmethod
    def read(cls, folder: Path) -> dict[str, Self]:
        """By model. Raises DataError."""
        path = folder / cls.FILE
        try:
            lines = path.read_text().splitlines() if path.exists() else []
            found = [cls.from_facts(json.loads(line)) for line in lines]
        except (ValueError, TypeError, KeyError) as error:
            raise DataError(f"{path} was not written by a study ({error}): remove it.") from error
        return {one.model: one for one in found}
