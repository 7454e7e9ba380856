"""Checks during a run that memory is bounded: no table of a node is larger than the code promises.

A walk through the parts of a node finds all containers that they hold between two events. Each must have a bound in the
table below; a new container without a bound is reported, too. Here are the bounds of a swarm; an algorithm adds those
of its own parts.
"""

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Generic, TypeVar

from seedflood.host.backlog import WITHHELD_MAX, Backlog
from seedflood.host.driver import Driver
from seedflood.protocol.swarm.delays import HOP_BOUNDS, SAMPLES_MAX
from seedflood.protocol.swarm.messages import NEIGHBOURS_MAX
from seedflood.protocol.swarm.roster import ENTRIES_MAX, HOLES_MAX

Answer = TypeVar("Answer")
Bound = Callable[[Any], int]
"""Called with a node."""
CONTAINERS = (dict, set, list, deque)
REASONS_MAX = 64
"""How many reasons there may be to refuse something."""


def fixed(most: int) -> Bound:
    return lambda _: most


def linked(node: Any) -> int:
    return len(node.neighbours)


def origins(node: Any) -> int:
    most: int = node._rules.origins_max
    return most


def statements(node: Any) -> int:
    return 2 * origins(node)


at_once = fixed(0)  # empty again after each event

SWARM_BOUNDS: dict[str, Bound] = {
    "Backlog._withheld": fixed(WITHHELD_MAX),
    "Backlog.members": statements,
    "Gate.cuts": fixed(HOLES_MAX),
    "HopDelays._counts": fixed(len(HOP_BOUNDS) + 1),
    "HopDelays._delays": fixed(SAMPLES_MAX),
    "HopDelays._latest": linked,
    "HopDelays._sent": linked,
    "Liveness._lateness": origins,
    "Liveness._missing_since": origins,
    "Liveness.suspects": origins,
    "MemberAdmission._twins": origins,
    "MemberAdmission.refused": fixed(REASONS_MAX),
    "Membership._links": origins,
    "Membership._links[]": lambda node: max(origins(node), NEIGHBOURS_MAX),
    "Membership._members": origins,
    "Membership._names": origins,
    "Membership._parted": lambda node: origins(node) + ENTRIES_MAX,
    "Membership._silenced": fixed(ENTRIES_MAX),
    "Membership._spoken": origins,
    "Membership._stand_ins": fixed(ENTRIES_MAX),
    "Neighbour.members": at_once,
    "Neighbours._linked": origins,
    "Outputs.drop": at_once,
    "Outputs.events": at_once,
    "Outputs.members": at_once,
    "Outputs.records": at_once,
    "Outputs.send": at_once,
    "Presence.changed": origins,
    "Roster._by_origin": fixed(ENTRIES_MAX),
    "Swarm._dropped": linked,
}
"""By the class of the part, or one of its base classes, and the field. [] stands for each container inside a table."""


def find_excess(
    driver: Driver, bounds: Mapping[str, Bound] = SWARM_BOUNDS, *, claimed: tuple[str, str] | None = None
) -> list[str]:
    """Tables that are larger than their bound, or that have none. claimed: (part, field) that is left out, because it
    holds what a neighbour claims."""
    node = driver.node
    excess = []
    for kind, field, size in _containers(driver, claimed):
        bound = next((bounds[name] for base in kind.__mro__ if (name := f"{base.__name__}.{field}") in bounds), None)
        name = f"{kind.__name__}.{field}"
        if bound is None:
            excess.append(f"keeps {name}, which has no bound")
        elif size > bound(node):
            excess.append(f"keeps {size} in {name}, more than {bound(node)}")
    return excess


def parts_of(driver: Driver, claimed: tuple[str, str] | None = None) -> Iterator[object]:
    """A node, its backlog, its algorithm, and all their parts."""
    return (part for part, _ in _walk(driver, claimed))


def _containers(driver: Driver, claimed: tuple[str, str] | None) -> Iterator[tuple[type, str, int]]:
    """(class of the part, field, size) of all containers."""
    for part, fields in _walk(driver, claimed):
        for field, value in fields:
            if _is_container(type(value)):
                yield type(part), field, len(value)
                yield from ((type(part), f"{field}[]", len(one)) for one in _inside(value, _is_container))


def _walk(driver: Driver, claimed: tuple[str, str] | None) -> Iterator[tuple[object, Sequence[tuple[str, Any]]]]:
    """Every part once, with its fields. This runs often, so what is known about types is cached."""
    seen: set[int] = set()
    parts: list[object] = [driver.node, driver._backlog, driver.node._algorithm]
    while parts:
        part = parts.pop()
        if id(part) in seen:
            continue
        seen.add(id(part))
        fields = [*getattr(part, "__dict__", {}).items()]
        fields += [(slot, getattr(part, slot)) for slot in _slots(type(part)) if hasattr(part, slot)]
        yield part, fields
        for field, value in fields:
            if _is_container(type(value)):
                parts += _inside(value, _is_part)
            elif _is_part(type(value)) and (type(part).__name__, field) != claimed:
                parts.append(value)


def _inside(container: Any, is_wanted: Callable[[type], bool]) -> list[Any]:
    """The values in a container that are of wanted types. Usually there are none, and all values are of one type."""
    values = container.values() if isinstance(container, dict) else container
    wanted = set(filter(is_wanted, set(map(type, values))))
    return [value for value in values if type(value) in wanted] if wanted else []


class _Known(dict[type, Answer], Generic[Answer]):
    """A cache of answers to a question about types."""

    def __init__(self, ask: Callable[[type], Answer]) -> None:
        super().__init__()
        self._ask = ask

    def __missing__(self, kind: type) -> Answer:
        answer = self[kind] = self._ask(kind)
        return answer


def _belongs(kind: type) -> bool:
    """Is this a class of a node's own parts? Messages are not: their size was checked when they came in."""
    return issubclass(kind, Backlog) or (
        kind.__module__.startswith("seedflood.protocol.") and not kind.__module__.endswith(".messages")
    )


_is_container = _Known(lambda kind: issubclass(kind, CONTAINERS)).__getitem__
_is_part = _Known(_belongs).__getitem__
_slots = _Known(
    lambda kind: tuple(slot for base in kind.__mro__ for slot in getattr(base, "__slots__", ()))
).__getitem__
