"""What all tables of peers.toml have in common; and tables as mappings, which can be merged and spelled as TOML."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict

from seedflood.protocol.origin import NAME_PATTERN


def _check_key(value: str) -> str:
    if re.fullmatch("[0-9a-f]{64}", value) is None:
        raise ValueError("it must be a public key, 64 hex digits as `seedflood keygen` prints them")
    return value


def _check_name(value: str) -> str:
    if re.fullmatch(NAME_PATTERN, value) is None:
        raise ValueError('letters, digits, ".", "_" and "-" make a name, 63 at most, and a letter or digit begins it')
    return value


Name = Annotated[str, AfterValidator(_check_name)]
PublicKey = Annotated[str, AfterValidator(_check_key)]

Tables = Mapping[str, Any]
"""Values by key; a table within the table is a mapping of its own."""


class Section(BaseModel):
    """One table of peers.toml: an unknown key is an error, values do not change after loading."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True)


class AlgorithmSettings(Section):
    """A table of `[run]` that belongs to the algorithm of its name. It may be there only if `mode` selects that
    algorithm."""

    def check_steps(self, steps: int) -> None:
        """Raises ValueError if a run of this length cannot have these settings."""

    def check_task(self, task: str) -> None:
        """Raises ValueError if the algorithm cannot learn this task."""

    def shown(self) -> dict[str, Any]:
        """What the status of a node shows of them: names and plain values."""
        return self.model_dump(mode="json")

    def epoch_of(self, step: int) -> int | None:
        """The epoch of a step; None if the algorithm has none."""
        return None


def sections_of(model: type[BaseModel]) -> dict[str, type[Section]]:
    """The tables within a table, by name."""
    return {
        name: field.annotation
        for name, field in model.model_fields.items()
        if isinstance(field.annotation, type) and issubclass(field.annotation, Section)
    }


def merge(*layers: Tables) -> dict[str, Any]:
    """Merges layers key by key, at any depth: a later one replaces an earlier one."""
    merged: dict[str, Any] = {}
    for layer in layers:
        for key, value in layer.items():
            below = merged.get(key)
            is_table = isinstance(value, Mapping)
            merged[key] = merge(below if isinstance(below, Mapping) else {}, value) if is_table else value
    return merged


def spell(tables: Mapping[str, Tables | Sequence[Tables]], comment: Callable[[str, str], str] = lambda *_: "") -> str:
    """The tables, and lists of tables, as the text of a TOML file. comment: what stands above a key, given the names of
    its table and itself."""
    text = ""
    for name, value in tables.items():
        head, many = (f"[{name}]", (value,)) if isinstance(value, Mapping) else (f"[[{name}]]", value)
        for table in many:
            below = {f"{name}.{key}": value for key, value in table.items() if isinstance(value, Mapping)}
            text += f"{head}\n"
            for key, value in table.items():
                if not isinstance(value, Mapping):
                    text += f"{comment(name, key)}{key} = {_spell_value(value)}\n"
            text += "\n" + spell(below, comment)
    return text


def _spell_value(value: Any) -> str:
    """As in JSON, which has NaN where TOML has nan."""
    return repr(value) if isinstance(value, float) else json.dumps(value, ensure_ascii=False)
