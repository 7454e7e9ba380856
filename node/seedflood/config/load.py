"""How layers combine into settings, and one clear sentence for each fault.

Layers, weakest first: defaults < peers.toml < `SEEDFLOOD__SECTION__KEY` in the environment < flags.
"""

import difflib
import json
import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Self

from pydantic import ValidationError, create_model, model_validator
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    InitSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from seedflood.config.node import NodeSettings, PeerSettings, TlsSettings, is_loopback
from seedflood.config.run import RunSettings
from seedflood.config.tables import AlgorithmSettings, Section, merge, sections_of
from seedflood.errors import ConfigError

ENVIRONMENT_PREFIX = "SEEDFLOOD__"

SECTIONS: dict[str, type[Section]] = {
    "run": RunSettings,
    **{f"run.{name}": table for name, table in sections_of(RunSettings).items()},
    "node": NodeSettings,
    "peers": PeerSettings,
    "tls": TlsSettings,
}
"""The tables of peers.toml."""


def add_algorithm(name: str, table: type[AlgorithmSettings]) -> None:
    """Registers an algorithm: from now on `[run] mode` may be `name`, with a table `[run.NAME]`. table: its settings,
    all of which have defaults."""
    run = SECTIONS["run"]
    fields: dict[str, Any] = {name: (table, table())}
    SECTIONS["run"] = create_model("RunSettings", __base__=run, **fields)
    SECTIONS[f"run.{name}"] = table


class Settings(BaseSettings):
    """All of peers.toml. Immutable; `load_settings` makes it."""

    model_config = SettingsConfigDict(
        env_prefix=ENVIRONMENT_PREFIX, env_nested_delimiter="__", extra="forbid", frozen=True, validate_default=True
    )
    run: RunSettings = RunSettings()
    node: NodeSettings = NodeSettings()
    peers: tuple[PeerSettings, ...] = ()
    tls: TlsSettings = TlsSettings()

    file_layer: ClassVar[Mapping[str, Any]] = {}

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return init_settings, EnvSettingsSource(settings_cls), InitSettingsSource(settings_cls, dict(cls.file_layer))

    @model_validator(mode="after")
    def _check_roster(self) -> Self:
        if self.node.roster is not None and self.run.operator is None:
            raise ValueError(
                "[node] roster is for a closed run: name the operator's public key in [run] operator, or take roster "
                "out"
            )
        return self

    @model_validator(mode="after")
    def _check_audit(self) -> Self:
        if self.node.audit and self.run.mode != "seedflood":
            raise ValueError('[node] audit is for mode = "seedflood": leave it out')
        if self.node.audit and self.run.seedflood.window != "strict":
            raise ValueError(
                "[node] audit needs to know what another host had applied when it measured, which only strict windows "
                'tell: set window = "strict" in [run.seedflood], or leave audit out'
            )
        return self

    @property
    def exposed(self) -> tuple[str, ...]:
        """The addresses beyond this machine whose links are not encrypted."""
        addresses = (self.node.listen, *(peer.address for peer in self.peers))
        return tuple(one for one in addresses if one and not is_loopback(one) and not self.tls.covers(one))

    @property
    def pins(self) -> dict[str, bytes]:
        """The public keys that are expected at addresses."""
        return {peer.address: bytes.fromhex(peer.origin) for peer in self.peers if peer.origin is not None}


NAME_THE_FILE = "name your peers.toml with --peers"


def load_settings(path: Path | None, flags: Mapping[str, Any] | None = None) -> Settings:
    """Combines the layers. flags: nested like the file, only those that were given. Raises ConfigError with one
    sentence."""
    layer = anchor(read_layer(path), path) if path is not None else {}
    return combine(layer, flags, str(path) if path else "settings")


def read_layer(path: Path, remedy: str = NAME_THE_FILE) -> dict[str, Any]:
    """The settings of a file, as nested tables. remedy: what to do if there is no such file. Raises ConfigError."""
    try:
        layer = tomllib.loads(path.read_text())
    except FileNotFoundError:
        raise ConfigError(f"{path} does not exist; {remedy}.") from None
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path} cannot be read: it is not UTF-8 text.") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path} is not valid TOML: {error}.") from None
    return layer


def anchor(layer: Mapping[str, Any], path: Path) -> Mapping[str, Any]:
    """The same settings, with the roster's path seen from here: in the file a relative one begins where the file is."""
    roster = layer["node"].get("roster") if isinstance(layer.get("node"), Mapping) else None
    return merge(layer, {"node": {"roster": str(path.parent / roster)}}) if isinstance(roster, str) else layer


