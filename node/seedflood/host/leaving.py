"""How a process ends at once."""

import os
from typing import NoReturn

from seedflood.errors import ExitCode
from seedflood.host import outlets


def leave(code: ExitCode) -> NoReturn:
    """Ends the process at once. Nothing has to be closed: journal and event log survive `kill -9`, too."""
    outlets.finish()
    os._exit(code)
