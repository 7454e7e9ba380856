"""The auditor of a host: draws whom to audit, measures again in its place, and compares when the update is here.

A round is measured again right after our own, before anything else is applied. Windows are strict, so the replica here
is then the one with which everyone measures it. Nobody can foresee whom an audit concerns. A finding names an origin
and cuts nobody off.

What cannot be audited, and what it costs: docs/explanation/learning.md.
"""

import json
import secrets
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from seedflood import durable
from seedflood.config import NodeSettings
from seedflood.host.seedflood.audit import ORIGINS_MAX, Audits, Finding
from seedflood.host.seedflood.seams import Journal
from seedflood.protocol.origin import OriginId, fingerprint
from seedflood.protocol.seedflood.bundles import Bundle, UpdateValue
from seedflood.protocol.seedflood.node import Node
from seedflood.protocol.seedflood.outputs import Measure
from seedflood.protocol.seedflood.statement import Rows, stated
from seedflood.protocol.swarm.membership import NAMED_MAX
from seedflood.protocol.view import View
from seedflood.training.seedflood.rewarded import CLOSE_TEXTS, TEACHING_TEXTS
from seedflood.training.seedflood.trainer import Round, Trainer

if TYPE_CHECKING:  # it makes the engine
    from seedflood.host.daemon import Daemon


FINDINGS_FOLDER = "findings"
CANNOT_BE_AUDITED = "cannot_be_audited"
"""A word of the view: who cannot be audited here."""
UNAUDITED = (
    "this host cannot audit another one: it states other rows, or none, so what it sends is believed; give both the "
    "same data if that is not meant"
)
CLOSE_MAX = 0.125
"""With 0.25 one of 10,000 audits, drawn from 13 of an honest host in bfloat16, accused it; with this none (of 90)."""
WAITING_MAX = 64
"""How many audited rounds may wait for the bundles of their origins, which come within some rounds."""


def make_auditor(
    settings: NodeSettings, node: Node, trainer: Trainer, journal: Journal, daemon: "Daemon"
) -> "Auditor | None":
    """None if this host does not audit, or cannot."""
    if not settings.audit:
        return None
    if trainer.dtype != "float32":
        say = 'this host does not audit: that needs float32, so set dtype = "float32" or audit = 0 in [node]'
        daemon.hub.log(say, "warning", dtype=trainer.dtype)
        return None
    return Auditor(settings, node, trainer, journal, daemon)


def unaudited(node: Node, ours: Rows) -> list[str]:
    """The names of those who take part and whom a host with these rows cannot audit: they state others, or none."""
    return sorted(
        node.membership.name(member.origin)
        for member in node.membership.all()
        if member.origin != node.origin
        if member.first_step is not None and not stated(member).is_relay
        if not _has_same(ours, stated(member).rows)
    )


def _has_same(ours: Rows, theirs: Rows | None) -> bool:
    """Are these shares of the same rows, and of the same size? Then a host that has one can measure on the other."""
    return theirs is not None and theirs[1:] == ours[1:]


class _Measured(NamedTuple):
    """What we measured in the place of another origin. is_loss_judged: did it see the same texts?"""

    values: Sequence[UpdateValue]
    is_loss_judged: bool


