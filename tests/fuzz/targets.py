"""What bytes from outside may do to each of its readers: be read, or raise the error that is told in a sentence.

A target takes any bytes. It returns when they were read or refused as they should be; everything else that it raises
is a fault. `test_targets.py` feeds them what the corpora hold and what Hypothesis makes of it, `tools/fuzz.py` what
atheris finds with its eyes on the branches that were taken.
"""

import base64
import contextlib
import datetime
import functools
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric import ec

from seedflood.config import load_settings
from seedflood.errors import ConfigError, JournalError, PeerError, SeedfloodError
from seedflood.protocol.frontier import Frontier
from seedflood.protocol.gasloc import messages as gasloc
from seedflood.protocol.seedflood import statement
from seedflood.protocol.seedflood.bundles import make_bundle
from seedflood.protocol.seedflood.messages import ClosedEpoch
from seedflood.protocol.swarm.messages import Member
from seedflood.protocol.swarm.outputs import Record
from seedflood.roster_file import parse_roster
from seedflood.storage.seedflood.journal import BundleJournal
from seedflood.transport import certificates, refusal
from seedflood.transport.codec import decode, encode

BEGIN, END = (datetime.datetime(year, 1, 1, tzinfo=datetime.UTC) for year in (2026, 2036))

Target = Callable[[bytes], None]

CORPORA = Path(__file__).with_name("corpus")

RUN, BASE = b"r" * 32, b"b" * 32
PERIOD = 20
MEMBERS = [Member(bytes([k]) * 32, f"host{k}", k, 2, first_step=0, signature=bytes(64)) for k in (1, 2)]
RECORDS = [Record(b"key%d" % k, b"%d" % k * 50) for k in range(3)]
BUNDLES = [make_bundle(k, step, ((step, k),), 0, b"%64d" % step) for k in (1, 2) for step in range(2 * PERIOD)]
SUMMED = Frontier()
for one in (1, 2):
    SUMMED.add(one, 0, PERIOD - 1)
SIGNED = (CORPORA / "roster" / "00").read_bytes()
SUM = ClosedEpoch(0, SUMMED.held(), bytes(40))


def frame(data: bytes) -> None:
    """A frame of a link. What is read can be told again."""
    try:
        message = decode(data)
    except PeerError:
        return
    for again in encode(message) if message is not None else ():
        decode(again)


def exchange(data: bytes) -> None:
    """What a neighbour says of GASLoC. What is read can be told again."""
    try:
        said = gasloc.decode(data)
    except PeerError:
        return
    assert gasloc.decode(gasloc.encode(said)) == said or said != said  # not a number


def state(data: bytes) -> None:
    """SeedFlood's part of a membership statement."""
    with contextlib.suppress(PeerError):
        statement.unpack(data)


def answer(data: bytes) -> None:
    """The text of a status with which a server refuses."""
    facts = refusal.parse(data.decode(errors="surrogateescape"))
    if facts is not None:
        refusal.origin_in(facts)
        assert isinstance(refusal.as_error(facts, "host:1", RUN), SeedfloodError)


def certificate(data: bytes) -> None:
    """What a peer shows in TLS. data: in turn a certificate in PEM, one in DER, and the statement in one that can be
    read."""
    shown = b"-----BEGIN CERTIFICATE-----\n" + base64.encodebytes(data) + b"-----END CERTIFICATE-----\n"
    for pem in (data, shown, certificates.sign_certificate(channel_key(), BEGIN, END, data[:4096])):
        with contextlib.suppress(PeerError):
            certificates.read(pem, BEGIN.timestamp(), lambda key, message, signature: len(data) % 2 > 0)


def roster(data: bytes) -> None:
    """A roster.json, as if its operator had signed it. What is read can be written, and is read as the same."""
    try:
        found = parse_roster(data)
    except ValueError:
        return
    assert not found.is_signed or found == parse_roster(SIGNED)
    assert parse_roster(found.spelled().encode()) == found


def settings(data: bytes) -> None:
    """A peers.toml."""
    with scratch() as folder:
        path = folder / "peers.toml"
        path.write_bytes(data)
        with contextlib.suppress(ConfigError):
            load_settings(path)


def journal(data: bytes) -> None:
    """A journal whose bytes were changed here and there. Nothing is read from it that was not written.

    data: patches, each two bytes of where (in units of four, modulo the size), one of how many, and so many bytes.
    """
    content = bytearray(whole_journal())
    while len(data) > 3:
        start = 4 * int.from_bytes(data[:2], "big") % len(content)
        patch = data[3 : 3 + data[2]]
        content[start : start + len(patch)] = patch
        data = data[3 + data[2] :]
    with scratch() as folder:
        (folder / "journal").write_bytes(content)
        try:
            opened = BundleJournal.open(folder / "journal", RUN, BASE, refresh_period=PERIOD)
        except (ConfigError, JournalError):
            return
        with opened:
            assert all(member in MEMBERS for member in opened.members())
            assert all(Record(*record) in RECORDS for record in opened.records().items())
            assert all(bundle in BUNDLES for bundle in opened.replay())
            assert all(closed == SUM for closed in opened.closed_epochs())


@functools.cache
def channel_key() -> ec.EllipticCurvePrivateKey:
    return ec.derive_private_key(7, ec.SECP256R1())


@functools.cache
def whole_journal() -> bytes:
    with scratch() as folder:
        with BundleJournal.open(folder / "journal", RUN, BASE, refresh_period=PERIOD) as made:
            made.keep((), RECORDS, durable=True)
            made.append(BUNDLES, MEMBERS, durable=True)
            made.compact(SUM)
        return (folder / "journal").read_bytes()


@contextlib.contextmanager
def scratch() -> Iterator[Path]:
    """A folder in memory where there is one: a disk would take longer than what is tried."""
    memory = "/dev/shm"
    folder = tempfile.mkdtemp(prefix="seedflood-fuzz-", dir=memory if os.access(memory, os.W_OK) else None)
    try:
        yield Path(folder)
    finally:
        shutil.rmtree(folder)


TARGETS: Mapping[str, Target] = {
    target.__name__: target for target in (frame, exchange, state, answer, certificate, roster, settings, journal)
}


def corpus(name: str) -> list[bytes]:
    """The examples of a target that are kept."""
    return [path.read_bytes() for path in sorted((CORPORA / name).iterdir())]
