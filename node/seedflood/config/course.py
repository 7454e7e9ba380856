"""A course: runs that the same hosts train one after the other, in one process and with one key.

`[node] then` names the file of the next run. That file has its own `[run]`. Settings of `[node]` and `[[peers]]` that
it does not have are taken from the file before it, except those that belong to one run. Its model may be "previous":
the result of the run before it. Where a host keeps that is not a part of the run's id.

The folder of a run says that this host has come to it. It is made at the handover, inside the first run's state folder,
and a host begins with the last run that has one.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from seedflood.config.checks import check_export, check_folders
from seedflood.config.load import NAME_THE_FILE, anchor, combine, read_layer, with_state
from seedflood.config.settings import Settings
from seedflood.config.tables import merge
from seedflood.errors import ConfigError

PREVIOUS = "previous"

OF_ONE_RUN = ("data", "export", "model_path", "then")
"""Keys of `[node]` that belong to one run: a later run does not inherit them."""

MODEL_FOLDER = "model"
"""The folder in the state folder with the model of a run that has ended, for the next run."""

RUN_CHARACTERS = 16
"""How many characters of a run id hosts show to each other when their runs differ."""


@dataclass(frozen=True, slots=True)
class Stage:
    """One run of a course. key_folder: the state folder of the first run, which has the key. position: from 0. runs,
    names: of all of them; runs: their ids, as they are shown."""

    settings: Settings
    key_folder: Path
    position: int = 0
    runs: tuple[str, ...] = ()
    names: tuple[str, ...] = ()

    @property
    def state(self) -> Path:
        return self.settings.node.state

    def folder(self, position: int) -> Path:
        """The folder of any run of the course."""
        return self.key_folder / f"run-{self.runs[position]}" if position else self.key_folder

    @property
    def next_run(self) -> str | None:
        return self.runs[self.position + 1] if self.position + 1 < len(self.runs) else None

    @property
    def is_begun(self) -> bool:
        """Has this host begun this run or a later one?"""
        return self.state.is_dir()


def load_course(path: Path, flags: Mapping[str, Any] | None = None) -> tuple[Stage, ...]:
    """All runs that the file leads to, in order; only one without `[node] then`. Raises ConfigError."""
    loaded = list(_read(path, flags or {}))
    if loaded[0].run.model == PREVIOUS and loaded[0].node.model_path is None:
        raise ConfigError(
            f'{path}: model = "{PREVIOUS}" is the result of the run before it, and none is before it: name this '
            "file in [node] then of that run's file."
        )
    if any(
        one.run.model == PREVIOUS and one.run.mode == "gasloc" and one.run.gasloc.initial == "random" for one in loaded
    ):
        raise ConfigError(
            f'{path}: a run with model = "{PREVIOUS}" begins with what the run before it has learned, so take '
            'initial = "random" out of its [run.gasloc].'
        )
    runs = tuple(one.run.run_id().hex()[:RUN_CHARACTERS] for one in loaded)
    if len(set(runs)) < len(runs):
        raise ConfigError(f"{path}: two runs of the course are the same; give one of them another [run] name.")
    names, key_folder = tuple(one.run.name for one in loaded), loaded[0].node.state
    return tuple(_place([Stage(one, key_folder, k, runs, names) for k, one in enumerate(loaded)]))


def current(course: tuple[Stage, ...]) -> Stage:
    """The latest run that this host has begun."""
    return [stage for stage in course if stage.is_begun or not stage.position][-1]


def pick(course: tuple[Stage, ...], name: str | None) -> Settings:
    """The run of this name; None: the latest one that this host has begun. Raises ConfigError."""
    if name is None:
        return current(course).settings
    found = [stage.settings for stage in course if stage.settings.run.name == name]
    if not found:
        raise ConfigError(f"no run is named {name}; there are {', '.join(course[0].names)}.")
    return found[0]


def check_course(course: tuple[Stage, ...]) -> None:
    """Raises ConfigError if a folder that the settings name does not exist. The result of an earlier run of the course
    need not exist yet."""
    for stage in course:
        settings = stage.settings
        if settings.run.model == PREVIOUS and stage.position:
            node = settings.node.model_copy(update={"model_path": None})
            settings = settings.model_copy(update={"node": node})
        check_folders(settings)
        check_export(settings)


def _read(path: Path, flags: Mapping[str, Any]) -> Iterator[Settings]:
    """One file after the other. Raises ConfigError."""
    seen: list[Path] = []
    layer: dict[str, Any] = {}
    following: Path | None = path
    while following is not None:
        if following.resolve() in seen:
            raise ConfigError(f"{path}: [node] then leads back to {following}, so the course would never end.")
        seen.append(following.resolve())
        remedy = f"correct [node] then of {seen[-2].name}" if layer else NAME_THE_FILE
        given = read_layer(following, remedy)
        if layer and "state" in given.get("node", {}):
            raise ConfigError(
                f"{following}: [node] state is for the first run of a course; what follows is kept inside of it: take "
                "the key out."
            )
        folder = following.parent
        layer = merge(layer, anchor(given if layer else with_state(given), folder))
        settings = combine(layer, flags, str(following), folder)
        yield settings
        following = settings.node.then if isinstance(settings.node.then, Path) else None
        kept = {name: table for name, table in layer.items() if name != "run"}
        layer, flags = ({**one, "node": _of_the_host(one.get("node", {}))} for one in (kept, flags))


def _of_the_host(node: Mapping[str, Any]) -> dict[str, Any]:
    """What the next run inherits of `[node]`."""
    return {key: value for key, value in node.items() if key not in OF_ONE_RUN}


def _place(stages: list[Stage]) -> Iterator[Stage]:
    """The same runs, each with its folders on this host."""
    for k, stage in enumerate(stages):
        settings = stage.settings
        node, changes = settings.node, {"state": stage.folder(k)}
        if k and settings.run.model == PREVIOUS and node.model_path is None:
            changes["model_path"] = _model_of(stages[k - 1])
        if k + 1 < len(stages) and stages[k + 1].settings.run.model == PREVIOUS and node.export is None:
            changes["export"] = _model_of(stage)
        yield replace(stage, settings=settings.model_copy(update={"node": node.model_copy(update=changes)}))


def _model_of(stage: Stage) -> Path:
    """The folder of the model with which a run has ended. `export` may have been set after that."""
    kept, exported = stage.folder(stage.position) / MODEL_FOLDER, stage.settings.node.export
    return kept if exported is None or (kept.exists() and not exported.exists()) else exported
