"""`seedflood continue`: the files of the next run, which begins with what a run has ended with.

The next run has a folder of its own: settings, key, roster and model. It is another run, so it has another journal. Its
`[run] model` names the run before it, so all hosts write the same text, also relays, which hold no model. A host whose
model differs from the others' is refused by them as always, for a hello has the digest of the base model.

The run keeps its name, and with that a closed run its roster, which is signed for the name.
"""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from seedflood import durable
from seedflood.cli.learned import announced
from seedflood.cli.options import DATA_HELP, TASK_HELP, SetOption, guessed, parse_overrides, say, typed
from seedflood.config import (
    CARD_FILE,
    RUN_IN_CARD,
    WITHOUT_ROWS,
    Settings,
    check_folders,
    combine,
    detach,
    divide_data,
    load_settings,
    merge,
    read_layer,
)
from seedflood.errors import ConfigError, UsageError
from seedflood.founding.plan import PEERS_FILE, STATE_FOLDER, explain, write_text
from seedflood.host.places import KEY_FILE, ROSTER_FILE, read_result
from seedflood.roster_file import SignedRoster, read_roster, write_roster

NEXT_FOLDER, MODEL_FOLDER = "next", "model"

OF_ONE_RUN = ("export", "model_path", "roster", "state")
"""Keys of `[node]` that the next run does not take over as they are."""


def continue_run(
    files: Annotated[
        list[Path] | None,
        typer.Argument(metavar="PEERS.TOML...", help="Settings of one or more hosts.", show_default=PEERS_FILE),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="A new folder for the next run.", show_default="next, beside peers.toml"),
    ] = None,
    steps: Annotated[int | None, typer.Option(min=1, help="Length of the next run (default: as before).")] = None,
    data: Annotated[str | None, typer.Option(help=f"{DATA_HELP} (default: as before).")] = None,
    task: Annotated[str | None, typer.Option(help=f"Default: as before. {TASK_HELP}")] = None,
    overrides: SetOption = None,
) -> None:
    """Makes the next run of a host whose run has ended: it begins with what the hosts have learned.

    Writes a folder with peers.toml, key, roster and model of the next run. Addresses and peers stay as they are, and
    so does the folder of the run that has ended. Do the same on all hosts, and start each with the new peers.toml.

    Examples:

        seedflood continue peers.toml --steps 100 --data ./more.jsonl

        seedflood continue peers.toml --task sst2 --set run.mode=seedflood
    """
    given = parse_overrides(overrides)
    if set(given) - {"run"}:
        raise UsageError("--set is for [run] here; what belongs to a host stands in its peers.toml.")
    changes = given.get("run", {})
    if steps is not None:
        changes = merge(changes, {"steps": steps})
    named = files or [Path(PEERS_FILE)]
    if out is not None and len(named) > 1:
        raise UsageError("--out is for one host; without it, each gets a folder beside its peers.toml.")
    made = [_continue(file, out or file.parent / NEXT_FOLDER, task, data, changes) for file in named]
    command = f"{typed('seedflood-node')} --peers"
    say(f"do the same on all other hosts, then start each: {' and '.join(f'{command} {one}' for one in made)}")


def _continue(file: Path, out: Path, task: str | None, data: str | None, changes: Mapping[str, Any]) -> Path:
    """Makes the folder of one host's next run. Returns the new peers.toml. Raises SeedfloodError, and leaves nothing
    then."""
    if not file.exists():
        raise UsageError(f"{file} does not exist; name the settings of a host: seedflood continue PEERS.TOML.")
    before = load_settings(file)
    if not read_result(before.node.state):
        raise ConfigError(
            f"run {before.run.name} has not ended here: start the node, {typed('seedflood-node')} --peers {file}, and "
            "continue when it has."
        )
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ConfigError(f"{out} is there already; name a new folder with --out.")
    layer = _next_settings(before, read_layer(file), file.parent, task, data, changes)
    following = combine(detach(layer, out), None, str(file), out)
    if before.run.operator is not None and following.run.name != before.run.name:
        raise ConfigError(
            f"a closed run keeps its name, for its roster is signed for {before.run.name}: take run.name out of --set."
        )
    check_folders(following.model_copy(update={"node": following.node.model_copy(update={"model_path": None})}))
    try:
        _write(before, layer, out)
    except BaseException as error:
        shutil.rmtree(out, ignore_errors=True)
        if isinstance(error, OSError):
            raise ConfigError(f"cannot write {out}: {error.strerror}; name another folder with --out.") from None
        raise
    say(f"{out / PEERS_FILE}: run {following.run.name}, id {following.run.shown_id()}")
    return out / PEERS_FILE


