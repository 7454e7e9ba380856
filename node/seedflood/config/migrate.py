"""Old files, in which `[run]` was one flat table: a hint for their owners, and a rewrite of their text.

The text is rewritten line by line. Each key moves with the comment above it and the lines that continue it. Keys that
are commented out move like others, and everything else in the file stays as it is. The result is read again and
compared with what was meant. If `[run]` is spelled in a way that cannot be moved like this, the operator has to do it.
"""

import contextlib
import os
import re
import stat
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from seedflood import durable
from seedflood.config.tables import merge
from seedflood.errors import ConfigError

MOVED: Mapping[str, str] = {
    **dict.fromkeys(
        ("task", "template", "label_words", "label_column", "text_column", "max_length"),
        "run.objective",
    ),
    **dict.fromkeys(
        (
            *("window", "delay", "local_steps", "estimate", "tell", "bits", "slopes", "optimizer", "weight_decay"),
            *("warmup_steps", "schedule", "rank", "refresh_period", "basis", "epsilon", "learning_rate"),
        ),
        "run.seedflood",
    ),
}
"""Keys of the flat table, and the tables they moved to. It never changes: it is about files of the past."""

OLD_SUFFIX = ".old"

_COMMENTED_KEY = re.compile(r"#\s?(?P<key>[a-z_]+)\s*=\s")


def first_moved(run: Any) -> str | None:
    """The first key of a `[run]` that has moved."""
    return next((key for key in run if key in MOVED), None) if isinstance(run, Mapping) else None


def migrate_file(path: Path) -> Path | None:
    """Rewrites the file. Returns the path of a copy of the old one, or None if nothing had to change. Raises
    ConfigError."""
    place = path.resolve()  # of a link the file itself is written
    try:
        old = place.read_bytes()
        new = migrate(old.decode(), path.name).encode()
        if new == old:
            return None
        kept = place.with_name(place.name + OLD_SUFFIX)
        if kept.exists() and kept.read_bytes() != old:
            raise ConfigError(f"{kept} exists and holds something else; move it away first.")
        for target, data in ((kept, old), (place, new)):
            with durable.draft(target) as written:
                written.write_bytes(data)
                _take_owner(place, written)
    except UnicodeDecodeError:
        raise ConfigError(f"{path} cannot be read: it is not UTF-8 text.") from None
    except OSError as error:
        raise ConfigError(f"{path} cannot be written anew: {error.strerror}.") from None
    return kept


def _take_owner(old: Path, new: Path) -> None:
    """Gives the new file owner, group and mode of the old one: the daemon may be allowed to read it only by its
    group."""
    was = old.stat()
    with contextlib.suppress(PermissionError):  # only root may give files away
        os.chown(new, was.st_uid, was.st_gid)
    new.chmod(stat.S_IMODE(was.st_mode))


