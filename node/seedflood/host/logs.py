"""Logs: one line per fact on stderr. Of a daemon: for people on a terminal, else as JSON for machines. Beside a script:
for people. stdout is for data alone.

Everything goes through the standard library's logging, so that libraries' warnings look like our own.
"""

import logging
import sys
from collections.abc import Callable

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

from seedflood.terminal import visible

_QUIET = ("transformers", "urllib3", "httpx", "httpcore", "filelock", "fsspec", "datasets", "asyncio")


def configure_logging(node: str) -> None:
    """Called once per process. node: the name that stands in every line."""
    root = logging.getLogger()
    root.handlers = [_handler(node, is_for_people=sys.stderr.isatty())]
    root.setLevel(logging.INFO)
    logging.captureWarnings(True)
    for library in _QUIET:
        logging.getLogger(library).setLevel(logging.ERROR)


def log_beside(node: str) -> Callable[[], None]:
    """In a script or notebook of somebody else: our own lines go to stderr, and its logging stays as it is. Returns
    what undoes that."""
    ours, handler = logging.getLogger("seedflood"), _handler(node, is_for_people=True)
    before = ours.level, ours.propagate
    ours.addHandler(handler)
    ours.setLevel(logging.INFO)
    ours.propagate = False

    def undo() -> None:
        ours.removeHandler(handler)
        ours.setLevel(before[0])
        ours.propagate = before[1]

    return undo


def _handler(node: str, *, is_for_people: bool) -> logging.Handler:
    """Of stderr. Whatever structlog is given goes through the standard library from now on."""

    def name_node(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
        event.setdefault("node", node)
        return event

    shared: list[Processor] = [
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.stdlib.ExtraAdder(),
        name_node,
    ]
    renderers: list[Processor] = [structlog.processors.JSONRenderer()]
    if is_for_people:
        renderers = [_make_visible, structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), pad_event_to=24)]
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    formatter = structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=shared,
        processors=[
            structlog.stdlib.ProcessorFormatter.remove_processors_meta,
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
