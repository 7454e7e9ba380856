"""One sentence for the first fault of settings: where it is, what is wrong, and what would be right."""

import difflib
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from seedflood.config.settings import SECTIONS, Settings


def first_sentence(
    error: ValidationError, source: str, within: tuple[str, ...] = (), beside: Mapping[str, Any] | None = None
) -> str:
    """within: the table that was read. beside: what was given beside the source, and counts before it."""
    faults = error.errors(include_url=False)  # a key that is misspelled is missing, too
    fault = next((one for one in faults if one["type"] == "extra_forbidden"), faults[0])
    parts = [part for part in (*within, *fault["loc"]) if isinstance(part, str)]
    if beside and parts and _says(beside, parts):
        source = "an option or the environment"
    table, key = _divide(parts)
    where = (f"[{table}]" if table else "settings") + (f' "{key}"' if key else "") + ": " if parts else ""
    match fault["type"], key:
        case "extra_forbidden", str():
            what = f"[{table}] has no key" if table else "there is no section or key"
            return f'{source}: {what} "{key}"; {nearest(key, table)}'
        case "missing", _:
            return f'{source}: [{table}] needs the key "{key}".'
        case "model_type", None:
            what = "it must be a table"
        case "tuple_type", None:
            what = "write [[peers]] above each of them"
        case "tuple_type", _:
            what = "it must be a list"
        case _:
            what = fault["msg"].removeprefix("Value error, ")
            shown = fault.get("input")
            if isinstance(shown, str | int | float | bool) and str(shown) not in what:
                what += f" (it is {shown!r})"
    return f"{source}: {where}{what}."


def _says(value: Any, parts: Sequence[str]) -> bool:
    """Is there something at the end of these names that is no table?"""
    for part in parts:
        value = value.get(part) if isinstance(value, Mapping) else None
    return value is not None and not isinstance(value, Mapping)


def _divide(parts: Sequence[str]) -> tuple[str | None, str | None]:
    """(the table, the key in it), of the names that lead to a fault; None for what they do not name."""
    known = next((n for n in range(len(parts), 0, -1) if ".".join(parts[:n]) in SECTIONS), 0)
    return ".".join(parts[:known]) or None, parts[known] if known < len(parts) else None


def nearest(key: str, table: str | None) -> str:
    """What may be meant by a key that this table does not have. table None: by a section that does not exist."""
    fields = (SECTIONS[table] if table else Settings).model_fields
    is_of_run = table is None or table.startswith("run")
    others = [one for one in SECTIONS if one.startswith("run") and one != table] if is_of_run else []
    if table is None and f"run.{key}" in SECTIONS:
        return f"did you mean [run.{key}]?"
    if (owner := next((one for one in others if key in SECTIONS[one].model_fields), None)) is not None:
        return f"it belongs to [{owner}]."
    if near := difflib.get_close_matches(key, fields, n=1, cutoff=0.65):
        return f'did you mean "{near[0]}"?'
    for one in others:
        if near := difflib.get_close_matches(key, SECTIONS[one].model_fields, n=1, cutoff=0.75):
            return f'did you mean "{near[0]}" of [{one}]?'
    return f"known are {', '.join(fields)}."