def combine(layer: Mapping[str, Any], flags: Mapping[str, Any] | None, source: str) -> Settings:
    """Combines the settings of a file with the environment and flags. source: the file's name. Raises ConfigError."""
    _check_environment()
    # The file is a layer of this call only: a subclass carries it, nothing is shared between calls.
    run: Any = SECTIONS["run"]
    combined = create_model("Settings", __base__=Settings, __module__=__name__, run=(run, run()))
    combined.file_layer = layer
    try:
        loaded: Settings = combined(**dict(flags or {}))
    except ValidationError as error:
        raise ConfigError(_first_sentence(error, source)) from None
    return loaded


def _check_environment() -> None:
    """Raises ConfigError for an unknown SEEDFLOOD__ variable, as for an unknown key of the file. A whole table is
    JSON."""
    for variable, value in os.environ.items():
        if variable.upper().startswith(ENVIRONMENT_PREFIX):
            _check_variable(variable, value)


def _check_variable(variable: str, value: str) -> None:
    where, *keys = variable[len(ENVIRONMENT_PREFIX) :].lower().split("__")
    if where not in Settings.model_fields:
        raise ConfigError(f"environment variable {variable}: no section [{where}]; {_nearest(where, None)}")
    while keys and f"{where}.{keys[0]}" in SECTIONS:
        where += f".{keys.pop(0)}"
    if keys and keys[0] not in SECTIONS[where].model_fields:
        raise ConfigError(f'environment variable {variable}: no key "{keys[0]}"; {_nearest(keys[0], where)}')
    if keys:
        return
    try:
        json.loads(value)
    except ValueError:
        raise ConfigError(
            f"environment variable {variable} stands for all of [{where}] and must be JSON, for example "
            f'SEEDFLOOD__PEERS=[{{"address": "10.0.0.2:7070"}}].'
        ) from None


def _first_sentence(error: ValidationError, source: str) -> str:
    """The first fault in words: where it is, what is wrong, what would be right."""
    fault = error.errors(include_url=False)[0]
    parts = [part for part in fault["loc"] if isinstance(part, str)]
    known = next((n for n in range(len(parts), 0, -1) if ".".join(parts[:n]) in SECTIONS), 0)
    table, key = ".".join(parts[:known]) or None, parts[known] if known < len(parts) else None
    if fault["type"] == "extra_forbidden" and key is not None:
        what = f"[{table}] has no key" if table else "there is no section or key"
        return f'{source}: {what} "{key}"; {_nearest(key, table)}'
    if fault["type"] == "missing":
        return f'{source}: [{table}] needs the key "{key}".'
    where = (f"[{table}]" if table else "settings") + (f' "{key}"' if key else "") + ": " if parts else ""
    if fault["type"] == "model_type" and key is None:
        return f"{source}: {where}it must be a table."
    if fault["type"] == "tuple_type":
        return f"{source}: {where}" + ("write [[peers]] above each of them." if key is None else "it must be a list.")
    message = fault["msg"].removeprefix("Value error, ")
    shown = fault.get("input")
    given = f" (it is {shown!r})" if isinstance(shown, str | int | float | bool) and str(shown) not in message else ""
    return f"{source}: {where}{message}{given}."


def _nearest(key: str, table: str | None) -> str:
    """What may be meant by a key that this table does not have. table None: by a section that does not exist."""
    fields = (SECTIONS[table] if table else Settings).model_fields
    is_of_run = table is None or table.startswith("run")
    others = [one for one in SECTIONS if one.startswith("run") and one != table] if is_of_run else []
    if table is None and f"run.{key}" in SECTIONS:
        return f"did you mean [run.{key}]?"
    if (owner := next((one for one in others if key in SECTIONS[one].model_fields), None)) is not None:
        return f"it belongs to [{owner}]."
    if near := difflib.get_close_matches(key, fields, n=1, cutoff=0.5):
        return f'did you mean "{near[0]}"?'
    for one in others:
        if near := difflib.get_close_matches(key, SECTIONS[one].model_fields, n=1, cutoff=0.7):
            return f'did you mean "{near[0]}" of [{one}]?'
    return f"known are {', '.join(fields)}."


def check_folders(settings: Settings) -> None:
    """Raises ConfigError if a folder that the settings name does not exist, seconds before torch could tell."""
    named = {"[run] model": settings.run.model, "[node] data": settings.node.data}
    if settings.node.model_path is not None:
        named = {"[node] model_path": str(settings.node.model_path), "[node] data": settings.node.data}
    for key, value in named.items():
        if value and value.startswith(("/", "./", "../", "~")) and not Path(value).is_dir():
            raise ConfigError(f"the folder {value} does not exist; correct {key}.")
