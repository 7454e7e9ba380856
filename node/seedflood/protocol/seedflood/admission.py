"""Admission: what of other hosts may be used. The rest is counted by reason, and changes nothing else.

All but a wrong signature (`swarm/admission`) may come from a faulty origin by way of an honest relay, so it is dropped
quietly.

A bundle that comes after its origin's goodbye is used, too. Otherwise what counts would depend on which of the two came
first. Nobody waits for it, and it reaches everyone like any late one.
"""

from hashlib import sha256
from typing import Literal, NamedTuple

from seedflood.errors import PeerError
from seedflood.protocol.frontier import Frontier, Span, count_steps
from seedflood.protocol.origin import STEP_MAX, OriginId
from seedflood.protocol.packing import are_within, packed_bytes_max, unpack
from seedflood.protocol.seedflood.bundles import Bundle
from seedflood.protocol.seedflood.messages import ClosedEpoch, EpochDigest, Vote
from seedflood.protocol.seedflood.rules import Rules
from seedflood.protocol.seedflood.statement import unpack as unpack_statement
from seedflood.protocol.swarm.access import AccessList
from seedflood.protocol.swarm.admission import MemberAdmission
from seedflood.protocol.swarm.messages import Member, Verify

Objection = Literal[
    "stranger",
    "removed",
    "cut",
    "role",
    "unknown origin",
    "too many origins",
    "beyond the run",
    "not a round",
    "not its turn",
    "payload",
    "another key",
    "signature",
    "equivocation",
    "too far ahead",
    "coefficients",
    "unsigned sum",
]
"""Why something from another host is not used. Each reason is a series of the metrics."""


COSTLY: tuple[Objection, ...] = ("signature", "equivocation", "coefficients", "unsigned sum")
"""Found out by a verification or by unpacking; everything else is seen at a glance."""


class Terms(NamedTuple):
    """How bundles came. is_answer: from a donor of ours. Then they may be of a host that was removed: what any of us
    held when it learned of the removal has to reach everyone, else replicas would differ for ever. before: no bundle of
    this step or a later one is taken yet."""

    is_answer: bool
    before: int = STEP_MAX


class Admission(MemberAdmission):
    """Checks what the network says against the rules of the run, the known members and what is held already."""

    def __init__(self, rules: Rules, verify: Verify, frontier: Frontier, access: AccessList | None = None) -> None:
        super().__init__(rules, verify, access, check_state=unpack_statement)
        self._rules = rules
        self._admits = rules.compression.admits
        self._frontier = frontier

    @property
    def in_vain(self) -> int:
        """How much was refused only after costly work."""
        return sum(self.refused.get(reason, 0) for reason in COSTLY)

    def check_epoch(self, closed: ClosedEpoch, signed: EpochDigest) -> None:
        """Raises PeerError if a sum cannot be one of this run, or is not the one that was signed.

        Cheap checks come first: a liar's sum is not even unpacked.
        """
        reason: Objection | None = None
        rules = self._rules
        end = (closed.epoch + 1) * rules.refresh_period
        if any(one.origin not in self.membership for one in closed.frontier):
            reason = "unknown origin"
        elif end > rules.steps or any(Frontier([one]).last(one.origin) >= end for one in closed.frontier):
            reason = "beyond the run"
        elif (
            Frontier(closed.frontier).digest() != signed.frontier_digest
            or len(closed.coefficients) > packed_bytes_max(rules.epoch_bytes)
            or not self._is_sum(closed, signed)
        ):
            reason = "coefficients"
        if reason is not None:
            self.refuse(reason)
            raise PeerError(f"coefficients of epoch {closed.epoch} cannot be used: {reason}", reason=reason)

    def _is_sum(self, closed: ClosedEpoch, signed: EpochDigest) -> bool:
        """Are these the coefficients that were signed, and can so many updates, or steps, add up to them?"""
        try:
            numbers = unpack(closed.coefficients, self._rules.epoch_bytes)
        except ValueError:
            return False
        if sha256(numbers).digest() != signed.sum_digest:
            return False
        coefficients = numbers[: len(numbers) - self._rules.left_bytes]
        first, end = (number * self._rules.refresh_period for number in (closed.epoch, closed.epoch + 1))
        if self._rules.step_reach is not None:
            return are_within(coefficients, (end - first) * self._rules.step_reach)
        return are_within(coefficients, count_steps(closed.frontier, first, end) * self._rules.compression.reach)

    def admits(self, bundle: Bundle, span: Span, terms: Terms | None) -> bool:
        """May this bundle be used? Asked only if something in it is new. span: `bundle.span`. terms: None if it is only
        to prove something (`ends`): then only its form and its author count. Raises PeerError for a wrong signature."""
        origin, first, last = span
        if terms is not None and (objection := self._objection_to(bundle, terms)) is not None:
            return self._reject(objection)
        member = self.membership.get(origin)
        if member is None:
            return self._reject("unknown origin")
        if last >= self._rules.steps or first < 0:
            return self._reject("beyond the run")
        if (objection := self._objection_to_form(bundle)) is not None:
            return self._reject(objection)
        if terms is not None and (first >= terms.before or not self._frontier.can_add(origin, first)):
            return self._reject("too far ahead")
        return self._has_signed(member, bundle)

    def admits_vote(self, vote: Vote) -> bool:
        """May this vote be counted? Raises PeerError for a wrong signature."""
        member = self.membership.get(vote.origin)
        if member is None or (self.access.is_closed and vote.origin not in self.access.listed):
            return self._reject("unknown origin" if member is None else "stranger")
        return self._has_signed(member, vote)

    def _has_signed(self, member: Member, signed: Bundle | Vote) -> bool:
        """Raises PeerError for a wrong signature."""
        if member.origin in self.twins:
            return self._reject("another key")
        key = member.public_key
        if self._verify(key, signed.signed_bytes(self._rules.run_id, key), signed.signature):
            return True
        self.refuse("signature")
        what, name = "vote" if isinstance(signed, Vote) else "bundle", self.membership.name(member.origin)
        raise PeerError(f"a {what} of {name} has a wrong signature", reason="signature")

    def _objection_to(self, bundle: Bundle, terms: Terms) -> Objection | None:
        """Why nothing that its origin publishes of these steps is taken, if so."""
        origin, last, access = bundle.origin, bundle.last, self.access
        cut = access.cuts.get(origin)
        if last >= self.membership.ended.get(origin, STEP_MAX) or (cut and cut.excludes(bundle.step, last)):
            return "cut"
        if (
            access.trainers is not None
            and origin not in access.trainers
            and not self._may_have_published(origin, terms)
        ):
            return access.objection_to(origin)
        return None

    def _objection_to_form(self, bundle: Bundle) -> Objection | None:
        rules = self._rules
        if bundle.length != rules.local_steps or bundle.step % rules.local_steps:
            return "not a round"
        if rules.turn_rounds > 1 and not rules.turns.has(bundle.origin, bundle.last):
            return "not its turn"
        if not self._admits(bundle.probes):
            return "payload"
        return None

    def _may_have_published(self, origin: OriginId, terms: Terms) -> bool:
        """May a donor of ours have something that this origin published before it was removed? Once it is cut off, what
        is in no hole may come from anybody."""
        is_former = origin in self.access.former or self.membership.took_part(origin)
        return origin in self.access.cuts or (terms.is_answer and is_former)

    def _reject(self, reason: Objection) -> bool:
        self.refuse(reason)
        return False
