"""Names of hosts, as found in event files and as people type them."""

import re
from collections.abc import Iterable

from seedflood.operations.eventlog import decode


def resolve_origin(text: str, names: dict[str, str]) -> str | None:
    """The fingerprint that belongs to a name, to a fingerprint, or to the unique beginning of one. None if there is
    none, or more than one. names: fingerprint -> name."""
    found = [origin for origin, name in names.items() if name == text]
    if not found:
        found = [origin for origin in names if origin.startswith(text.lower())]
    if len(found) == 1:
        return found[0]
    return text.lower() if not found and re.fullmatch(r"[0-9a-f]{16}", text.lower()) else None


def find_names(lines: Iterable[bytes]) -> dict[str, str]:
    """fingerprint -> name, as found in lines of event files."""
    names: dict[str, str] = {}
    for line in lines:
        if b'"event":"members"' in line or b'"event":"member joined"' in line:
            whole = decode(line) or {}
            if isinstance(whole.get("names"), dict):
                names |= whole["names"]
            if isinstance(whole.get("origin"), str) and isinstance(whole.get("member"), str):
                names[whole["origin"]] = whole["member"]
    return names
