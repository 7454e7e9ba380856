"""Admission of hosts: who may link with us, and which statements may be used.

A wrong signature is the fault of the peer that sent it, whoever is named as its author: every relay verifies, so an
honest one never passes it on.

The first key that is known under an origin id stays. To find two keys with the same 64 bits takes 2^32 tries, to find
one for the id of a given host 2^64. Who sees two keys takes nothing more of that origin; hosts that met different ones
first do not agree on it.
"""

from collections.abc import Callable

from seedflood.errors import PeerError
from seedflood.protocol.origin import OriginId
from seedflood.protocol.swarm.access import AccessList
from seedflood.protocol.swarm.membership import Membership
from seedflood.protocol.swarm.messages import Hello, Member, Verify
from seedflood.protocol.swarm.rules import SwarmRules

NOT_LISTED = "the host is not on the roster of this run; its operator adds it by `seedflood roster add`"
REMOVED = "the operator of this run has removed the host from its roster; to come back it needs a new key"
OUT_OF_TIME = "by this host's clock the other one's time on the roster is over, or has not begun"


class MemberAdmission:
    """Decides whom we link with and which statements may be used. access: by default the run is open. check_state:
    raises PeerError for bytes that no honest host of this algorithm states (`Member.algorithm`). membership: the
    statements that were used."""

    def __init__(
        self,
        rules: SwarmRules,
        verify: Verify,
        access: AccessList | None = None,
        *,
        check_state: Callable[[bytes], object],
    ) -> None:
        self.access = access or AccessList(verify)
        self.membership = Membership(origins_max=rules.origins_max)
        self.refused: dict[str, int] = {}
        """How much input of others was not used, by reason."""
        self._run_id = rules.run_id
        self._base_digest = rules.base_digest
        self._verify = verify
        self._check_state = check_state
        self.twins: set[OriginId] = set()
        """Origins that are known to have two keys. Nothing more is taken of them."""

    def check_hello(self, hello: Hello) -> None:
        """Raises PeerError if the peer does not belong with us."""
        if hello.run_id != self._run_id:
            raise PeerError("the peer takes part in another run", reason="run")
        if hello.base_digest not in (self._base_digest, b""):
            raise PeerError("the peer holds another base model", reason="base model")
        if not self.access.may_link(hello.member.public_key):
            self.refuse(self.access.objection(hello.member) or "stranger")
            if self.access.has_removed(hello.member.public_key):
                raise PeerError(REMOVED, reason="removed")
            if self.access.lists(hello.member.public_key):
                raise PeerError(OUT_OF_TIME, reason="removed")
            raise PeerError(NOT_LISTED, reason="roster")
        if not self.membership.has_room_for(hello.member):
            self.refuse("too many origins")
            raise PeerError(f"{len(self.membership)} origins take part, and no more are let in", reason="busy")
        if self.membership.is_taken(hello.member):
            self._note_twin(hello.member)
            raise PeerError("the origin id of the peer is that of another key", reason="identity")
        self.check_member(hello.member)
        for member in hello.members:
            self.check_member(member)

    def check_member(self, member: Member) -> None:
        """Raises PeerError if a new statement is not signed by its subject. A statement for which there is no room, or
        that has another key than is known for its origin id, or whose subject is not on the roster, is only counted."""
        if not self.may_state(member) or self.membership.get(member.origin) is member:  # it was checked when it came
            return
        if not self.membership.has_room_for(member):
            self.refuse("too many origins")
        if self.membership.is_taken(member):
            self._note_twin(member)
        self._check_state(member.algorithm)
        if self.membership.is_news(member) and not self.is_signed(member):
            self.refuse("signature")
            raise PeerError(f"the membership statement of {member.name} has a wrong signature", reason="signature")

    def may_state(self, member: Member) -> bool:
        """May its subject state this? What does not count is counted, and costs nothing else: rosters differ for a
        moment when they change, so it need not be the fault of the peer that sent it."""
        reason = self.access.objection(member)
        if reason is not None:
            self.refuse(reason)
        return reason is None

    def is_signed(self, member: Member) -> bool:
        """Did its subject make this statement?"""
        return self._verify(member.public_key, member.signed_bytes(self._run_id), member.signature)

    def refuse(self, reason: str) -> None:
        self.refused[reason] = self.refused.get(reason, 0) + 1

    def _note_twin(self, member: Member) -> None:
        """Somebody searched for two keys with one origin id. Nothing more is taken of that origin: others may know it
        by its other key, and then what honest relays pass on would look wrongly signed."""
        self.twins.add(member.origin)
        self.refuse("another key")
