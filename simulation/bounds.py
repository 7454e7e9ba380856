"""Checks during a run that memory is bounded: no table of a node is larger than the code promises.

A walk through the parts of a node finds all containers that they hold between two events. Each must have a bound in the
table below; a new container without a bound is reported, too. Here are the bounds of a swarm; an algorithm adds those
of its own parts.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Generic, TypeVar

from seedflood.host.backlog import UNSAVED_BUNDLES_MAX, WITHHELD_MAX, Backlog
from seedflood.host.driver import Driver
from seedflood.protocol.swarm.delays import HOP_BOUNDS, SAMPLES_MAX
from seedflood.protocol.swarm.messages import NEIGHBOURS_MAX
from seedflood.protocol.swarm.roster import ENTRIES_MAX, HOLES_MAX

Key = TypeVar("Key")
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
    "Backlog.bundles": fixed(UNSAVED_BUNDLES_MAX),
    "Backlog.members": statements,
    "AccessList.cuts": fixed(HOLES_MAX),
    "HopDelays._counts": fixed(len(HOP_BOUNDS) + 1),
    "HopDelays._delays": fixed(SAMPLES_MAX),
    "HopDelays._latest": linked,
    "HopDelays._sent": linked,
    "Liveness._lateness": origins,
    "Liveness.missing_since": origins,
    "Liveness.suspects": origins,
    "MemberAdmission.twins": origins,
    "MemberAdmission.refused": fixed(REASONS_MAX),
    "Membership.ended": origins,
    "Membership._links": origins,
    "Membership._links[]": lambda node: max(origins(node), NEIGHBOURS_MAX),
    "Membership._members": origins,
    "Membership._names": origins,
    "Membership._silenced": fixed(ENTRIES_MAX),
    "Membership._spoken": origins,
    "Membership._stand_ins": fixed(ENTRIES_MAX),
    "Membership._took_part": lambda node: origins(node) + ENTRIES_MAX,
    "Neighbour.gathered": at_once,
    "Neighbour.members": statements,
    "Neighbours._linked": origins,
    "Outputs.bundles": at_once,
    "Outputs.contents": linked,
    "Outputs.drop": at_once,
    "Outputs.events": at_once,
    "Outputs.members": at_once,
    "Outputs.orders": at_once,
    "Outputs.pull": at_once,
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
    for part, containers in _walk(driver, claimed):
        for field, sizes in containers:
            names = _names[type(part), field]
            bound = next(filter(None, map(bounds.get, names)), None)
            if bound is None:
                excess.append(f"keeps {names[0]}, which has no bound")
            elif max(sizes) > bound(node):
                excess.append(f"keeps {max(sizes)} in {names[0]}, more than {bound(node)}")
    return excess


def count_entries(driver: Driver) -> int:
    """How many entries all tables of a node have together: what it keeps in memory."""
    return sum(sum(sizes) for _, containers in _walk(driver, None) for _, sizes in containers)


def parts_of(driver: Driver, claimed: tuple[str, str] | None = None) -> Iterator[object]:
    """A node, its backlog, its algorithm, and all their parts."""
    return (part for part, _ in _walk(driver, claimed))


def _walk(driver: Driver, claimed: tuple[str, str] | None) -> Iterator[tuple[object, list[tuple[str, list[int]]]]]:
    """Every part once, with the sizes of the containers in its fields, and of those inside them. This runs often, so
    what is known about types is cached."""
    seen: set[int] = set()
    parts: list[object] = [driver.node, driver._backlog, driver.node._algorithm]
    while parts:
        part = parts.pop()
        if id(part) in seen:
            continue
        seen.add(id(part))
        containers: list[tuple[str, list[int]]] = []
        for field, value in _fields(part):
            kind = type(value)
            if _is_container[kind]:
                containers.append((field, [len(value)]))
                inside = _inside(value)
                if sizes := [len(one) for one in inside if _is_container[type(one)]]:
                    containers.append((f"{field}[]", sizes))
                parts += [one for one in inside if _is_part[type(one)]]
            elif _is_part[kind] and (type(part).__name__, field) != claimed:
                parts.append(value)
        yield part, containers


def _fields(part: object) -> Iterable[tuple[str, Any]]:
    slots = _slots[type(part)]
    fields = getattr(part, "__dict__", {}).items()
    return [*fields, *((slot, getattr(part, slot, None)) for slot in slots)] if slots else fields


def _inside(container: Any) -> Iterable[Any]:
    """The containers and parts in a container. Usually there are none, and all values are of one type."""
    values = container.values() if isinstance(container, dict) else container
    wanted = [*filter(_is_more.__getitem__, set(map(type, values)))]
    return [value for value in values if type(value) in wanted] if wanted else ()


class _Known(dict[Key, Answer], Generic[Key, Answer]):
    """A cache of answers to a question about types."""

    def __init__(self, ask: Callable[[Key], Answer]) -> None:
        super().__init__()
        self._ask = ask

    def __missing__(self, key: Key) -> Answer:
        answer = self[key] = self._ask(key)
        return answer


def _belongs(kind: type) -> bool:
    """Is this a class of a node's own parts? Messages are not: their size was checked when they came in."""
    return issubclass(kind, Backlog) or (
        kind.__module__.startswith("seedflood.protocol.") and not kind.__module__.endswith(".messages")
    )


_is_container: _Known[type, bool] = _Known(lambda kind: issubclass(kind, CONTAINERS))
_is_part: _Known[type, bool] = _Known(_belongs)
_is_more: _Known[type, bool] = _Known(lambda kind: _is_container[kind] or _is_part[kind])
_slots: _Known[type, list[str]] = _Known(
    lambda kind: [slot for base in kind.__mro__ for slot in getattr(base, "__slots__", ())]
)
_names: _Known[tuple[type, str], list[str]] = _Known(
    lambda key: [f"{base.__name__}.{key[1]}" for base in key[0].__mro__]
)
"""By the class of a part, and a field: what bounds of it may be named. The class itself comes first."""
