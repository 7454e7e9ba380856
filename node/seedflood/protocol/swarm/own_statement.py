"""Our own statement: who we are, signed, each edition newer than the last."""

from dataclasses import replace
from typing import Any

from seedflood.protocol.swarm.messages import Member, Sign


class OwnStatement:
    """member: the edition that counts, made complete and signed by `say`. outlived: how often others were newer."""

    def __init__(self, member: Member, run_id: bytes, sign: Sign) -> None:
        self.member = member
        self.outlived = 0
        self._run_id = run_id
        self._sign = sign

    def say(self, known: Member | None, **changes: Any) -> Member:
        """A new edition with these fields changed, newer than what is known of us: a past life, or a copy of our key,
        shall not have the last word."""
        if known is not None and known.signature == self.member.signature:
            self.member = replace(self.member, version=self.member.version + 1)
        elif known is not None and known.age >= self.member.age:
            self.outlive(known)
        fields = {**changes, "signature": b""}
        unsigned = replace(self.member, **fields)
        self.member = replace(unsigned, signature=self._sign(unsigned.signed_bytes(self._run_id)))
        return self.member

    def outlive(self, past: Member) -> None:
        """A statement about us that we have not made is newer than ours: the next edition is newer than it."""
        self.outlived += 1
        self.member = replace(self.member, incarnation=past.incarnation + 1, version=0)
