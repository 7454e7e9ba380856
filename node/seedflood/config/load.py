"""How layers combine into settings.

Layers, weakest first: defaults < peers.toml < `SEEDFLOOD__SECTION__KEY` in the environment < flags. A relative path
begins where the file is that says it, or at the working directory if a flag or the environment says it. Settings that
were loaded have absolute paths.
"""

import json
import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args

from pydantic import ValidationError, create_model

from seedflood.config.checks import EMBEDDED
from seedflood.config.faults import first_sentence, nearest
from seedflood.config.node import NodeSettings, divide_data
from seedflood.config.run import ObjectiveSettings
from seedflood.config.settings import SECTIONS, Settings
from seedflood.config.tables import merge
from seedflood.errors import ConfigError

ENVIRONMENT_PREFIX = "SEEDFLOOD__"

PATHS = tuple(
    name for name, field in NodeSettings.model_fields.items() if Path in (field.annotation, *get_args(field.annotation))
)
"""Keys of `[node]` whose values are paths."""

PATH_STARTS = ("./", "../", "/", "~")
NAMES = ("", EMBEDDED)
"""Of model and data, with a meaning of their own: never a folder."""

NAME_THE_FILE = "name your peers.toml with --peers"


def load_settings(path: Path | None, flags: Mapping[str, Any] | None = None) -> Settings:
    """Combines the layers. flags: nested like the file, only those that were given. Raises ConfigError with one
    sentence."""
    if path is None:
        return combine({}, flags, "settings")
    return combine(anchor(with_state(read_layer(path)), path.parent), flags, str(path), path.parent)


def read_layer(path: Path, remedy: str = NAME_THE_FILE) -> dict[str, Any]:
    """The settings of a file, as nested tables. remedy: what to do if there is no such file. Raises ConfigError."""
    try:
        layer = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        raise ConfigError(f"{path} does not exist; {remedy}.") from None
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path} cannot be read: it is not UTF-8 text.") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path} is not valid TOML: {error}.") from None
    return layer


def with_state(layer: Mapping[str, Any]) -> dict[str, Any]:
    """The same settings; if they do not say where the state is, then where it usually is, beside the file."""
    return merge({"node": {"state": str(NodeSettings.model_fields["state"].default)}}, layer)


def anchor(layer: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """The same settings, with paths of `[node]` that begin at this folder. `[run] model` stays as it is, for it counts
    for the run's id."""
    node = layer.get("node")
    if not isinstance(node, Mapping):
        return dict(layer)
    texts = {key: value for key, value in node.items() if isinstance(value, str)}
    begun = {key: _begun(texts[key], folder) for key in PATHS if texts.get(key, "") != ""}
    if is_path(data := texts.get("data"), folder):
        begun["data"] = _begun(str(data), folder)
    return merge(layer, {"node": begun})


def detach(layer: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """The same settings for a file elsewhere: all paths that begin at this folder are absolute."""
    run = layer.get("run")
    model = run.get("model") if isinstance(run, Mapping) else None
    placed = {"run": {"model": _begun(str(model), folder)}} if is_path(model, folder) else {}
    return merge(anchor(layer, folder), placed)


def _begun(path: str, folder: Path) -> str:
    """A path that begins at this folder, or at the user's home, as an absolute one."""
    return str(folder.resolve() / os.path.expanduser(path))


def is_path(value: Any, folder: Path) -> bool:
    """Is this value of `model` or `data` a path that begins at the folder, and no name? A file or folder of this name
    at the working directory is none to be taken for it in silence."""
    if not isinstance(value, str) or value in NAMES:
        return False
    place, _ = divide_data(value)
    return place.startswith(PATH_STARTS) or (folder / place).exists() or Path(place).exists()


def combine(
    layer: Mapping[str, Any], flags: Mapping[str, Any] | None, source: str, folder: Path | None = None
) -> Settings:
    """Combines the settings of a file, which are anchored, with the environment and flags. source: the file's name.
    folder: where it is. Raises ConfigError."""
    run: Any = SECTIONS["run"]
    known = create_model("Settings", __base__=Settings, __module__=__name__, run=(run, run()))
    beside = merge(_environment(), flags or {})
    try:
        loaded: Settings = known(**merge(layer, beside))
    except ValidationError as error:
        raise ConfigError(first_sentence(error, source, beside=beside)) from None
    of_run = layer.get("run")
    is_of_file = isinstance(of_run, Mapping) and of_run.get("model") == loaded.run.model
    return _place(loaded, folder if folder is not None and is_of_file else Path())


def read_objective(given: Mapping[str, Any]) -> ObjectiveSettings:
    """`[run.objective]` by itself. Raises ConfigError."""
    try:
        return ObjectiveSettings(**given)
    except ValidationError as error:
        raise ConfigError(first_sentence(error, "settings", ("run", "objective"))) from None


def _place(loaded: Settings, model_folder: Path) -> Settings:
    """The same settings: what is still relative was given here, and `model_path` is where `[run] model` is, if that is
    a relative path. model_folder: where it begins."""
    node, model = loaded.node, loaded.run.model
    texts = {key: str(value) for key in (*PATHS, "data") if (value := getattr(node, key)) is not None}
    placed: dict[str, Any] = dict(anchor({"node": texts}, Path())["node"])
    if node.model_path is None and not Path(model).is_absolute() and is_path(model, model_folder):
        placed["model_path"] = _begun(model, model_folder)
    changes = {key: Path(value) if key in PATHS else value for key, value in placed.items()}
    return loaded.model_copy(update={"node": node.model_copy(update=changes)})


def _environment() -> dict[str, Any]:
    """The settings that the environment says; of one table those of its keys count before those of the whole. Raises
    ConfigError for an unknown SEEDFLOOD__ variable, as for an unknown key of the file."""
    variables = {name: value for name, value in os.environ.items() if name.upper().startswith(ENVIRONMENT_PREFIX)}
    return merge(*(_read_variable(name, variables[name]) for name in sorted(variables)))


def _read_variable(variable: str, value: str) -> dict[str, Any]:
    """Lists, and whole tables, are JSON."""
    path = variable[len(ENVIRONMENT_PREFIX) :].lower().split("__")
    where, *keys = path
    if where not in Settings.model_fields:
        raise ConfigError(f"environment variable {variable}: no section [{where}]; {nearest(where, None)}")
    while keys and f"{where}.{keys[0]}" in SECTIONS:
        where += f".{keys.pop(0)}"
    if keys and keys[0] not in SECTIONS[where].model_fields:
        raise ConfigError(f'environment variable {variable}: no key "{keys[0]}"; {nearest(keys[0], where)}')
    given: Any = value
    try:
        given = json.loads(value) if not keys or value.startswith("[") else value
    except ValueError:
        if not keys:
            raise ConfigError(
                f"environment variable {variable} stands for all of [{where}] and must be JSON, for example "
                f'SEEDFLOOD__PEERS=[{{"address": "10.0.0.2:7070"}}].'
            ) from None
    layer: dict[str, Any] = {path[-1]: given}
    for name in reversed(path[:-1]):
        layer = {name: layer}
    return layer
