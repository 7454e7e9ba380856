"""The auditor of a host: draws whom to audit, has it measured again, and compares when the update is here.

An audit is drawn when this host begins to measure a round. It is measured right after that round, before anything else
is applied. In strict windows the replica here is then the one with which everyone measures this round. In the others
one of the last rounds of another host is measured again, with what was applied there (`retracing`). If that cannot be
done, the audit is missed.

Nobody else can foresee whom an audit concerns, because the draw comes from the operating system and is told to nobody.
"""

import json
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from seedflood import durable
from seedflood.host.seedflood.retracing import choose_past_round
from seedflood.host.seedflood.seams import Journal
from seedflood.identity import Identity
from seedflood.operations.hub import TelemetryHub
from seedflood.protocol.origin import OriginId, fingerprint
from seedflood.protocol.seedflood.applied import EQUAL, Difference
from seedflood.protocol.seedflood.audit import Finding, Verdict
from seedflood.protocol.seedflood.messages import Bundle, Told
from seedflood.protocol.seedflood.node import Node
from seedflood.protocol.seedflood.outputs import Measure
from seedflood.protocol.seedflood.statement import Rows

FINDINGS_FOLDER = "findings"
WAITING_MAX = 64
"""How many audited rounds may wait for the bundles of their origins. In strict windows they come within some rounds."""


class Target(NamedTuple):
    """Whose round is measured again. difference: of what was applied there and is applied here. bundle: of that round,
    if it was heard already."""

    origin: OriginId
    rows: Rows
    step: int
    difference: Difference = EQUAL
    bundle: Bundle | None = None


class Auditor:
    """share: of our rounds beside which we measure one of another host. folder: the state folder."""

    def __init__(
        self,
        share: float,
        node: Node,
        identity: Identity,
        hub: TelemetryHub,
        journal: Journal,
        folder: Path,
    ) -> None:
        self._share = share
        self._node = node
        self._identity = identity
        self._hub = hub
        self._journal = journal
        self._folder = folder
        self._draw = secrets.SystemRandom()
        self._waiting: dict[tuple[OriginId, int], Sequence[Told]] = {}
        node.audits.is_on = True

    def choose(self, order: Measure) -> Target | None:
        """Whom to audit beside this round; None: nobody."""
        if self._draw.random() >= self._share:
            return None
        targets = self._node.auditable(order)
        if not targets:
            return None
        origin, rows = self._draw.choice(targets)
        if self._node.rules.window == "strict":
            return Target(origin, rows, order.step)
        past = choose_past_round(self._node, self._journal, origin, order, self._draw)
        if past is None:
            self._miss(origin)
            return None
        return Target(origin, rows, past.bundle.step, past.difference, past.bundle)

    def _miss(self, origin: OriginId) -> None:
        audits, before = self._node.audits, self._node.audits.out_of_reach
        audits.miss(origin)
        if audits.out_of_reach != before:
            name = self._node.membership.name(origin)
            self._hub.tell(
                "the last audits of a host could not be made", "warning", name=name, origin=fingerprint(origin)
            )

    def note(self, told: Sequence[Told]) -> None:
        """We have measured this for ourselves."""
        self._node.audits.note(told)

    def measured(self, target: Target, again: Sequence[Told]) -> None:
        """What we measured in the place of another origin. Its bundle may be here already."""
        self._node.audits.note(again)
        if target.bundle is not None:
            self._compare(target.bundle, again)
            return
        origin, step = target.origin, target.step
        self._waiting[origin, step] = again
        while len(self._waiting) > WAITING_MAX:
            del self._waiting[next(iter(self._waiting))]
        if (bundle := self._journal.find(origin, step)) is not None:
            self.heard([bundle])

    def heard(self, bundles: Sequence[Bundle]) -> None:
        """New bundles came."""
        if not self._waiting:
            return
        for bundle in bundles:
            again = self._waiting.pop((bundle.origin, bundle.step), None)
            if again is not None:
                self._compare(bundle, again)

    def _compare(self, bundle: Bundle, again: Sequence[Told]) -> None:
        before = self._told_before(bundle)
        for step, (told, ours) in enumerate(zip(bundle.probes, again, strict=True), bundle.step):
            is_first = step == bundle.step
            verdict = self._node.audits.compare(bundle.origin, step, told, ours, before, is_first=is_first)
            before = told
            if verdict is not None:
                self._tell(bundle.origin, verdict)

    def _told_before(self, bundle: Bundle) -> Told | None:
        """What was told of the step that the origin measured before, if it is of the same epoch."""
        rules = self._node.rules
        step = bundle.first_covered - rules.local_steps
        if step // rules.refresh_period != bundle.step // rules.refresh_period:
            return None
        earlier = self._journal.find(bundle.origin, step)
        return None if earlier is None else earlier.probes[-1]

    def _tell(self, origin: OriginId, verdict: Verdict) -> None:
        """Signs a finding, keeps it in the state folder, and tells the operator. Nothing else follows from it."""
        audits = self._node.audits
        if audits.is_self_doubted:
            self._hub.tell(
                "audits contradict most hosts: the replica or the rows of this host may be wrong",
                "error",
                named=len(audits.named),
            )
            return
        unsigned = Finding(origin, verdict, len(audits.seen(origin)))
        key = self._identity.public_key
        signature = self._identity.sign(unsigned.signed_bytes(self._node.rules.run_id, key))
        facts = {
            "name": self._node.membership.name(origin),
            "origin": fingerprint(origin),
            "story": verdict.story,
            "steps": list(verdict.steps),
            "statistic": round(verdict.statistic, 3),
            "audits": unsigned.audits,
        }
        self._hub.tell("audit finding", "error", says=verdict.describe(), **facts)
        signed = {
            **facts,
            "statistic": verdict.statistic,
            "run_id": self._node.rules.run_id.hex(),
            "finder": key.hex(),
            "signature": signature.hex(),
        }
        try:
            folder = self._folder / FINDINGS_FOLDER
            folder.mkdir(mode=0o700, exist_ok=True)
            durable.write(folder / f"{fingerprint(origin)}.json", json.dumps(signed, indent=1).encode() + b"\n")
        except OSError as error:
            self._hub.tell("the finding could not be kept", "warning", reason=error.strerror or str(error))
