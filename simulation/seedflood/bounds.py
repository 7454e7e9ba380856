"""How much memory a node that trains by SeedFlood may use. The queue of bundles that wait for windows (`pending`) is
checked at moments when it should be short."""

from collections.abc import Callable
from typing import get_args

from seedflood.host.seedflood.driver import SeedfloodDriver
from seedflood.protocol.frontier import RANGES_MAX
from seedflood.protocol.origin import OriginId
from seedflood.protocol.seedflood.admission import Objection
from seedflood.protocol.seedflood.certificates import DOUBLES_MAX
from seedflood.protocol.seedflood.contents import BLOCK_STEPS, BLOCKS_SENT_MAX
from seedflood.protocol.seedflood.divergence import RELAYED_MAX, REMEMBERED
from seedflood.protocol.seedflood.epochs import CLOSING_ROUNDS
from seedflood.protocol.seedflood.equivocation import BLOCKS_ASKED_MAX
from seedflood.protocol.seedflood.node import Node
from seedflood.protocol.seedflood.outputs import ClosedWindow, Measure
from seedflood.protocol.seedflood.pending import AHEAD_BUNDLES
from seedflood.protocol.seedflood.sums import SUMS_MAX
from seedflood.protocol.swarm.messages import NEIGHBOURS_MAX
from seedflood.protocol.swarm.roster import HOLES_MAX
from simulation import bounds
from simulation.bounds import SWARM_BOUNDS, Bound, at_once, fixed, linked, origins

NEWS_ROUNDS = 4
"""How many rounds hosts go on until all know of a newcomer."""

CLAIMED = ("_Queue", "held")
"""What a neighbour claims in its hello, bounded by the size of a frame."""


def _epochs(node: Node) -> int:
    return node.rules.steps // node.rules.refresh_period + 1


def _blocks(node: Node) -> int:
    """Blocks in one epoch."""
    return node.rules.origins_max * (node.rules.refresh_period // BLOCK_STEPS + 2)


def _bundles(node: Node) -> int:
    """All bundles of the run. How many of them wait is checked by `find_waiting` and `find_ahead`."""
    return node.rules.origins_max * node.rules.steps


BOUNDS: dict[str, Bound] = {
    **SWARM_BOUNDS,
    "Admission.refused": fixed(len(get_args(Objection))),
    "Announcement._asked": origins,
    "Announcement._confirmed_by": origins,
    "Backlog.records": lambda node: 1 + origins(node),
    "Blockers._since": lambda node: 2 * origins(node),
    "CatchUp._past_neighbours": fixed(NEIGHBOURS_MAX),
    "Certificates._certified": _epochs,
    "Certificates._floors": _epochs,
    "Certificates._lagging": _epochs,
    "Certificates._votes": _epochs,
    "Certificates._votes[]": origins,
    "Certificates.doubles": fixed(DOUBLES_MAX),
    "Certificates.doubles[]": fixed(2),
    "Closings._are_small": _epochs,
    "Closings._digests": _epochs,
    "Neighbour.gathered": lambda node: _epochs(node) * origins(node) + DOUBLES_MAX,
    "Closings._held": _epochs,
    "Closings._kept": _epochs,
    "Closings._ours": _epochs,
    "Closings._summing": _epochs,
    "Closings._sums": _epochs,
    "Closings._unwritten": _epochs,
    "Contents._blocks": _epochs,
    "Contents._blocks[]": _blocks,
    "Contents._summed": _epochs,
    "DivergenceDetector._accusers": origins,
    "DivergenceDetector._asked": fixed(REMEMBERED),
    "DivergenceDetector._ours": fixed(REMEMBERED),
    "DivergenceDetector._theirs": linked,
    "DivergenceDetector._theirs[]": fixed(REMEMBERED),
    "Ends._cuts": fixed(HOLES_MAX),
    "Ends._holes": origins,
    "Ends._holes[]": fixed(HOLES_MAX),
    "Ends._unsent": origins,
    "Ends.proofs": origins,
    "Ends.refused": fixed(HOLES_MAX),
    "Flood._queues": origins,
    "Frontier._beyond": origins,
    "Frontier._beyond[]": lambda node: RANGES_MAX + _epochs(node),
    "Frontier._marks": origins,
    "HearsayDetector._received": origins,
    "HearsayDetector._relayed": linked,
    "HearsayDetector._relayed[]": fixed(RELAYED_MAX),
    "Holdings._missing": origins,
    "Holdings.updated": origins,
    "EquivocationSearch._asked": linked,
    "EquivocationSearch._asked[]": fixed(BLOCKS_ASKED_MAX),
    "EquivocationSearch._pauses": origins,
    "EquivocationSearch._uneven": linked,
    "EquivocationSearch._uneven[]": fixed(BLOCKS_SENT_MAX),
    "Credibility._muted": origins,
    "OpenWindows._open": lambda node: node.rules.delay + 1,
    "Outputs.adopt": at_once,
    "Outputs.check": at_once,
    "Outputs.compact": at_once,
    "Outputs.cut": at_once,
    "Pending._by_last": _bundles,
    "Pending._by_last[]": _bundles,
    "Pending._lasts": _bundles,
    "Donors._peers": linked,
    "Donors.reached": origins,
    "Voting._answered": lambda node: _epochs(node) * origins(node),
    "Voting._deceiving": origins,
    "Voting._disputed": _epochs,
    "Voting._objections": origins,
    "Voting._suspects": _epochs,
    "Voting._suspects[]": linked,
    "Voting._logged": _epochs,
    "Voting.misvoting": origins,
    "Window.waiting": origins,
    "Window.expected": origins,
    "WantedSums.wanted": fixed(SUMS_MAX),
    "_Queue.updates": at_once,
}
"""By the class of the part and the field. [] stands for each container inside a table."""


def find_excess(driver: SeedfloodDriver) -> list[str]:
    """Tables of a node that are larger than their bound, or that have none."""
    return bounds.find_excess(driver, BOUNDS, claimed=CLAIMED)


def find_waiting(node: Node, window: ClosedWindow) -> str | None:
    """Do more bundles wait than may, right after this bounded window was closed?"""
    rules, left = node.rules, len(node.seedflood.holdings.pending)
    is_too_much = rules.window == "bounded" and left > AHEAD_BUNDLES * rules.clients
    return f"leaves {left} bundles waiting behind step {window.steps[1]}" if is_too_much else None


def find_ahead(
    node: Node, order: Measure, trusted: Callable[[OriginId], bool], *, is_newcomer: bool = False
) -> str | None:
    """Do bundles wait that no honest host can have published yet? In strict windows, if nobody has left, honest hosts
    are at most `delay` rounds ahead of a host that measures.

    trusted: does this origin measure no round before its time? is_newcomer: did the run begin without the host? It
    begins where most others are, or with the first round if they have only begun, and they go on until they have heard
    of it.
    """
    rules = node.rules
    behind = max(rules.refresh_period, (CLOSING_ROUNDS + NEWS_ROUNDS) * rules.local_steps) if is_newcomer else 0
    last = order.step + (rules.delay + 1) * rules.local_steps - 1 + behind
    if rules.window != "strict":
        return None
    ahead = [bundle for bundle in node.seedflood.holdings.pending if bundle.step > last and trusted(bundle.origin)]
    return f"measures step {order.step} while {len(ahead)} bundles of later rounds wait" if ahead else None
