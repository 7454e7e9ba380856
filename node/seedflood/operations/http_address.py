"""Where a running node answers: a file in its state folder, from when it listens until it ends in peace.

A killed node leaves the file behind, so whoever reads it asks the node that answers there who it is.
"""

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
    name: str
    pid: int


def keep_http_address(state: Path, http_address: HttpAddress) -> None:
    """Only the owner of the node may read it. Raises JournalError."""
    path = state / HTTP_FILE
    try:
        durable.write(path, json.dumps(asdict(http_address)).encode())
    except OSError as error:
        raise JournalError(f"{path} cannot be written: {error.strerror}.", path=str(path)) from None


def find_http_address(state: Path) -> HttpAddress | None:
    """None if no node has said where it is, or the file is of another version."""
    try:
        facts = json.loads((state / HTTP_FILE).read_text())
        return HttpAddress(str(facts["address"]), str(facts["origin"]), str(facts["name"]), int(facts["pid"]))
    except (OSError, ValueError, LookupError, TypeError):
        return None


def remove_http_address(state: Path) -> None:
    (state / HTTP_FILE).unlink(missing_ok=True)
