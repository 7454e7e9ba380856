"""`seedflood continue`: the next run from what hosts have learned, with other rows or more steps, as a course."""

import json
import re
from pathlib import Path
from typing import Annotated, Any

import typer

from seedflood import durable
from seedflood.cli.options import DATA_HELP, TASK_HELP, SetOption, guessed, parse_overrides, say, typed
from seedflood.config import PREVIOUS, Stage, check_course, detach, divide_data, load_course, merge, spell
from seedflood.errors import ConfigError, UsageError
from seedflood.host.places import JOURNAL_FILE, ROSTER_FILE
from seedflood.identity import Identity
from seedflood.roster_file import SignedRoster, read_roster, write_roster


def continue_run(
    files: Annotated[
        list[Path] | None,
        typer.Argument(metavar="PEERS.TOML...", help="Settings of one or more hosts.", show_default="peers.toml"),
    ] = None,
    steps: Annotated[int | None, typer.Option(min=1, help="Length of the next run (default: as before).")] = None,
    data: Annotated[str | None, typer.Option(help=f"{DATA_HELP} (default: as before).")] = None,
    task: Annotated[str | None, typer.Option(help=f"Default: as before. {TASK_HELP}")] = None,
    name: Annotated[str | None, typer.Option(help="Of the next run (default: a number behind the last one's).")] = None,
    key: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Of a closed run: the operator's key, with roster.json beside it."),
    ] = None,
    overrides: SetOption = None,
) -> None:
    """Makes the next run, which begins with what the last one has ended with: same hosts, same keys, same roster.

    Writes the settings of the next run beside peers.toml, and names them there in [node] then. Do the same on all
    hosts, and start them again: they go on together, once all have ended the last run. Of a closed run the operator
    does it for all hosts, and hands the files to them, for the next run needs a roster, too.

    Examples:

        seedflood continue peers.toml --steps 100 --data ./more.jsonl

        seedflood continue run/*/peers.toml --key run/operator.key --set run.seedflood.learning_rate=0.01
    """
    given = parse_overrides(overrides)
    if set(given) - {"run"}:
        raise UsageError("--set is for [run] here; what belongs to a host stands in its peers.toml.")
    wanted = {key: value for key, value in (("name", name), ("steps", steps)) if value is not None}
    for file in files or [Path("peers.toml")]:
        if not file.exists():
            raise UsageError(f"{file} does not exist; name the settings of a host: seedflood continue PEERS.TOML.")
        course = load_course(file)
        _check_begun(course, file)
        following = _following(course[-1], task, merge(given.get("run", {}), wanted))
        if (following_name := following["run"]["name"]) in course[-1].names:
            raise ConfigError(f"the course of {file} has a run {following_name} already; choose another --name.")
        if data is not None:
            following = _with_rows(following, course[-1].settings.run.objective.task if task is None else task, data)
        if course[-1].settings.run.operator is not None:
            signed = _sign(key, course[-1].settings.run.operator, following["run"]["name"])
            following = merge(following, {"node": {"roster": f"{following['run']['name']}.json"}})
            write_roster(file.with_name(following["node"]["roster"]), signed)
        last = course[-2].settings.node.then if len(course) > 1 else file
        assert isinstance(last, Path), "a later run without a file"
        added = _add(file, last, following)
        say(f"{added}: run {following['run']['name']}, id {load_course(file)[-1].runs[-1]}")
        if course[-1].settings.node.export is not None:
            say(f"  what it learns is exported if {added} has an export in [node], to a folder of its own")
        if key is not None:
            of_host = ", ".join(path.name for path in (last, added, file.with_name(following["node"]["roster"])))
            say(f"  copy to {course[0].settings.node.name}, beside its {file.name}: {of_host}")
    command = f"{typed('seedflood-node')} --peers"
    started = " and ".join(f"{command} {one}" for one in files or [file]) if key is None else f"{command} {file.name}"
    say(
        f"then start each host again, in its folder: {started}"
        if key is not None
        else f"do the same on all other hosts of the run, then start each again, here: {started}"
    )


