"""Help: every command ends with examples, which it understands."""

import shlex
from collections.abc import Iterator

import pytest
import typer
from typer.testing import CliRunner

from seedflood.cli.commands import app, node_app

COLUMNS = "80"
NODE = "seedflood-node"


def commands_of(command, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], object]]:
    """(words that call it, command) of a command and of all below it."""
    yield path, command
    for name, one in getattr(command, "commands", {}).items():
        yield from commands_of(one, (*path, name))


PROGRAMS = {"seedflood": typer.main.get_command(app), NODE: typer.main.get_command(node_app)}
COMMANDS = {
    " ".join(path): command for name, program in PROGRAMS.items() for path, command in commands_of(program, (name,))
}


def help_of(words: str) -> list[str]:
    """The lines of a command's help, in a terminal of eighty columns."""
    name, *rest = words.split()
    shown = CliRunner().invoke(app if name == "seedflood" else node_app, [*rest, "--help"], env={"COLUMNS": COLUMNS})
    assert shown.exit_code == 0
    return [line.strip() for line in shown.stdout.splitlines() if line.strip()]


def examples_of(words: str) -> list[str]:
    """Whatever stands below the last "Example:" or "Examples:" of a command's help."""
    lines = help_of(words)
    headings = [place for place, line in enumerate(lines) if line in ("Example:", "Examples:")]
    return lines[headings[-1] + 1 :] if headings else []


def parse(line: str) -> str:
    """Has a command of ours read its arguments, and does nothing. Returns the words that call it."""
    name, *words = shlex.split(line.partition(" < ")[0])
    command, called = PROGRAMS[name], [name]
    context = command.make_context(name, [*words])
    while hasattr(command, "resolve_command"):
        name, command, words = command.resolve_command(context, words)
        called.append(name)
        context = command.make_context(name, [*words], parent=context)
    return " ".join(called)


@pytest.mark.parametrize("words", COMMANDS)
def test_help_ends_with_examples_of_the_command_that_it_understands(words):
    """Each stands on one line, so that it can be copied."""
    examples = examples_of(words)
    assert examples != []
    for line in examples:
        called = parse(line)
        assert called == words or called.startswith(f"{words} ")


@pytest.mark.parametrize("line", ["seedflood local --nods 3", "seedflood roster lend x", "seedflood trace alpha one"])
def test_an_example_that_a_command_does_not_understand_is_found(line):
    with pytest.raises(Exception, match=r"(?i)no such|valid integer"):
        parse(line)
