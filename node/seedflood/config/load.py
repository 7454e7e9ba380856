"""How layers combine into settings, and one clear sentence for each fault.

Layers, weakest first: defaults < peers.toml < `SEEDFLOOD__SECTION__KEY` in the environment < flags. A relative path
begins where the file is that says it, or at the working directory if a flag or the environment says it. Settings that
were loaded have absolute paths.
"""

import difflib
import json
import os
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self, get_args

from pydantic import ValidationError, create_model, model_validator

from seedflood.config.node import SERVE, NodeSettings, PeerSettings, TlsSettings, divide_data
from seedflood.config.run import WITHOUT_ROWS, ObjectiveSettings, RunSettings
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


class Settings(Section):
    """All of peers.toml; `load_settings` makes it."""

    run: RunSettings = RunSettings()
    node: NodeSettings = NodeSettings()
    peers: tuple[PeerSettings, ...] = ()
    tls: TlsSettings = TlsSettings()

    @model_validator(mode="after")
    def _check_roster(self) -> Self:
        if self.node.roster is not None and self.run.operator is None:
            raise ValueError(
                "[node] roster is for a closed run: name the operator's public key in [run] operator, or take roster "
                "out"
            )
        return self

    @model_validator(mode="after")
    def _check_relay(self) -> Self:
        if self.node.role == "relay" and self.run.mode != "seedflood":
            raise ValueError(
                f'mode = "{self.run.mode}" exchanges whole replicas between neighbours, which no relay carries: link '
                "its hosts with each other"
            )
        if self.node.role == "relay" and isinstance(self.node.then, Path):
            raise ValueError("a relay serves one run: take [node] then out, and start another relay for the next run")
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

    @model_validator(mode="after")
    def _check_quantize(self) -> Self:
        if self.node.quantisation is None:
            return self
        if self.run.mode != "seedflood":
            raise ValueError(f'[node] dtype = "{self.node.dtype}" is for mode = "seedflood": leave it out')
        table = self.run.seedflood
        columns = -(-self.run.steps // table.refresh_period) * table.rank
        if columns > QUANTIZED_COLUMNS_MAX:
            raise ValueError(
                f'[node] dtype = "{self.node.dtype}" keeps every epoch beside the weights, and this run has {columns} '
                f"columns of epochs, more than {QUANTIZED_COLUMNS_MAX}: increase refresh_period of [run.seedflood], or "
                "leave dtype out"
            )
        return self

    @property
    def pins(self) -> dict[str, bytes]:
        """The public keys that are expected at addresses."""
        return {peer.address: bytes.fromhex(peer.origin) for peer in self.peers if peer.origin is not None}


PATHS = tuple(
    name for name, field in NodeSettings.model_fields.items() if Path in (field.annotation, *get_args(field.annotation))
)
"""Keys of `[node]` whose values are paths; but for `then = "serve"`."""

QUANTIZED_COLUMNS_MAX = 512
"""As many take as much memory as the weights of 8 bits themselves, in a model of 1 B parameters."""

MODEL_FILE, ADAPTER_FILE, CARD_FILE = "config.json", "adapter_config.json", "README.md"
"""In a folder: by which a model is known, and a LoRA adapter; the model card of either."""

RUN_IN_CARD = re.compile(r"^\| run \| (\w+) \|$", re.MULTILINE)

EXPORTED = re.compile(
    r"README\.md|adapter_(config\.json|model\.safetensors)|(generation_)?config\.json|"
    r"model(-\d+-of-\d+)?\.safetensors(\.index\.json)?|[\w.-]*token\w*\.(json|model)|[\w.-]+\.model|vocab\.\w+|"
    r"merges\.txt|chat_template\.jinja|additional_chat_templates"
)
"""The names of what an export of a model or an adapter writes, tokenizers of all kinds among them."""

PATH_STARTS = ("./", "../", "/", "~")
EMBEDDED = "embedded"
NAMES = (EMBEDDED, "previous")
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
    begun = {key: _begun(texts[key], folder) for key in PATHS if texts.get(key, SERVE) != SERVE}
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
    return str(folder.resolve() / Path(path).expanduser())


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
    try:
        loaded: Settings = known(**merge(layer, _environment(), flags or {}))
    except ValidationError as error:
        raise ConfigError(_first_sentence(error, source)) from None
    run_told = layer.get("run")
    is_of_file = isinstance(run_told, Mapping) and run_told.get("model") == loaded.run.model
    return _place(loaded, folder if folder is not None and is_of_file else Path())


def read_objective(said: Mapping[str, Any]) -> ObjectiveSettings:
    """`[run.objective]` by itself. Raises ConfigError."""
    try:
        return ObjectiveSettings(**said)
    except ValidationError as error:
        raise ConfigError(_first_sentence(error, "settings", ("run", "objective"))) from None


def _place(loaded: Settings, model_folder: Path) -> Settings:
    """The same settings: what is still relative was said here, and `model_path` is where `[run] model` is, if that is a
    relative path. model_folder: where it begins."""
    node, model = loaded.node, loaded.run.model
    texts = {key: str(value) for key in (*PATHS, "data") if (value := getattr(node, key)) is not None}
    placed: dict[str, Any] = dict(anchor({"node": texts}, Path())["node"])
    if node.model_path is None and not Path(model).is_absolute() and is_path(model, model_folder):
        placed["model_path"] = _begun(model, model_folder)
    changes = {key: Path(value) if key in PATHS and value != SERVE else value for key, value in placed.items()}
    return loaded.model_copy(update={"node": node.model_copy(update=changes)})


def _environment() -> dict[str, Any]:
    """The settings that the environment says; of one table those of its keys count before those of the whole. Raises
    ConfigError for an unknown SEEDFLOOD__ variable, as for an unknown key of the file."""
    told = {name: value for name, value in os.environ.items() if name.upper().startswith(ENVIRONMENT_PREFIX)}
    return merge(*(_read_variable(name, told[name]) for name in sorted(told)))


def _read_variable(variable: str, value: str) -> dict[str, Any]:
    """Lists, and whole tables, are JSON."""
    path = variable[len(ENVIRONMENT_PREFIX) :].lower().split("__")
    where, *keys = path
    if where not in Settings.model_fields:
        raise ConfigError(f"environment variable {variable}: no section [{where}]; {_nearest(where, None)}")
    while keys and f"{where}.{keys[0]}" in SECTIONS:
        where += f".{keys.pop(0)}"
    if keys and keys[0] not in SECTIONS[where].model_fields:
        raise ConfigError(f'environment variable {variable}: no key "{keys[0]}"; {_nearest(keys[0], where)}')
    said: Any = value
    try:
        said = json.loads(value) if not keys or value.startswith("[") else value
    except ValueError:
        if not keys:
            raise ConfigError(
                f"environment variable {variable} stands for all of [{where}] and must be JSON, for example "
                f'SEEDFLOOD__PEERS=[{{"address": "10.0.0.2:7070"}}].'
            ) from None
    layer: dict[str, Any] = {path[-1]: said}
    for name in reversed(path[:-1]):
        layer = {name: layer}
    return layer


def _first_sentence(error: ValidationError, source: str, within: tuple[str, ...] = ()) -> str:
    """The first fault in words: where it is, what is wrong, what would be right. within: the table that was read."""
    fault = error.errors(include_url=False)[0]
    parts = [part for part in (*within, *fault["loc"]) if isinstance(part, str)]
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
    if near := difflib.get_close_matches(key, fields, n=1, cutoff=0.65):
        return f'did you mean "{near[0]}"?'
    for one in others:
        if near := difflib.get_close_matches(key, SECTIONS[one].model_fields, n=1, cutoff=0.75):
            return f'did you mean "{near[0]}" of [{one}]?'
    return f"known are {', '.join(fields)}."


def check_folders(settings: Settings) -> None:
    """Raises ConfigError if what the settings name is not there, seconds before torch could tell."""
    node, run = settings.node, settings.run
    if node.role == "relay":
        return
    check_code(run, node)
    model = Path(run.model if node.model_path is None else node.model_path)
    if model.is_absolute() and not (model.is_file() and model.suffix == ".gguf"):
        _check_folder(model, MODEL_FILE, "model in [run], or model_path in [node]")
    rows = None if node.data is None else Path(divide_data(node.data)[0])
    if rows is not None and rows.is_absolute() and not rows.exists():
        raise ConfigError(f"there is no file or folder {rows}; correct [node] data.")
    if rows is not None and rows.is_dir() and not any(rows.iterdir()):
        raise ConfigError(f"the folder {rows} is empty; put rows there, or correct [node] data.")
    if node.data is None and run.objective.task in WITHOUT_ROWS:
        trial = f', or to "{EMBEDDED}" for some that come with the package' if run.objective.task == "lm" else ""
        raise ConfigError(
            f'task = "{run.objective.task}" needs rows: set [node] data to a file or folder of rows, or to a data set '
            f"of the hub{trial}."
        )


def check_code(run: RunSettings, node: NodeSettings) -> None:
    """Raises ConfigError if the score of a run is code and this host does not allow it."""
    if run.objective.task == "reward" and run.objective.is_code and not node.allow_code:
        raise ConfigError(
            f'score = "{run.objective.score}" is code: set allow_code = true in [node] if this host may run it.'
        )


def check_target(settings: Settings, folder: Path, mark: str = MODEL_FILE) -> None:
    """Raises ConfigError if an export there would take the place of the base model, which the run needs as it is, or of
    anything else but an earlier export of the run."""
    model = settings.run.model if settings.node.model_path is None else settings.node.model_path
    if folder.resolve() == Path(model).resolve():
        raise ConfigError(f"{folder} is the base model, which the run needs as it is: export to another folder.")
    check_place(folder, settings.run.run_id().hex(), mark)


def check_place(folder: Path, run: str | None, mark: str) -> None:
    """Raises ConfigError if there is something in this folder that is no earlier export of the same run. run: its id,
    as a model card tells it. mark: the file by which an export of this kind is known."""
    card = folder / CARD_FILE
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return
    told = RUN_IN_CARD.search(card.read_text(errors="replace")) if card.is_file() else None
    if not (folder / mark).is_file() or told is None or told[1] != run:
        raise ConfigError(f"{folder} holds something else than an earlier export of this run: choose a new folder.")
    if other := next((path.name for path in sorted(folder.iterdir()) if not EXPORTED.fullmatch(path.name)), None):
        raise ConfigError(f"{folder} holds {other} beside an earlier export of this run: choose a new folder.")


def check_export(settings: Settings) -> None:
    """Raises ConfigError if what the run exports at its end can be neither made nor written, or has no place there."""
    export = settings.node.export
    if export is None:
        return
    check_target(settings, export)
    if not _is_writable(export):
        raise ConfigError(f"the folder {export} cannot be written when the run has ended; correct [node] export.")


def _check_folder(folder: Path, file: str, key: str) -> None:
    """Raises ConfigError if there is no such folder, or this file is not in it."""
    if not folder.is_dir():
        raise ConfigError(f"the folder {folder} does not exist; correct {key}.")
    if (folder / ADAPTER_FILE).is_file() and not (folder / file).is_file():
        raise ConfigError(f"{folder} is an adapter: name the base model that it is of, and this folder with --adapter.")
    if not (folder / file).is_file():
        raise ConfigError(f"the folder {folder} has no {file}; put it there, or correct {key}.")


def _is_writable(folder: Path) -> bool:
    """Can this folder be made, or written if it is there?"""
    there = next(one for one in (folder, *folder.parents) if one.exists())
    return there.is_dir() and os.access(there, os.W_OK)
