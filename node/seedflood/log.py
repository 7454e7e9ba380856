"""The logger of the project: an event with facts, through the standard library's logging.

It does not use structlog's global settings. Beside a script these belong to the script.
"""

import logging

import structlog
from structlog.typing import Processor

LOGGER = "seedflood"
"""Its name in the standard library's logging."""

COMMON: list[Processor] = [
    structlog.stdlib.add_log_level,
    structlog.processors.TimeStamper(fmt="iso", utc=True),
    structlog.stdlib.ExtraAdder(),
]
"""What every line goes through, ours and those of libraries."""

log: structlog.stdlib.BoundLogger = structlog.wrap_logger(
    logging.getLogger(LOGGER),
    processors=[structlog.stdlib.filter_by_level, *COMMON, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
    wrapper_class=structlog.stdlib.BoundLogger,
    cache_logger_on_first_use=True,
)
