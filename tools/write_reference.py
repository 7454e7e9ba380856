"""Writes three pages of docs/reference: every command, setting and log event, from the code that has them.

`python tools/write_reference.py`; tests/test_reference_pages.py compares the pages with the code.
"""

import ast
import re
import typing
from collections.abc import Iterator
from pathlib import Path
from types import UnionType
from typing import Any, Literal

import typer
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from seedflood.cli.commands import app, node_app
from seedflood.config import Settings
from seedflood.config.node import PeerSettings

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "docs" / "reference"

COMMANDS = """# Commands

Every command, with its options. `tools/write_reference.py` writes this page from the code. Every command has
`--help`, which ends with examples. [Settings](settings.md) are on their own page, [exit
codes](../how-to/operating.md) on the page of operators.
"""

SETTINGS = """# Settings

Every setting. `tools/write_reference.py` writes this page from the code.
[`deploy/peers.toml`](../../deploy/peers.toml) is a file with all of them, and with remarks.

Settings come from `peers.toml`, `SEEDFLOOD__SECTION__KEY` in the environment, and `--set SECTION.KEY=VALUE`.
The last is the strongest.
"""

EVENTS = """# Log events

The names of lines on stderr, in `events.jsonl` and in `seedflood events`. `tools/write_reference.py` writes
this page from the code. Metrics of Prometheus are on [a page of their own](../../deploy/METRICS.md).
"""

LOGGING = {"log", "Event", "info", "warning", "error", "debug"}
"""Calls whose first argument is the name of an event."""

LEVELS = ("debug", "info", "warning", "error")


def write() -> dict[str, str]:
    """The text of each page, by its name."""
    pages = {"commands": [COMMANDS, *_commands()], "settings": [SETTINGS, *_settings()], "events": [EVENTS, *_events()]}
    return {f"{name}.md": "\n".join(parts) for name, parts in pages.items()}


# Commands


def _commands() -> Iterator[str]:
    for name, program in (("seedflood-node", node_app), ("seedflood", app)):
        yield from _command(name, typer.main.get_command(program))


def _command(name: str, command: Any) -> Iterator[str]:
    """command: of typer, or a group of them."""
    below = getattr(command, "commands", {})
    if not below:
        summary = re.split(r"\n\s*\n", (command.help or "").strip())[0]
        yield f"## {name}\n\n{_cell(summary)}\n\n| option | meaning | default |\n|---|---|---|"
        yield from _options(command)
        yield ""
    for part, one in below.items():
        yield from _command(f"{name} {part}", one)


def _options(command: Any) -> Iterator[str]:
    for one in command.params:
        if one.name in ("help", "install_completion", "show_completion"):
            continue
        default = one.default
        shown = "" if default is None or callable(default) or default is False else f"`{default}`"
        is_option = one.param_type_name == "option"
        title = ", ".join(one.opts) if is_option else (one.metavar or str(one.name)).upper()
        yield f"| `{title}` | {_cell(getattr(one, 'help', None) or '')} | {shown} |"


# Settings


def _settings() -> Iterator[str]:
    for name in Settings.model_fields:
        yield from _table("[[peers]]", PeerSettings) if name == "peers" else _section(name, Settings.model_fields[name])


def _section(name: str, field: FieldInfo) -> Iterator[str]:
    assert isinstance(field.annotation, type)
    yield from _table(f"[{name}]", field.annotation)
    for key, one in field.annotation.model_fields.items():
        if _is_table(one):
            yield from _section(f"{name}.{key}", one)


def _is_table(field: FieldInfo) -> bool:
    return isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel)


def _table(title: str, model: type[BaseModel]) -> Iterator[str]:
    yield f"## `{title}`\n\n| key | value | default | meaning |\n|---|---|---|---|"
    for key, one in model.model_fields.items():
        if not _is_table(one):
            yield f"| `{key}` | {_cell(_type(one.annotation))} | {_default(one)} | {_cell(one.description or '')} |"
    yield ""


def _type(annotation: Any) -> str:
    """Of a value, in words: its choices if these are few."""
    origin, parts = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        return _type(parts[0])
    if origin is Literal:
        return ", ".join(f"`{one}`" for one in parts)
    if origin in (typing.Union, UnionType):
        return " or ".join(_type(one) for one in parts if one is not type(None))
    if origin is tuple:
        return "list"
    names = {str: "text", int: "integer", float: "number", bool: "`true` or `false`", Path: "path"}
    return names.get(annotation, getattr(annotation, "__name__", str(annotation)))


def _default(field: FieldInfo) -> str:
    if field.default is PydanticUndefined:
        return "must be given" if field.default_factory is None else ""
    if field.default is None:
        return ""
    if field.default == "":
        return '`""`'
    value = str(field.default).lower() if isinstance(field.default, bool) else field.default
    return f"`{value}`"


# Events


def _events() -> Iterator[str]:
    yield "| event | level | module |\n|---|---|---|"
    modules: dict[tuple[str, str], set[str]] = {}
    for event, level, module in _found():
        modules.setdefault((event, level), set()).add(f"`{module}`")
    for (event, level), places in sorted(modules.items()):
        yield f"| {_cell(event)} | {level} | {', '.join(sorted(places))} |"
    yield ""


def _found() -> Iterator[tuple[str, str, str]]:
    """(event, level, module) of every place that logs a name that stands there."""
    package = ROOT / "node" / "seedflood"
    for path in sorted(package.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and (found := _logged(node)) is not None:
                yield (*found, path.relative_to(package).with_suffix("").as_posix())


def _logged(call: ast.Call) -> tuple[str, str] | None:
    function = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    texts = [one.value for one in call.args if isinstance(one, ast.Constant) and isinstance(one.value, str)]
    if function not in LOGGING or not call.args or not isinstance(call.args[0], ast.Constant) or not texts:
        return None
    owner = call.func.value if isinstance(call.func, ast.Attribute) else None
    if function in LEVELS and not (isinstance(owner, ast.Name) and owner.id == "log"):
        return None  # of the standard library's logging: sentences, not events
    level = function if function in LEVELS else next((one for one in texts[1:] if one in LEVELS), "info")
    return texts[0], level


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


if __name__ == "__main__":
    for name, text in write().items():
        (FOLDER / name).write_text(text, encoding="utf-8")