def _next_settings(
    before: Settings,
    layer: Mapping[str, Any],
    folder: Path,
    task: str | None,
    data: str | None,
    changes: Mapping[str, Any],
) -> dict[str, Any]:
    """The tables of the next peers.toml. layer: the last one, as it is in this folder. Raises SeedfloodError."""
    run = _next_run(before, task, changes)
    node = {key: value for key, value in detach(layer, folder).get("node", {}).items() if key not in OF_ONE_RUN}
    node["state"] = STATE_FOLDER
    if before.node.role != "relay":
        node["model_path"] = MODEL_FOLDER if before.run.mode == "seedflood" else str(_exported(before))
    if before.run.operator is not None:
        node["roster"] = ROSTER_FILE
    if data is not None:
        run["objective"] = _objective_of(data, run.get("objective", {}))
        node["data"] = detach({"node": {"data": data}}, Path())["node"]["data"]
    elif task is not None and task not in WITHOUT_ROWS:
        node.pop("data", None)  # rows of the last task, and this one has its own
    return {"run": run, "node": node, "peers": layer.get("peers", [])}


def _next_run(before: Settings, task: str | None, changes: Mapping[str, Any]) -> dict[str, Any]:
    """`[run]` as before, but for the model and what is changed."""
    run = json.loads(before.run.canonical())
    if task is not None:
        run["objective"] = {"task": task}
    run.get("gasloc", {}).pop("initial", None)  # it goes on with what random weights have become
    if changes.get("mode", before.run.mode) != before.run.mode:
        run.pop(before.run.mode, None)
    return merge({"name": before.run.name}, run, {"model": f"run-{before.run.shown_id()}"}, changes)


def _objective_of(data: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """`[run.objective]`, with what is guessed of the rows. Raises SeedfloodError if they do not fit."""
    from seedflood.training.sources import check_place_of_rows  # not every host has what training needs

    check_place_of_rows(divide_data(data)[0])
    return merge(guessed(data, given), given)


def _exported(before: Settings) -> Path:
    """The model that a run has ended with, where no journal holds what was learned. Raises ConfigError."""
    folder = before.node.export
    card = folder / CARD_FILE if folder is not None else None
    named = RUN_IN_CARD.search(card.read_text(errors="replace")) if card is not None and card.is_file() else None
    if folder is None or named is None or named[1] != before.run.run_id().hex():
        raise ConfigError(
            f'with mode = "{before.run.mode}" a node keeps its model only in [node] export: set that, start the node '
            "once more, which writes the model and ends, and continue then."
        )
    return folder


def _write(before: Settings, layer: Mapping[str, Any], out: Path) -> None:
    """Raises OSError or SeedfloodError."""
    out.mkdir(parents=True, exist_ok=True, mode=0o700)
    if before.node.role != "relay" and before.run.mode == "seedflood":
        from seedflood.offline.exporting import export_model

        with announced(f"writing what {before.node.name} has learned to {out / MODEL_FOLDER}"):
            node = before.node.model_copy(update={"device": "cpu", "dtype": "float32"})  # equal on all hosts
            export_model(before.model_copy(update={"node": node}), out / MODEL_FOLDER)
    if before.run.operator is not None:
        write_roster(out / ROSTER_FILE, _newest_roster(before))
    key = out / STATE_FOLDER / KEY_FILE
    key.parent.mkdir(mode=0o700, exist_ok=True)
    durable.write(key, (before.node.state / KEY_FILE).read_bytes())
    write_text(out / PEERS_FILE, explain(layer))


def _newest_roster(before: Settings) -> SignedRoster:
    """Of the operator's file and of what others have sent since. Raises ConfigError."""
    kept = before.node.state / ROSTER_FILE
    known = [one for one in (before.node.roster, kept if kept.exists() else None) if one is not None]
    return max(map(read_roster, known), key=lambda one: one.roster.serial)
