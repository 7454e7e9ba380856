"""Our own statement: who we are, signed, each edition newer than the last."""

from dataclasses import replace
from typing import Any

from seedflood.protocol.swarm.messages import Member, Sign


class OwnStatement:
    """Makes and signs our statements. member: the newest one, complete and signed once `say` was called. outlived: how
    often somebody else's statement about us was newer."""

    def __init__(self, member: Member, run_id: bytes, sign: Sign) -> None:
        self.member = member
        self.outlived = 0
        self._run_id = run_id
        self._sign = sign

    def say(self, known: Member | None, **changes: Any) -> Member:
        """Makes a new edition with these fields changed. known: the newest statement about us, perhaps of a past life
        or of a copy of our key; the new edition is newer than it."""
        if known is not None and known.signature == self.member.signature:
            self.member = replace(self.member, version=self.member.version + 1)
        elif known is not None and known.age >= self.member.age:
            self.outlive(known)
        fields = {**changes, "signature": b""}
        unsigned = replace(self.member, **fields)
        self.member = replace(unsigned, signature=self._sign(unsigned.signed_bytes(self._run_id)))
        return self.member

    def outlive(self, past: Member) -> None:
        """Somebody else made a statement about us that is newer than ours: the next edition will be newer than it."""
        self.outlived += 1
        self.member = replace(self.member, incarnation=past.incarnation + 1, version=0)
