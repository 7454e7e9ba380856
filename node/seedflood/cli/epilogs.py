"""What stands at the end of a command's help, below its options: exit codes, and examples.

The examples are written where the command is, at the end of its docstring.
"""

import inspect
from collections.abc import Callable
from typing import Any

import typer

EXIT_CODES = (
    "Exit codes: 0 done, 2 usage, 69 cannot bind, 70 internal, 74 disk, 75 try again, 76 other run, 77 removed or "
    "refused, 78 config."
)

EXAMPLE = "\n\nExample"
"""The first words of the last part of a docstring, "Example:" or "Examples:"."""


def example(line: str) -> str:
    """As a docstring has it."""
    return f"{EXAMPLE}:\n\n    {line}"


def add_command(app: typer.Typer, function: Callable[..., Any], name: str | None = None, begin: str = "") -> None:
    """Makes a command of a function. begin: what its help says below the options and above the examples."""
    text, heading, examples = inspect.cleandoc(function.__doc__ or "").partition(EXAMPLE)
    # A line break comes first: typer takes indentation off all other lines, and examples would be prose.
    epilog = f"\n{begin}{heading}{examples}"
    app.command(name, help=text, epilog=epilog)(function)
