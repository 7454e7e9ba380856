"""Certificates: what an origin has signed is believed, for its channel key and its time, and nothing else is."""

import datetime

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key
from cryptography.x509.oid import NameOID
from hypothesis import given
from hypothesis import strategies as st

from seedflood.errors import PeerError
from seedflood.identity import Identity, verify
from seedflood.transport import certificates
from seedflood.transport.certificates import CLOCKS_SECONDS, VALID_SECONDS

NOW = 1_800_000_000.0
BEGIN = datetime.datetime.fromtimestamp(NOW - 100, datetime.UTC)
END = datetime.datetime.fromtimestamp(NOW + 100, datetime.UTC)
ALICE, MALLORY = Identity.generate(), Identity.generate()
OWN = certificates.issue(ALICE, NOW)


def refusal_of(pem, now=NOW):
    with pytest.raises(PeerError) as refusal:
        certificates.read(pem, now, verify)
    return refusal.value.reason


def statement_in(pem):
    extension = x509.load_pem_x509_certificate(pem).extensions.get_extension_for_oid(certificates.EXTENSION)
    return extension.value.value


def test_a_certificate_names_its_origin_and_its_channel():
    assert certificates.read(OWN.chain_pem, NOW, verify) == ALICE.public_key
    assert certificates.channel_of(OWN.chain_pem) == OWN.channel
    assert certificates.issue(ALICE, NOW).channel != OWN.channel


@pytest.mark.parametrize(
    ("seconds", "is_valid"),
    [
        (-CLOCKS_SECONDS - 10, False),
        (-CLOCKS_SECONDS + 10, True),
        (VALID_SECONDS - 10, True),
        (VALID_SECONDS + 10, False),
    ],
)
def test_a_certificate_has_its_time(seconds, is_valid):
    if is_valid:
        certificates.read(OWN.chain_pem, NOW + seconds, verify)
    else:
        assert refusal_of(OWN.chain_pem, NOW + seconds) == "expired"


def test_it_is_renewed_long_before_it_ends():
    assert NOW < OWN.renew_at < NOW + VALID_SECONDS / 2 + 1


@pytest.mark.parametrize(
    ("seconds", "is_fresh"), [(0, True), (-60, True), (-2 * CLOCKS_SECONDS, False), (VALID_SECONDS / 2, False)]
)
def test_whoever_sets_its_clock_right_needs_another(seconds, is_fresh):
    assert OWN.is_fresh(NOW + seconds) == is_fresh


def test_nobody_takes_the_statement_of_another_for_a_key_of_its_own():
    key = ec.generate_private_key(ec.SECP256R1())
    assert refusal_of(certificates.sign_certificate(key, BEGIN, END, statement_in(OWN.chain_pem))) == "certificate"


def test_who_has_stolen_a_channel_key_cannot_make_it_valid_for_longer():
    own = x509.load_pem_x509_certificate(OWN.chain_pem)
    key = load_pem_private_key(OWN.key_pem, None)
    longer = own.not_valid_after_utc + datetime.timedelta(days=365)
    same = certificates.sign_certificate(
        key, own.not_valid_before_utc, own.not_valid_after_utc, statement_in(OWN.chain_pem)
    )
    certificates.read(same, NOW, verify)
    stolen = certificates.sign_certificate(key, own.not_valid_before_utc, longer, statement_in(OWN.chain_pem))
    assert refusal_of(stolen) == "certificate"


def test_a_proof_is_no_statement_of_a_certificate():
    """Whoever dials a host gets its signature about a channel key of their own choice."""
    key = ec.generate_private_key(ec.SECP256R1())
    channel = certificates.channel_of(certificates.sign_certificate(key, BEGIN, END, b""))
    forged = certificates.sign_certificate(key, BEGIN, END, certificates.prove(ALICE, channel))
    assert refusal_of(forged) == "certificate"
    with pytest.raises(PeerError):
        certificates.check_proof(statement_in(OWN.chain_pem), OWN.channel, verify)


def test_a_proof_names_who_has_accepted_and_is_about_one_channel():
    proof = certificates.prove(MALLORY, OWN.channel)
    assert certificates.check_proof(proof, OWN.channel, verify) == MALLORY.public_key
    others = certificates.issue(ALICE, NOW)
    for wrong, channel in [(proof, others.channel), (proof[:-1], OWN.channel), (proof + b"0", OWN.channel)]:
        with pytest.raises(PeerError) as refusal:
            certificates.check_proof(wrong, channel, verify)
        assert refusal.value.reason == "proof"


def test_without_a_proof_nobody_is_believed():
    with pytest.raises(PeerError, match="does not prove"):
        certificates.check_proof(None, OWN.channel, verify)


def foreign(key, *extensions):
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "x")])
    builder = x509.CertificateBuilder(name, name, key.public_key(), 1, BEGIN, END)
    for extension in extensions:
        builder = builder.add_extension(extension, critical=False)
    hasher = None if isinstance(key, ed25519.Ed25519PrivateKey) else SHA256()
    return builder.sign(key, hasher).public_bytes(Encoding.PEM)


ODD_NAME = x509.UnrecognizedExtension(x509.oid.ExtensionOID.SUBJECT_ALTERNATIVE_NAME, bytes.fromhex("3002a300"))
"""An x400Address, of which cryptography makes an error of a kind of its own."""


@pytest.mark.parametrize(
    "make",
    [
        lambda: foreign(ec.generate_private_key(ec.SECP256R1())),
        lambda: foreign(ec.generate_private_key(ec.SECP384R1())),
        lambda: foreign(ec.generate_private_key(ec.SECP256R1()), ODD_NAME),
        lambda: foreign(rsa.generate_private_key(65537, 2048)),
        lambda: foreign(ed25519.Ed25519PrivateKey.generate()),
        lambda: b"",
        lambda: OWN.chain_pem[:300],
        lambda: OWN.key_pem,
        lambda: OWN.chain_pem + b"\n" * certificates.PEM_BYTES_MAX,
    ],
    ids=["no origin", "other curve", "odd name", "rsa", "ed25519", "empty", "cut", "a key", "long"],
)
def test_other_certificates_are_refused(make):
    assert refusal_of(make()) == "certificate"


@given(st.binary(max_size=200))
def test_no_bytes_in_the_extension_are_a_statement_by_chance(statement):
    key = ec.generate_private_key(ec.SECP256R1())
    assert refusal_of(certificates.sign_certificate(key, BEGIN, END, statement)) == "certificate"


@given(st.integers(0, len(OWN.chain_pem) - 1), st.integers(1, 255))
def test_a_damaged_certificate_names_nobody_else(position, change):
    damaged = bytearray(OWN.chain_pem)
    damaged[position] ^= change
    try:
        public_key = certificates.read(bytes(damaged), NOW, verify)
    except PeerError:
        return
    assert public_key == ALICE.public_key  # damage that the statement is not about


@given(st.binary(max_size=1000))
def test_random_bytes_are_no_certificate(data):
    assert refusal_of(data) == "certificate"
    assert refusal_of(b"-----BEGIN CERTIFICATE-----\n" + data + b"\n-----END CERTIFICATE-----\n") == "certificate"
