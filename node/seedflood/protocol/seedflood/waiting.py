"""For whom a node waits that does not move, by name, and for which updates."""

from collections.abc import Collection, Iterable, Mapping, Sequence

from seedflood.protocol.origin import OriginId
from seedflood.protocol.seedflood.window import Window
from seedflood.protocol.swarm.membership import Membership

NEVER_JOINED = "(never joined)"
NAMED_MAX = 16
"""In a large run that stands still a line shall not name everyone."""

Gaps = Mapping[OriginId, Sequence[tuple[int, int]]]
"""Ranges of steps by origin."""


def while_collecting(window: Window, membership: Membership, clients: int) -> list[str]:
    """Those whose updates the window lacks, and those who have not come to take part yet."""
    return name_all(membership, window.waiting) + joining(membership, clients)


def joining(membership: Membership, clients: int) -> list[str]:
    """Who is to come for all clients to take part: by name, if it is there but has not caught up."""
    missing = max(0, clients - membership.taking_part)
    names = sorted(m.name for m in membership.all() if membership.spoken(m.origin) is None and not m.has_left)
    known = [f"{name} (joining)" for name in names[:missing]]
    return known + [NEVER_JOINED] * (missing - len(known))


def name_all(membership: Membership, origins: Iterable[OriginId]) -> list[str]:
    names = sorted(map(membership.name, origins))
    return names if len(names) <= NAMED_MAX else [*names[:NAMED_MAX], f"and {len(names) - NAMED_MAX} more"]


def describe_missing(gaps: Gaps, membership: Membership, here: Collection[OriginId]) -> dict[str, object]:
    """Facts for the log: which steps of whom, and which hosts may have them. here: those that do not, ourselves and
    our neighbours."""
    if not gaps:
        return {}
    missing = [
        f"{membership.name(origin)} steps {', '.join(f'{first}-{last}' for first, last in spans[:NAMED_MAX])}"
        for origin, spans in sorted(gaps.items())[:NAMED_MAX]
    ]
    holders = set(gaps)
    for origin in gaps:
        word = membership.spoken(origin)
        holders.update(word.neighbours if word is not None else ())
    return {"missing": missing, "may_be_held_by": name_all(membership, holders - set(here))}