class Auditor:
    """settings: which share of our rounds is accompanied by one of another host, and the state folder. audits: what was
    found."""

    def __init__(
        self, settings: NodeSettings, node: Node, trainer: Trainer, journal: Journal, daemon: "Daemon"
    ) -> None:
        self.audits = Audits(node.rules.compression)
        self._settings = settings
        self._node = node
        self._trainer = trainer
        self._journal = journal
        self._daemon = daemon
        self._draw = secrets.SystemRandom()  # so nobody can foresee it
        self._waiting: dict[tuple[OriginId, int], _Measured] = {}
        self._unaudited: set[OriginId] = set()
        """Those of whom the log says that they cannot be audited here."""

    def accompany(self, order: Measure) -> None:
        """Our own measurement of this round was ordered. Maybe that of another host is, too; nothing may be ordered
        between the two."""
        chosen = self.choose(order)
        if chosen is None:
            return
        origin, rows = chosen
        self._daemon.run(
            lambda: self._trainer.measure_again(origin, rows, order.step, order.count),
            lambda again: self._measured_again(origin, again),
        )

    def _measured_again(self, origin: OriginId, again: Round) -> None:
        # In half precision a text may become another one, which changes more where few teach.
        if again.figures.get(CLOSE_TEXTS, 0.0) <= CLOSE_MAX * again.figures.get(TEACHING_TEXTS, 1.0) ** 2:
            is_loss_judged = again.figures.get(CLOSE_TEXTS, 0.0) == 0  # another text is another reward
            self.measured(origin, again.step, again.probes, is_loss_judged=is_loss_judged)

    def choose(self, order: Measure) -> tuple[OriginId, Rows] | None:
        """Whom to audit beside this round, and on which rows; None: nobody."""
        if self._draw.random() >= self._settings.audit:
            return None
        targets = self._targets(order)
        return self._draw.choice(targets) if targets else None

    def _targets(self, order: Measure) -> list[tuple[OriginId, Rows]]:
        """Who takes part in the steps of an order and measures on rows that we have: those who state our digest, and
        shares of the size of ours."""
        node, last = self._node, order.step + order.count - 1
        if not node.is_ready or node.is_doubted:
            return []
        others = [member for member in node.membership.all() if member.origin != node.origin]
        stated_rows = [(member.origin, stated(member).rows) for member in others]
        return sorted(
            (origin, rows)
            for origin, rows in stated_rows
            if rows is not None and _has_same(self._trainer.rows, rows) and node.membership.is_expected(origin, last)
            if node.rules.turns.has(origin, last)
        )

    def measured(
        self, origin: OriginId, step: int, again: Sequence[UpdateValue], *, is_loss_judged: bool = True
    ) -> None:
        """What we measured in the place of another origin. Its bundle may be here already."""
        self._waiting[origin, step] = _Measured(again, is_loss_judged)
        while len(self._waiting) > WAITING_MAX:
            del self._waiting[next(iter(self._waiting))]
        if (bundle := self._journal.find(origin, step)) is not None:
            self.received([bundle])

    def _look_for_unaudited(self, bundles: Sequence[Bundle]) -> None:
        for origin in {bundle.origin for bundle in bundles} - self._unaudited:
            member = self._node.membership.get(origin)
            if member is None or _has_same(self._trainer.rows, stated(member).rows) or origin == self._node.origin:
                continue
            if len(self._unaudited) < ORIGINS_MAX:
                self._unaudited.add(origin)
                self._daemon.hub.log(UNAUDITED, "warning", peer=member.name)

    def received(self, bundles: Sequence[Bundle]) -> None:
        self._look_for_unaudited(bundles)
        if not self._waiting:
            return
        for bundle in bundles:
            again = self._waiting.pop((bundle.origin, bundle.step), None)
            if again is not None:
                self._compare(bundle, again)

    def add_to(self, view: View) -> View:
        """The view of the node with what was audited."""
        audits, name = self.audits, self._node.membership.name
        figures = {**view.figures, "audits": float(audits.count), "audit_findings": float(len(audits.named))}
        findings = [f"{name(origin)}: {finding.describe()}" for origin, finding in sorted(audits.named.items())]
        words = {**view.words, "audit": "; ".join(findings[:NAMED_MAX]) or "nothing found"}
        return replace(view, figures=figures, words=words)

    def _compare(self, bundle: Bundle, again: "_Measured") -> None:
        finding = self.audits.compare(
            bundle.origin, bundle.step, bundle.probes, again.values, is_loss_judged=again.is_loss_judged
        )
        if finding is not None:
            self._log_finding(finding)

    def _log_finding(self, finding: Finding) -> None:
        """Signs a finding, keeps it in the state folder, and logs it. Nothing else follows from it."""
        hub, identity = self._daemon.hub, self._daemon.identity
        if self.audits.is_self_doubted:
            hub.log(
                "audits contradict most hosts: the replica or the rows of this host may be wrong",
                "error",
                named=len(self.audits.named),
            )
            return
        name = fingerprint(finding.origin)
        facts = {
            "name": self._node.membership.name(finding.origin),
            "origin": name,
            "steps": list(finding.steps),
            "audits": finding.audits,
        }
        hub.log("audit finding", "error", says=finding.describe(), **facts)
        run_id, key = self._node.rules.run_id, identity.public_key
        signature = identity.sign(finding.signed_bytes(run_id, key))
        signed = {**facts, "run_id": run_id.hex(), "finder": key.hex(), "signature": signature.hex()}
        try:
            folder = self._settings.state / FINDINGS_FOLDER
            folder.mkdir(mode=0o700, exist_ok=True)
            durable.write(folder / f"{name}.json", json.dumps(signed, indent=1).encode() + b"\n")
        except OSError as error:
            hub.log("the finding could not be kept", "warning", reason=error.strerror or str(error))
