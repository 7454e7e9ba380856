"""What a member of a run, written in another language, has to be told."""

import struct
from pathlib import Path

from seedflood.protocol.swarm.messages import Member

HERE = Path(__file__).parent
PROTO = HERE.parents[1] / "proto" / "seedflood" / "wire" / "flood.proto"


def statement_layout() -> dict[str, object]:
    """The domain of its signature, and how many zeros end it if nothing is said that may be left out."""
    signed = Member(bytes(32), "a", 1).signed_bytes(bytes(32))
    domain = signed[: signed.index(0) + 1]
    fixed = struct.calcsize(">32s32sHcQQQqH")
    assert not any(signed[len(domain) + fixed :])
    return {"domain": domain.decode(), "zeros": len(signed) - len(domain) - fixed}
