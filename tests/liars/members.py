"""What a member of a run, written in another language, has to be told."""

import struct
import time
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from seedflood.identity import Identity
from seedflood.protocol.swarm.messages import Member
from seedflood.transport import certificates

HERE = Path(__file__).parent
PROTO = HERE.parents[1] / "proto" / "seedflood" / "wire" / "flood.proto"


def secrets_of(key: Ed25519PrivateKey) -> dict[str, object]:
    """The key of an origin with a certificate, and what else TLS takes."""
    own = certificates.issue(Identity(key), time.time())
    tls = {
        "authority": certificates.authority().decode(),
        "extension": certificates.EXTENSION.dotted_string,
        "valid_seconds": certificates.VALID_SECONDS,
    }
    seed = key.private_bytes_raw().hex()
    return {"seed": seed, "key": own.key_pem.decode(), "chain": own.chain_pem.decode(), "tls": tls}


def statement_layout() -> dict[str, object]:
    """The domain of its signature, and how many zeros end it if nothing is said that may be left out."""
    signed = Member(bytes(32), "a", 1).signed_bytes(bytes(32))
    domain = signed[: signed.index(0) + 1]
    fixed = struct.calcsize(">32s32sHcQQQqH")
    assert not any(signed[len(domain) + fixed :])
    return {"domain": domain.decode(), "zeros": len(signed) - len(domain) - fixed}
