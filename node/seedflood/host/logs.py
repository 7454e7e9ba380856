"""Logs: one line per fact on stderr. Of a daemon: for people on a terminal, else as JSON for machines. Beside a script:
for people. stdout is for data alone.

Everything goes through the standard library's logging, so that libraries' warnings look like our own.
"""

import logging
import sys
from collections.abc import Callable
from contextlib import ExitStack

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

from seedflood.log import COMMON, LOGGER
from seedflood.terminal import visible

_QUIET = ("transformers", "urllib3", "httpx", "httpcore", "filelock", "fsspec", "datasets", "asyncio")


def configure_logging(node: str, *, is_quiet: bool = False) -> None:
    """Called once per process. node: the name that stands in every line. is_quiet: of problems alone."""
    root = logging.getLogger()
    root.handlers = [_handler(lambda: node, is_for_people=sys.stderr.isatty())]
    root.setLevel(logging.WARNING if is_quiet else logging.INFO)
    logging.captureWarnings(True)
    for library in _QUIET:
        logging.getLogger(library).setLevel(logging.ERROR)


_beside: list[str] = []
"""The names of the nodes that run beside a script now."""

_restoring = ExitStack()
"""Gives the script its logging back, when the last of them has ended."""


def log_beside(node: str) -> Callable[[], None]:
    """In a script or notebook of somebody else: our own lines go to stderr, and its logging stays as it is. Lines of
    several nodes in one process name them all. Returns what undoes that."""
    if not _beside:
        _add_our_handler()
    _beside.append(node)

    def undo() -> None:
        _beside.remove(node)
        if not _beside:
            _restoring.close()

    return undo


def _add_our_handler() -> None:
    ours = logging.getLogger(LOGGER)
    handler = _handler(lambda: ", ".join(_beside), is_for_people=True)
    _restoring.callback(ours.removeHandler, handler)
    _restoring.callback(ours.setLevel, ours.level)
    _restoring.callback(setattr, ours, "propagate", ours.propagate)
    ours.addHandler(handler)
    ours.setLevel(logging.INFO)
    ours.propagate = False


def _handler(name: Callable[[], str], *, is_for_people: bool) -> logging.Handler:
    """Of stderr. name: returns what stands in each line as the node."""

    def name_node(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
        event.setdefault("node", name())
        return event

    renderers: list[Processor] = [structlog.processors.JSONRenderer()]
    if is_for_people:
        renderers = [_make_visible, structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), pad_event_to=24)]
    formatter = structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=COMMON,
        processors=[
            structlog.stdlib.ProcessorFormatter.remove_processors_meta,
            name_node,
            structlog.processors.format_exc_info,
            *renderers,
        ],
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter)
    return handler


def _make_visible(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
    """A line is one line: only a traceback has more of them."""
    for key, value in event.items():
        if isinstance(value, str):
            event[key] = visible(value)
    event["event"] = str(event.get("event", "")).replace("\n", "\\n")
    return event