def _check_begun(course: tuple[Stage, ...], file: Path) -> None:
    """Raises ConfigError if this host has still to begin the last run. Who makes files for other hosts has no
    journal, and cannot know."""
    last = course[-1]
    if last.position and not last.is_begun and (course[0].state / JOURNAL_FILE).exists():
        raise ConfigError(
            f"run {last.settings.run.name} follows already, and has not begun here: start the node with {file}, or "
            "take then out of [node] and delete the file that it names."
        )


def _following(last: Stage, task: str | None, changes: dict[str, Any]) -> dict[str, Any]:
    """The tables of the next run: those of the last one, but for what is changed."""
    run, told = last.settings.run, json.loads(last.settings.run.canonical())
    if task is not None:
        told["objective"] = {"task": task}
    told.get("gasloc", {}).pop("initial", None)  # it goes on with what random weights have become
    base, number = re.fullmatch(r"(.*?)(?:-(\d+))?", run.name).groups()  # type: ignore[union-attr]  # it matches all
    usual = {"name": f"{base}-{int(number or 1) + 1}", "model": PREVIOUS}
    data = last.settings.node.data
    return {"run": merge(told, usual, changes), **({} if data is None else {"node": {"data": data}})}


def _with_rows(following: dict[str, Any], task: str, data: str) -> dict[str, Any]:
    """The same tables, with these rows and what is guessed of them. Raises SeedfloodError if they do not fit."""
    from seedflood.training.sources import check_place_of_rows  # not every host has what training needs

    check_place_of_rows(divide_data(data)[0])
    objective = guessed(data, {"task": task, **following["run"].get("objective", {})})
    placed = detach({"node": {"data": data}}, Path())
    return merge({"run": {"objective": objective}}, following, placed)


def _sign(key: Path | None, operator: str, name: str) -> SignedRoster:
    """The operator's roster, for the run of this name. operator: public key of whoever signs it. Raises ConfigError."""
    if key is None:
        raise UsageError(
            "the run is closed, and its roster is for it alone: its operator makes the next one, with --key FILE, and "
            "hands the files to the hosts."
        )
    if not key.is_file():
        raise UsageError(f"there is no key {key}; name that of the operator.")
    identity, before = Identity.load_or_create(key), read_roster(key.with_name(ROSTER_FILE))
    for what, found in ((key, identity.public_key), (key.with_name(ROSTER_FILE), before.operator)):
        if found.hex() != operator:
            raise ConfigError(f"{what} is of operator {found.hex()[:8]}…, but that of the run is {operator[:8]}….")
    return SignedRoster.sign(identity, name, before.roster)


def _add(first: Path, last: Path, following: dict[str, Any]) -> Path:
    """Writes the file of the next run beside the last one, which then names it. first: of the course. Raises
    ConfigError, and changes nothing then."""
    added = last.with_name(f"{following['run']['name']}.toml")
    if added.exists():
        raise ConfigError(f"{added} is there already; choose another --name.")
    before = last.read_text(encoding="utf-8")
    line = f'then = "{added.name}"\n'
    kept = re.sub(r"^then *=.*\n", "", before, flags=re.MULTILINE)  # to serve those that come late
    after, count = re.subn(r"^\[node\].*\n", lambda found: found[0] + line, kept, count=1, flags=re.MULTILINE)
    try:
        durable.write(added, spell(following).encode(), mode=0o644)
        durable.write(last, (after if count else f"{kept}\n[node]\n{line}").encode(), mode=0o644)
    except OSError as error:
        added.unlink(missing_ok=True)
        raise ConfigError(f"cannot write {last} and, beside it, {added}: {error.strerror}.") from None
    try:
        check_course(load_course(first))
    except ConfigError:
        durable.write(last, before.encode(), mode=0o644)
        added.unlink(missing_ok=True)
        raise
    return added
