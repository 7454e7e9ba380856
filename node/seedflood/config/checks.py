"""What the settings name is looked at before a run begins, seconds before torch could find out: models, rows,
exports."""

import errno
import os
import re
import tempfile
from pathlib import Path

from seedflood.config.node import NodeSettings, divide_data
from seedflood.config.run import WITHOUT_ROWS, RunSettings
from seedflood.config.settings import Settings
from seedflood.errors import ConfigError

EMBEDDED = "embedded"

MODEL_FILE, ADAPTER_FILE, CARD_FILE = "config.json", "adapter_config.json", "README.md"
"""In a folder: by which a model is known, and a LoRA adapter; the model card of either."""

RUN_IN_CARD = re.compile(r"^\| run \| (\w+) \|$", re.MULTILINE)

EXPORTED = re.compile(
    r"README\.md|adapter_(config\.json|model\.safetensors)|(generation_)?config\.json|"
    r"model(-\d+-of-\d+)?\.safetensors(\.index\.json)?|[\w.-]*token\w*\.(json|model)|[\w.-]+\.model|vocab\.\w+|"
    r"merges\.txt|chat_template\.jinja|additional_chat_templates"
)
"""The names of what an export of a model or an adapter writes, tokenizers of all kinds among them."""


def check_settings(settings: Settings) -> None:
    """Raises ConfigError if what the settings name is not there, or their export has no place."""
    check_folders(settings)
    check_export(settings)


def check_folders(settings: Settings) -> None:
    """Raises ConfigError if what the settings name is not there, seconds before torch could find out."""
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
    as a model card states it. mark: the file by which an export of this kind is known."""
    card = folder / CARD_FILE
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return
    found = RUN_IN_CARD.search(card.read_text(errors="replace")) if card.is_file() else None
    if not (folder / mark).is_file() or found is None or found[1] != run:
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
    if folder.is_file():
        raise ConfigError(f"{folder} is a file; name the folder of the model as {key}.")
    if not folder.is_dir():
        raise ConfigError(f"the folder {folder} does not exist; correct {key}.")
    if (folder / ADAPTER_FILE).is_file() and not (folder / file).is_file():
        raise ConfigError(
            f"{folder} is an adapter: name the base model that it is of, and this folder with --adapter of `seedflood "
            "evaluate` or `generate`; a run begins with a whole model, as `seedflood export --output` writes it."
        )
    if not (folder / file).is_file():
        raise ConfigError(f"the folder {folder} has no {file}; put it there, or correct {key}.")


def _is_writable(folder: Path) -> bool:
    """Can this folder be made, or replaced if it is there? Tried, for root may write /proc by its permissions. A disk
    that is full may have space at the end of the run."""
    try:
        os.rmdir(tempfile.mkdtemp(dir=next(one for one in folder.parents if one.exists())))
    except OSError as error:
        return error.errno in (errno.ENOSPC, errno.EDQUOT)
    return True
