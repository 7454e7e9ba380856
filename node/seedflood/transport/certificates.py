"""Certificates of channels: which origin is at the other end of a TLS connection?

Every node makes a key of its own for channels, which never leaves memory. An origin's key signs two statements: *this
channel key is mine*, in the certificate, and *I have accepted the connection of that channel key*, to the dialler. So
somebody in between, who has other channel keys, can only be itself.

Why TLS alone is not enough: docs/explanation/links.md.
"""

import datetime
import hashlib
from dataclasses import dataclass
from functools import cache

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from cryptography.x509.oid import NameOID

from seedflood.errors import PeerError
from seedflood.identity import Identity
from seedflood.protocol.swarm.messages import Verify

SERVER_NAME = "seedflood"
"""The name in every certificate. TLS compares it, and nothing follows from that."""

EXTENSION = x509.ObjectIdentifier("2.25.209234192116179541407415146980371828033")
"""Where the origin's statement stands in a certificate: an arc made of a random UUID, which nobody has to register."""

VALID_SECONDS = 30 * 86_400
CLOCKS_SECONDS = 86_400
"""A certificate is valid from a day ago, because clocks of hosts differ."""

PEM_BYTES_MAX = 8192
"""The most bytes of a certificate that are parsed. Ours have some 800."""

_KEY_BYTES = 32
"""A statement on the wire is the origin's public key, and its signature."""


@dataclass(frozen=True, slots=True)
class Certificate:
    """A certificate of our own, with its key. channel: SHA-256 of the channel's public key."""

    key_pem: bytes
    chain_pem: bytes
    channel: bytes
    renew_at: float

    def is_fresh(self, now: float) -> bool:
        return self.renew_at - VALID_SECONDS / 2 - CLOCKS_SECONDS <= now < self.renew_at


def issue(signer: Identity, now: float) -> Certificate:
    """A new channel key with its certificate: gRPC's TLS takes no Ed25519. now: seconds since 1970."""
    key = ec.generate_private_key(ec.SECP256R1())
    channel = _digest(key.public_key())
    begin, end = int(now - CLOCKS_SECONDS), int(now + VALID_SECONDS)
    statement = signer.public_key + signer.sign(_channel_signed(channel, begin, end))
    certificate = sign_certificate(key, _time(begin), _time(end), statement)
    key_pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return Certificate(key_pem, certificate, channel, now + VALID_SECONDS / 2)


def sign_certificate(
    key: ec.EllipticCurvePrivateKey, begin: datetime.datetime, end: datetime.datetime, statement: bytes
) -> bytes:
    """A certificate with any statement, in PEM. Anyone can make it: the authority's key is public."""
    builder = x509.CertificateBuilder(
        issuer_name=_name("seedflood authority"),
        subject_name=_name("seedflood node"),
        public_key=key.public_key(),
        serial_number=x509.random_serial_number(),
        not_valid_before=begin,
        not_valid_after=end,
    )
    builder = builder.add_extension(x509.SubjectAlternativeName([x509.DNSName(SERVER_NAME)]), critical=False)
    builder = builder.add_extension(x509.UnrecognizedExtension(EXTENSION, statement), critical=False)
    return builder.sign(_authority_key(), SHA256()).public_bytes(Encoding.PEM)


def read(pem: bytes, now: float, verify: Verify) -> bytes:
    """Who shows this certificate: the public key of an origin whose statement is in it. Raises PeerError."""
    certificate = _parse(pem)
    channel = _digest(certificate.public_key())
    begin, end = certificate.not_valid_before_utc.timestamp(), certificate.not_valid_after_utc.timestamp()
    try:
        extension = certificate.extensions.get_extension_for_oid(EXTENSION).value
    except Exception:  # as in `_parse`
        raise PeerError("a certificate that names no origin", reason="certificate") from None
    assert isinstance(extension, x509.UnrecognizedExtension)
    public_key, signature = _split(extension.value)
    if not verify(public_key, _channel_signed(channel, int(begin), int(end)), signature):
        raise PeerError("a certificate that its origin has not signed", reason="certificate")
    if not begin <= now <= end:
        what = "has expired" if now > end else "is not valid yet"
        raise PeerError(f"a certificate that {what}; compare the clocks of both hosts", reason="expired")
    return public_key


def channel_of(pem: bytes) -> bytes:
    """SHA-256 of the channel key in a certificate, whoever has made it. Raises PeerError."""
    return _digest(_parse(pem).public_key())


def prove(signer: Identity, channel: bytes) -> bytes:
    """The statement that we have accepted the connection of this channel key."""
    return signer.public_key + signer.sign(_acceptance_signed(channel))


def check_proof(proof: bytes | None, channel: bytes, verify: Verify) -> bytes:
    """The key of the origin that has accepted our connection; channel is our own. Raises PeerError."""
    if proof is None:
        raise PeerError("it does not prove who it is", reason="proof")
    public_key, signature = _split(proof)
    if not verify(public_key, _acceptance_signed(channel), signature):
        raise PeerError(
            "its proof is not about this connection; somebody may be in between, or answer in its place",
            reason="proof",
        )
    return public_key


@cache
def authority() -> bytes:
    """The certificate of the authority, in PEM: a formality which gRPC asks for, and nothing is concluded from it."""
    key, name = _authority_key(), _name("seedflood authority")
    builder = x509.CertificateBuilder(
        issuer_name=name,
        subject_name=name,
        public_key=key.public_key(),
        serial_number=1,
        not_valid_before=datetime.datetime(2000, 1, 1, tzinfo=datetime.UTC),
        not_valid_after=datetime.datetime(9999, 12, 31, tzinfo=datetime.UTC),
    )
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    return builder.sign(key, SHA256()).public_bytes(Encoding.PEM)


@cache
def _authority_key() -> ec.EllipticCurvePrivateKey:
    return ec.derive_private_key(
        int.from_bytes(hashlib.sha256(b"seedflood authority 1\0").digest()), ec.SECP256R1()
    )  # below the order of the curve, as almost every number of 256 bits


def _channel_signed(channel: bytes, begin: int, end: int) -> bytes:
    return b"seedflood channel 1\0" + channel + begin.to_bytes(8, signed=True) + end.to_bytes(8, signed=True)


def _acceptance_signed(channel: bytes) -> bytes:
    return b"seedflood acceptance 1\0" + channel


def _split(statement: bytes) -> tuple[bytes, bytes]:
    """The public key and the signature of a statement; of one with another length nothing that verifies."""
    return statement[:_KEY_BYTES], statement[_KEY_BYTES:]


def _parse(pem: bytes) -> x509.Certificate:
    try:
        if len(pem) > PEM_BYTES_MAX:
            raise ValueError
        certificate = x509.load_pem_x509_certificate(pem)
        if not isinstance(certificate.public_key(), ec.EllipticCurvePublicKey):
            raise TypeError
    except Exception:  # cryptography's own tree, and whatever an unusual certificate makes it raise
        raise PeerError("a certificate that cannot be read", reason="certificate") from None
    return certificate


def _digest(key: object) -> bytes:
    assert isinstance(key, ec.EllipticCurvePublicKey)
    return hashlib.sha256(key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)).digest()


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _time(seconds: float) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC)