def migrate(text: str, name: str = "peers.toml") -> str:
    """The text with every key moved to its table. Raises ConfigError if that cannot be done line by line."""
    try:
        settings = tomllib.loads(text)
        meant = _moved(settings, name)
        lines = _Lines(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{name} is not valid TOML: {error}.") from None
    new = lines.text()
    try:
        is_right = _filled(tomllib.loads(new)) == _filled(meant)
    except tomllib.TOMLDecodeError:
        is_right = False
    if not is_right:
        keys = ", ".join(f"{key} to [{MOVED[key]}]" for key in settings.get("run", {}) if key in MOVED)
        raise ConfigError(f"{name} spells [run] in a way that cannot be rewritten; move these keys by hand: {keys}.")
    return new


def _moved(settings: Mapping[str, Any], name: str) -> dict[str, Any]:
    run = settings.get("run", {})
    if not isinstance(run, Mapping):
        raise ConfigError(f"{name}: [run] must be a table.")
    if first_moved(run) is None:
        return dict(settings)
    kept: dict[str, Any] = {key: value for key, value in run.items() if key not in MOVED}
    for key in run:
        if key in MOVED:
            table = MOVED[key].removeprefix("run.")
            there = kept.get(table, {})
            if not isinstance(there, Mapping):
                raise ConfigError(f"{name}: [run.{table}] must be a table.")
            if key in there:
                raise ConfigError(f"{name}: {key} is both in [run] and in [run.{table}]: take one of them out.")
            kept = merge(kept, {table: {key: run[key]}})
    return {**settings, "run": kept}


def _filled(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings without empty tables: a table in which all keys are commented out says nothing."""
    below = {key: _filled(value) if isinstance(value, Mapping) else value for key, value in settings.items()}
    return {key: value for key, value in below.items() if value != {}}


@dataclass(slots=True)
class _Table:
    """The lines of one table. header: its own line. lines: those that belong to it. tail: those that lead over to the
    next."""

    name: str
    header: str
    lines: list[str] = field(default_factory=list)
    tail: list[str] = field(default_factory=list)


class _Lines:
    """The tables of a text in their order, and the lines of keys that moved, by their new table."""

    def __init__(self, text: str) -> None:
        self.tables = [_Table("", "")]
        self.moved: dict[str, list[str]] = {}
        above: list[str] = []  # comments that belong to what comes next
        target = self.tables[0].lines  # where a line that continues the one before goes
        for statement in _statements(text):
            table, bare = self.tables[-1], statement.strip()
            if (name := _header(bare)) is not None:
                table.tail += above
                self.tables.append(_Table(name, statement))
                above, target = [], self.tables[-1].lines
            elif not bare:
                table.tail += [*above, statement]
                above, target = [], table.tail
            elif statement[0].isspace() and bare.startswith("#") and not above:
                target.append(statement)
            elif bare.startswith("#") and not _COMMENTED_KEY.match(bare):
                above.append(statement)
            else:
                to = _moved_to(table, bare)
                if to is None:
                    table.lines += table.tail
                    table.tail = []
                target = self.moved.setdefault(to, []) if to is not None else table.lines
                target += [*above, statement]
                above = []
        self.tables[-1].tail += above

    def text(self) -> str:
        written = ""
        known = {table.name for table in self.tables}
        for table in self.tables:
            below = "".join([*self.moved.get(table.name, ()), *table.lines])
            written += (_ended(table.header) if below else table.header) + below
            if table.name == "run":
                for name, lines in sorted(self.moved.items()):
                    if name not in known:
                        written = _ended(written) + f"\n[{name}]\n" + "".join(lines)
                if self.moved and not table.tail and table is not self.tables[-1]:
                    table.tail = ["\n"]
            if table.tail:
                written = _ended(written) + "".join(table.tail)
        return written


def _ended(text: str) -> str:
    return text if not text or text.endswith("\n") else text + "\n"


def _statements(text: str) -> Iterator[str]:
    """The lines of a text with their ends; a value of several lines is one item. Raises TOMLDecodeError."""
    begun = ""
    for line in re.findall(r"[^\n]*\n|[^\n]+", text):
        begun += line
        try:
            tomllib.loads(begun)
        except tomllib.TOMLDecodeError:
            continue
        yield begun
        begun = ""
    if begun:
        tomllib.loads(begun)


def _header(line: str) -> str | None:
    """The name of the table that this line begins; None if it is no header."""
    if not line.startswith("["):
        return None
    names, table = [], tomllib.loads(line)
    while table:
        (name,) = table
        names.append(name)
        table = table[name] if isinstance(table[name], dict) else {}
    return ".".join(names)


def _moved_to(table: _Table, line: str) -> str | None:
    """The table to which the key of this line moved, even if it is commented out; None if it did not move."""
    if table.name != "run":
        return None
    if line.startswith("#"):
        match = _COMMENTED_KEY.match(line)
        return MOVED.get(match["key"]) if match else None
    return MOVED.get(next(iter(tomllib.loads(line))))
