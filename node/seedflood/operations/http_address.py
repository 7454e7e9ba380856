"""The address of a running node's HTTP server, in a file of its state folder, from its start until a clean end.

A node that was killed leaves the file behind. So a reader must ask the node at this address who it is.
"""

import contextlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path

from seedflood import durable
from seedflood.errors import JournalError

HTTP_FILE = "http.json"


@dataclass(frozen=True, slots=True)
class HttpAddress:
    """address: host:port. origin: fingerprint of the node."""

    address: str
    origin: str


def keep_http_address(state: Path, http_address: HttpAddress) -> None:
    """Writes the file, which only its owner may read. Raises JournalError."""
    path = state / HTTP_FILE
    try:
        durable.write(path, json.dumps(asdict(http_address)).encode())
    except OSError as error:
        raise JournalError(f"{path} cannot be written: {error.strerror}.") from None


def find_http_address(state: Path) -> HttpAddress | None:
    """Reads the file. None if there is none, or if it is of another version. Raises PermissionError."""
    try:
        facts = json.loads((state / HTTP_FILE).read_text(encoding="utf-8"))
        return HttpAddress(str(facts["address"]), str(facts["origin"]))
    except PermissionError:
        raise
    except (OSError, ValueError, LookupError, TypeError):
        return None


def remove_http_address(state: Path) -> None:
    """As a kill does, a folder that cannot be written leaves the file behind."""
    with contextlib.suppress(OSError):
        (state / HTTP_FILE).unlink()
