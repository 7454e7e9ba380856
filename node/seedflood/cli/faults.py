"""How a fault of any command is reported: one sentence, and an exit code."""

import asyncio
import errno
import json
import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from rich.text import Text

from seedflood.errors import ExitCode, SeedfloodError
from seedflood.host import outlets
from seedflood.terminal import Screen

INTERRUPTED = "interrupted"
CODE_OF_INTERRUPTS = 128 + signal.SIGINT
"""What typer makes of a KeyboardInterrupt, without a word."""

NEEDS_TRAINING = (
    "the Python package {module} is not installed, which everything with a model needs: pip install "
    "'seedflood[train]'; `seedflood relay` runs without."
)

NEEDS_MEMORY = (
    "there is too little memory ({error}): free some, or in [node] set micro_batch = 1, which computes gradients with "
    'less, or dtype = "int8" or "nf4" for smaller weights; what was learned is kept.'
)

OF_ANOTHER_USER = "this user may not use {file}: run the command as the user of the node (sudo -u USER)."

TOO_MANY_FILES = "too many open files: raise the limit (ulimit -n, LimitNOFILE=), or see who opens so many connections."

TOO_MANY_THREADS = (
    "no more threads may be started: raise the limit (ulimit -u, TasksMax=, --pids-limit), or end other processes."
)

NO_LETTERS = (
    "Python is set to spell the names of files as {encoding}, which lacks letters of {text!a}: set LC_ALL=C.UTF-8, or "
    "take PYTHONUTF8 out of the environment."
)

NO_TEXT = (
    "the name of a file or folder is no text in UTF-8, so settings cannot name it: {line!a}; give it another name."
)

INTERNAL = "internal fault: {name}: {error}; please report it, with the traceback that SEEDFLOOD_TRACEBACK=1 shows."


def run_command(command: Callable[..., Any], name: str) -> None:
    try:
        command(prog_name=name)
    except SeedfloodError as error:
        _fail(name, str(error), error.exit_code)
    except ModuleNotFoundError as error:
        if (error.name or "seedflood").partition(".")[0] == "seedflood":
            raise
        _fail(name, NEEDS_TRAINING.format(module=error.name), ExitCode.CONFIG)
    except (KeyboardInterrupt, asyncio.CancelledError):
        _fail(name, INTERRUPTED, ExitCode.TRY_AGAIN)
    except SystemExit as end:
        if end.code == CODE_OF_INTERRUPTS:
            _fail(name, INTERRUPTED, ExitCode.TRY_AGAIN)
        raise
    except Exception as error:
        _fail(name, *_explain(error))
    finally:
        outlets.finish()


def _explain(error: Exception) -> tuple[str, ExitCode]:
    if isinstance(error, PermissionError) and error.filename is not None:
        return OF_ANOTHER_USER.format(file=error.filename), ExitCode.CONFIG
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "there is no space for what is written: free some, or send stdout elsewhere.", ExitCode.DISK
    if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE):
        return TOO_MANY_FILES, ExitCode.TRY_AGAIN
    if isinstance(error, RuntimeError) and str(error).startswith("can't start new thread"):
        return TOO_MANY_THREADS, ExitCode.TRY_AGAIN
    if isinstance(error, AttributeError) and sys.stdout is None:
        return "stdout is closed: send it somewhere, if only to /dev/null.", ExitCode.DISK
    if isinstance(error, UnicodeEncodeError) and error.encoding == sys.getfilesystemencoding() != "utf-8":
        return NO_LETTERS.format(encoding=error.encoding, text=error.object), ExitCode.CONFIG
    if isinstance(error, UnicodeEncodeError) and error.reason == "surrogates not allowed":
        begin = error.object.rfind("\n", 0, error.start) + 1
        return NO_TEXT.format(line=error.object[begin:].partition("\n")[0]), ExitCode.CONFIG
    if _is_out_of_memory(error):
        sentences = str(error).split(". ")
        said = next((one for one in sentences if _names_memory(one)), sentences[0])
        return NEEDS_MEMORY.format(error=said or "MemoryError"), ExitCode.INTERNAL
    return INTERNAL.format(name=type(error).__name__, error=error), ExitCode.INTERNAL


def _is_out_of_memory(error: Exception) -> bool:
    """Of Python, or of PyTorch, on any device: `mps` and CPUs have no class of their own for it."""
    is_said = isinstance(error, RuntimeError) and _names_memory(str(error))
    return is_said or isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError"


def _names_memory(text: str) -> bool:
    return any(words in text.lower() for words in ("out of memory", "not enough memory", "can't allocate memory"))


def _fail(name: str, sentence: str, code: ExitCode) -> None:
    """One sentence on stderr; JSON where the logs are JSON."""
    if os.environ.get("SEEDFLOOD_TRACEBACK"):
        raise
    if name == "seedflood-node" and not sys.stderr.isatty():
        print(json.dumps({"event": sentence, "level": "critical", "exit_code": int(code)}), file=sys.stderr)
    else:
        line = Text.assemble((f"{name}:", "bold red"), " ", sentence)
        Screen(stderr=True, soft_wrap=True, highlight=False).print(line)
    sys.exit(int(code))
