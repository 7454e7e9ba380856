"""Admission: which foreign statements may be used. What is not, is counted by reason and changes nothing else.

A wrong signature is the fault of the peer that sent it, whoever is named as its author: every relay verifies, so an
honest one never passes it on. Everything else may reach an honest relay from a faulty origin and is dropped quietly.
"""

from hashlib import sha256
from typing import Literal

from seedflood.errors import PeerError
from seedflood.protocol.frontier import Frontier, count_steps
from seedflood.protocol.membership import Membership
from seedflood.protocol.messages import (
    STEP_MAX,
    Bundle,
    ClosedEpoch,
    EpochDigest,
    Hello,
    Member,
    OriginId,
    Span,
    Verify,
)
from seedflood.protocol.packing import are_within, packed_bytes_max, unpack
from seedflood.protocol.rules import Rules
from seedflood.protocol.seeds import probe_seed

Objection = Literal[
    "unknown origin",
    "too many origins",
    "beyond the run",
    "not a round",
    "payload",
    "seed",
    "another key",
    "signature",
    "equivocation",
    "too far ahead",
    "coefficients",
    "unsigned sum",
]
"""Why something foreign is not used: each is a series of the metrics."""


COSTLY: tuple[Objection, ...] = ("signature", "equivocation", "coefficients", "unsigned sum")
"""Found out by a verification or by unpacking; everything else is seen at a glance."""


class Admission:
    """Checks what the network says against the rules of the run, the known members and what is held already."""

    def __init__(self, rules: Rules, verify: Verify, membership: Membership, frontier: Frontier) -> None:
        self.refused: dict[Objection, int] = {}
        """Foreign input that was not used."""
        self.before = STEP_MAX
        """No bundle of this step or a later one is taken yet."""
        self._twins: set[OriginId] = set()
        """Origins that are known to have two keys."""
        self._rules = rules
        self._tells = rules.telling.admits
        self._verify = verify
        self._membership = membership
        self._frontier = frontier

    @property
    def in_vain(self) -> int:
        """How much was refused only after costly work."""
        return sum(self.refused.get(reason, 0) for reason in COSTLY)

    def check_hello(self, hello: Hello) -> None:
        """Raises PeerError if the peer does not belong with us."""
        if hello.run_id != self._rules.run_id:
            raise PeerError("the peer takes part in another run", reason="run")
        if hello.base_digest != self._rules.base_digest:
            raise PeerError("the peer holds another base model", reason="base model")
        if not self._membership.has_room_for(hello.member):
            self.refuse("too many origins")
            raise PeerError(f"{len(self._membership)} origins take part, and no more are let in", reason="busy")
        if self._membership.is_taken(hello.member):
            self._note_twin(hello.member)
            raise PeerError("the origin id of the peer is that of another key", reason="identity")
        self.check_member(hello.member)
        for member in hello.members:
            self.check_member(member)

    def check_member(self, member: Member) -> None:
        """Raises PeerError if a statement that is news is not signed by its subject. No room, or another key under an
        origin id that has one: it is no news."""
        if not self._membership.has_room_for(member):
            self.refuse("too many origins")
        if self._membership.is_taken(member):
            self._note_twin(member)
        if self._membership.is_news(member) and not self.is_signed(member):
            self.refuse("signature")
            raise PeerError(f"the membership statement of {member.name} has a wrong signature", reason="signature")

    def check_epoch(self, closed: ClosedEpoch, signed: EpochDigest) -> None:
        """Raises PeerError if coefficients cannot be those of an epoch of this run, or are not those that were signed.

        What costs little is checked first: a liar's sum is not even unpacked.
        """
        reason: Objection | None = None
        rules = self._rules
        end = (closed.epoch + 1) * rules.refresh_period
        if any(one.origin not in self._membership for one in closed.frontier):
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
        """Is it what was signed, and can so many updates, or steps, come to it?"""
        try:
            coefficients = unpack(closed.coefficients, self._rules.epoch_bytes)
        except ValueError:
            return False
        if sha256(coefficients).digest() != signed.sum_digest:
            return False
        first, end = (number * self._rules.refresh_period for number in (closed.epoch, closed.epoch + 1))
        if self._rules.step_reach is not None:
            return are_within(coefficients, (end - first) * self._rules.step_reach)
        return are_within(coefficients, count_steps(closed.frontier, first, end) * self._rules.telling.reach)

    def is_signed(self, member: Member) -> bool:
        """Did its subject make this statement?"""
        return self._verify(member.public_key, member.signed_bytes(self._rules.run_id), member.signature)

    def admits(self, bundle: Bundle, span: Span) -> bool:
        """Is a bundle, of which something is news, one of this run? Raises PeerError for a wrong signature."""
        origin, first, last = span
        member = self._membership.get(origin)
        if member is None:
            return self._reject(bundle, "unknown origin")
        rules = self._rules
        if last >= rules.steps or first < 0:
            return self._reject(bundle, "beyond the run")
        probes, local_steps = bundle.probes, rules.local_steps
        if len(probes) != local_steps or bundle.step % local_steps:
            return self._reject(bundle, "not a round")
        if not self._tells(probes):
            return self._reject(bundle, "payload")
        if rules.run_seed is not None and not _has_right_seeds(bundle, rules.run_seed):
            return self._reject(bundle, "seed")
        if first >= self.before or not self._frontier.can_add(origin, first):
            return self._reject(bundle, "too far ahead")
        if origin in self._twins:
            return self._reject(bundle, "another key")
        key = member.public_key
        if not self._verify(key, bundle.signed_bytes(rules.run_id, key), bundle.signature):
            return self._reject(bundle, "signature")
        return True

    def _reject(self, bundle: Bundle, reason: Objection) -> bool:
        self.refuse(reason)
        if reason == "signature":
            name = self._membership.name(bundle.origin)
            raise PeerError(f"a bundle of {name} has a wrong signature", reason=reason)
        return False

    def _note_twin(self, member: Member) -> None:
        """Two keys under one id were looked for. Nothing more of that origin is taken: others may know it by its other
        key, and what an honest relay passes on shall not look like a wrong signature."""
        self._twins.add(member.origin)
        self.refuse("another key")

    def refuse(self, reason: Objection) -> None:
        self.refused[reason] = self.refused.get(reason, 0) + 1


def _has_right_seeds(bundle: Bundle, run_seed: int) -> bool:
    """Does it tell of the directions that its steps have? A small part of what a verification costs."""
    return all(
        isinstance(told, bytes) or told[0] == probe_seed(run_seed, bundle.origin, step)
        for step, told in enumerate(bundle.probes, bundle.step)
    )
