"""Memory that is bounded, looked at while a run goes on: no table of a node is larger than the code promises.

All containers that a node's parts hold between two events are found by walking through them, and every one of them has
its bound in a table here: one that is new and has none is seen, too. What waits for windows (`pending`) is looked at
when it should be short.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Generic, TypeVar, get_args

from seedflood.host.seedflood.backlog import UNSAVED_BUNDLES_MAX, BundleBacklog
from seedflood.host.seedflood.driver import SeedfloodDriver
from seedflood.protocol.frontier import RANGES_MAX
from seedflood.protocol.origin import OriginId
from seedflood.protocol.seedflood.admission import Objection
from seedflood.protocol.seedflood.inquiry import (
    BLOCK_STEPS,
    BLOCKS_ASKED_MAX,
    BLOCKS_TOLD_MAX,
    PROOFS_MAX,
    PROOFS_OF_ONE_MAX,
)
from seedflood.protocol.seedflood.node import Node
from seedflood.protocol.seedflood.outputs import ClosedWindow, Measure
from seedflood.protocol.seedflood.pending import AHEAD_BUNDLES
from seedflood.protocol.seedflood.watch import REMEMBERED
from seedflood.protocol.swarm.delays import HOP_BOUNDS, SAMPLES_MAX
from seedflood.protocol.swarm.messages import NEIGHBOURS_MAX

Answer = TypeVar("Answer")
Bound = Callable[[Node], int]
CONTAINERS = (dict, set, list, deque)
CLAIMED = ("_Queue", "held")
"""What a neighbour said in its hello: as much as a frame may claim."""


def _fixed(most: int) -> Bound:
    return lambda _: most


def _linked(node: Node) -> int:
    return len(node.neighbours)


def _origins(node: Node) -> int:
    return node.rules.origins_max


def _statements(node: Node) -> int:
    return 2 * node.rules.origins_max


def _epochs(node: Node) -> int:
    return node.rules.steps // node.rules.refresh_period + 1


def _blocks(node: Node) -> int:
    """In one epoch."""
    return node.rules.origins_max * (node.rules.refresh_period // BLOCK_STEPS + 2)


def _bundles(node: Node) -> int:
    """All there are: how many of them wait is looked at in its own way."""
    return node.rules.origins_max * node.rules.steps


_at_once = _fixed(0)  # empty again before anything else happens

BOUNDS: dict[str, Bound] = {
    "Admission._twins": _origins,
    "Admission.refused": _fixed(len(get_args(Objection))),
    "Announcement._asked": _origins,
    "Announcement._heard_by": _origins,
    "BundleBacklog._own": _bundles,
    "BundleBacklog._withheld": _statements,
    "BundleBacklog.bundles": _fixed(UNSAVED_BUNDLES_MAX),
    "BundleBacklog.members": _statements,
    "BundleBacklog.records": _at_once,
    "Blockers._since": lambda node: 2 * _origins(node),
    "CatchUp._past_neighbours": _fixed(NEIGHBOURS_MAX),
    "Chain._links": lambda node: _epochs(node) + 1,
    "Chain.digests": _epochs,
    "Closings._digests": _epochs,
    "Closings._held": _epochs,
    "Closings._kept": _epochs,
    "Closings._summing": _epochs,
    "Closings._sums": _epochs,
    "Contents._blocks": _epochs,
    "Contents._blocks[]": _blocks,
    "Contents._summed": _epochs,
    "DigestWatch._accusers": _origins,
    "DigestWatch._asked": _fixed(REMEMBERED),
    "DigestWatch._equal_at": _linked,
    "DigestWatch._ours": _fixed(REMEMBERED),
    "DigestWatch._theirs": _linked,
    "DigestWatch._theirs[]": _fixed(REMEMBERED),
    "Exchange._evidence": _linked,
    "Flood._queues": _origins,
    "Frontier._beyond": _origins,
    "Frontier._beyond[]": lambda node: RANGES_MAX + _epochs(node),
    "Frontier._marks": _origins,
    "Holdings.contradicting": _origins,
    "Holdings.heard": _origins,
    "HopDelays._counts": _fixed(len(HOP_BOUNDS) + 1),
    "HopDelays._delays": _fixed(SAMPLES_MAX),
    "HopDelays._latest": _linked,
    "HopDelays._sent": _linked,
    "Inquiry._asked": _linked,
    "Inquiry._asked[]": _fixed(BLOCKS_ASKED_MAX),
    "Inquiry._pauses": _origins,
    "Inquiry._proven": _fixed(PROOFS_MAX),
    "Inquiry._proven[]": _fixed(PROOFS_OF_ONE_MAX),
    "Inquiry._uneven": _linked,
    "Inquiry._uneven[]": _fixed(BLOCKS_TOLD_MAX),
    "Inquiry.counts": _origins,
    "Jury._muted": _origins,
    "Jury._verdicts": _linked,
    "Liveness._lateness": _origins,
    "Liveness._missing_since": _origins,
    "Liveness.suspects": _origins,
    "Membership._links": _origins,
    "Membership._links[]": lambda node: max(_origins(node), NEIGHBOURS_MAX),
    "Membership._members": _origins,
    "Membership._names": _origins,
    "Membership._spoken": _origins,
    "Neighbour.members": _at_once,
    "Neighbours._linked": _origins,
    "Node.contradicting": _origins,
    "OpenWindows._open": lambda node: node.rules.delay + 1,
    "Outputs.adopt": _at_once,
    "Outputs.bundles": _at_once,
    "Outputs.check": _at_once,
    "Outputs.compact": _at_once,
    "Outputs.events": _at_once,
    "Outputs.members": _at_once,
    "Outputs.orders": _at_once,
    "Outputs.pull": _at_once,
    "Outputs.send": _at_once,
    "Outputs.settle": _at_once,
    "Pending._by_last": _bundles,
    "Pending._by_last[]": _bundles,
    "Pending._lasts": _bundles,
    "Presence.changed": _origins,
    "Repair._peers": _linked,
    "Repair.reached": _origins,
    "Window.waiting": _origins,
    "_Queue.updates": _at_once,
}
"""By the part that holds it; [] is what a table holds by its keys."""


def find_excess(driver: SeedfloodDriver) -> list[str]:
    """Tables that are larger than promised, or of which nothing is promised."""
    node = driver.node
    excess = []
    for name, size in _containers(driver):
        bound = BOUNDS.get(name)
        if bound is None:
            excess.append(f"keeps {name}, which has no bound")
        elif size > bound(node):
            excess.append(f"keeps {size} in {name}, more than {bound(node)}")
    return excess


def find_waiting(node: Node, window: ClosedWindow) -> str | None:
    """Is more left than may wait, right after this window was closed?"""
    rules, left = node.rules, len(node.seedflood.holdings.pending)
    most = {"none": 0, "bounded": AHEAD_BUNDLES * rules.clients}.get(rules.window)
    return f"leaves {left} bundles waiting behind step {window.steps[1]}" if most is not None and left > most else None


def find_ahead(node: Node, order: Measure, trusted: Callable[[OriginId], bool]) -> str | None:
    """In strict windows nobody who is trusted is further ahead than the delay of one who measures, if nobody left."""
    rules = node.rules
    last = order.step + (rules.delay + 1) * rules.local_steps - 1
    if rules.window != "strict":
        return None
    ahead = [bundle for bundle in node.seedflood.holdings.pending if bundle.step > last and trusted(bundle.origin)]
    return f"measures step {order.step} while {len(ahead)} bundles of later rounds wait" if ahead else None


def parts_of(driver: SeedfloodDriver) -> Iterator[object]:
    """A node, its backlog, and everything that these are made of."""
    return (part for part, _ in _walk(driver))


def _containers(driver: SeedfloodDriver) -> Iterator[tuple[str, int]]:
    """(whose and what, how many are in it)"""
    for part, fields in _walk(driver):
        for field, value in fields:
            if _is_container(type(value)):
                name = f"{type(part).__name__}.{field}"
                yield name, len(value)
                yield from ((f"{name}[]", len(one)) for one in _inside(value, _is_container))


def _walk(driver: SeedfloodDriver) -> Iterator[tuple[object, Sequence[tuple[str, Any]]]]:
    """Every part once, and its fields. Walked so often that what is known of a type is remembered."""
    seen: set[int] = set()
    parts: list[object] = [driver.node, driver._backlog]
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
            elif _is_part(type(value)) and (type(part).__name__, field) != CLAIMED:
                parts.append(value)


def _inside(container: Any, is_wanted: Callable[[type], bool]) -> list[Any]:
    """What a container holds that is of wanted types: mostly nothing, and most containers hold one type only."""
    values = container.values() if isinstance(container, dict) else container
    wanted = set(filter(is_wanted, set(map(type, values))))
    return [value for value in values if type(value) in wanted] if wanted else []


class _Known(dict[type, Answer], Generic[Answer]):
    """Answers to a question about types, each asked once."""

    def __init__(self, ask: Callable[[type], Answer]) -> None:
        super().__init__()
        self._ask = ask

    def __missing__(self, kind: type) -> Answer:
        answer = self[kind] = self._ask(kind)
        return answer


def _belongs(kind: type) -> bool:
    """Is it of a node's own parts? What it was given to send or to keep has limits where it came in."""
    return issubclass(kind, BundleBacklog) or (
        kind.__module__.startswith("seedflood.protocol.") and not kind.__module__.endswith(".messages")
    )


_is_container = _Known(lambda kind: issubclass(kind, CONTAINERS)).__getitem__
_is_part = _Known(_belongs).__getitem__
_slots = _Known(
    lambda kind: tuple(slot for base in kind.__mro__ for slot in getattr(base, "__slots__", ()))
).__getitem__
