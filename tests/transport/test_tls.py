"""Links secured by TLS, over real sockets: who is who at both ends, and everyone who is not is refused."""

import asyncio
import contextlib
import datetime
import ssl
import time
from collections.abc import AsyncIterator

import grpc
import grpc.aio
import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID
from linked import end_of

from seedflood.errors import PeerError
from seedflood.identity import Identity
from seedflood.transport import certificates, codec
from seedflood.transport.credentials import PROOF_KEY, Credentials
from seedflood.transport.server import CHANNEL_OPTIONS, LINK_PATH

DAY = datetime.timedelta(days=1)


@pytest.fixture
def make_secured(make_node):
    """Makes nodes that speak TLS, each with a key of its own."""

    def make(name, *, clock=time.time, is_plain=False, **settings):
        identity = Identity.generate()
        credentials = Credentials(identity, clock=clock, is_plain=is_plain)
        node = make_node(name, identity=identity, credentials=credentials, **settings)
        node.identity, node.credentials = identity, credentials
        return node

    return make


async def linked(a, b):
    """a dials b and is linked with it."""
    a.dial(b)
    await a.until(lambda: b.origin in a.linked)
    await b.until(lambda: a.origin in b.linked)


def channel_with(address, key_pem, chain_pem):
    secrets = grpc.ssl_channel_credentials(certificates.authority(), key_pem, chain_pem)
    options = [*CHANNEL_OPTIONS, ("grpc.ssl_target_name_override", certificates.SERVER_NAME)]
    return grpc.aio.secure_channel(address, secrets, options=options)


@contextlib.asynccontextmanager
async def tapped(address) -> AsyncIterator[tuple[str, bytearray]]:
    """An address that leads to another one, and all bytes that have passed."""
    seen, tasks = bytearray(), set()

    async def copy(reader, writer):
        try:
            while data := await reader.read(65_536):
                seen.extend(data)
                writer.write(data)
        finally:
            writer.close()
            await writer.wait_closed()

    async def meet(reader, writer):
        tasks.add(asyncio.current_task())
        host, _, port = address.rpartition(":")
        there, here = await asyncio.open_connection(host, int(port))
        await asyncio.gather(copy(reader, here), copy(there, writer), return_exceptions=True)

    server = await asyncio.start_server(meet, "127.0.0.1", 0)
    try:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}", seen
    finally:
        server.close()
        await asyncio.gather(*tasks)


@pytest.mark.parametrize("is_secured", [True, False])
async def test_what_is_said_on_a_secured_link_cannot_be_read(make_secured, is_secured):
    a = await make_secured("gladiolus", is_plain=not is_secured).start()
    b = await make_secured("begonia", is_plain=not is_secured).start()
    async with tapped(b.address) as (address, seen):
        a.dial(address)
        await a.until(lambda: b.origin in a.linked)
        await b.until(lambda: a.origin in b.linked)
        assert len(seen) > 200
        assert {name for name in (b"gladiolus", b"begonia") if name in seen} == (
            set() if is_secured else {b"gladiolus", b"begonia"}
        )
        await a.links.close()


def own_authority():
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "seedflood authority")])
    return key, name


def signed_by_a_foreign_authority():
    key, name = own_authority()
    now = datetime.datetime.now(datetime.UTC)
    builder = x509.CertificateBuilder(name, name, key.public_key(), 7, now - DAY, now + DAY)
    chain = builder.sign(ec.generate_private_key(ec.SECP256R1()), SHA256()).public_bytes(Encoding.PEM)
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()), chain


def expired():
    own = certificates.issue(Identity.generate(), time.time() - 60 * DAY.total_seconds())
    return own.key_pem, own.chain_pem


@pytest.mark.parametrize(
    "make", [lambda: (None, None), signed_by_a_foreign_authority, expired], ids=["none", "foreign", "expired"]
)
async def test_a_certificate_that_tls_refuses_opens_nothing(make_secured, make):
    b = await make_secured("b").start()
    hello = codec.encode(make_secured("a").hello())
    code, _ = await end_of(channel_with(b.address, *make()), *hello)
    assert code is grpc.StatusCode.UNAVAILABLE
    assert b.calls == []
    own = certificates.issue(Identity.generate(), time.time())
    code, _ = await end_of(channel_with(b.address, own.key_pem, own.chain_pem), b"no hello")
    assert code is grpc.StatusCode.PERMISSION_DENIED  # the same way, with a certificate that is one


def nobody(signer):
    """A certificate of the authority, whose key is public, without a word of an origin."""
    key = ec.generate_private_key(ec.SECP256R1())
    now = datetime.datetime.now(datetime.UTC)
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()), certificates.sign_certificate(
        key, now - DAY, now + DAY, bytes(32 + 64)
    )


def own_of(signer):
    own = certificates.issue(signer, time.time())
    return own.key_pem, own.chain_pem


@pytest.mark.parametrize(
    ("make", "reason"), [(nobody, "certificate"), (own_of, "identity")], ids=["unsigned", "another's hello"]
)
async def test_a_hello_is_only_heard_from_its_origin(make_secured, caplog, make, reason):
    """The hello of a, recorded, from a channel of somebody else."""
    a, b = make_secured("a"), await make_secured("b").start()
    code, details = await end_of(channel_with(b.address, *make(Identity.generate())), *codec.encode(a.hello()))
    assert (code, f'"reason": "{reason}"' in details) == (grpc.StatusCode.PERMISSION_DENIED, True)
    assert b.links.totals.faults[reason] == 1
    assert b.calls == []
    assert "refused ipv4:127.0.0.1" in caplog.text
    await linked(a, b)


async def test_clocks_that_differ_too_much_are_named(make_secured, caplog):
    b = await make_secured("b", clock=lambda: time.time() + 0.9 * 86_400).start()
    a = await make_secured("a").start()
    await linked(a, b)
    late = await make_secured("late", clock=lambda: time.time() - 29.5 * 86_400).start(b)
    await late.until(lambda: late.refusals)
    assert "compare the clocks" in str(late.refusals[0])
    assert b.links.totals.faults["expired"] == 1
    assert "a certificate that has expired; compare the clocks" in caplog.text


async def test_a_dialler_takes_nobody_but_the_origin_that_is_pinned(make_secured, caplog):
    b, other = await make_secured("b").start(), Identity.generate()
    a = await make_secured("a").start()
    a.links.dial([b.address], {b.address: other.public_key})
    await a.until(lambda: a.refusals)
    assert f"its public key is {b.identity.public_key.hex()}, but [[peers]] origin names" in str(a.refusals[0])
    assert a.links.totals.faults["pin"] >= 1
    assert b.calls == []
    a.links.dial([b.address], {b.address: b.identity.public_key})
    await a.until(lambda: b.origin in a.linked)
    a.links.dial([b.address], {b.address: other.public_key})
    await a.until(lambda: b.origin not in a.linked)
    assert "no link" in caplog.text


async def test_a_pin_holds_on_a_plain_link_too(make_node):
    a, b = await make_node("a").start(), await make_node("b").start()
    a.links.dial([b.address], {b.address: a.member.public_key})
    await a.until(lambda: a.refusals)
    assert a.links.totals.faults["pin"] >= 1
    a.links.dial([b.address], {b.address: b.member.public_key})
    await a.until(lambda: b.origin in a.linked)


class Silent(Credentials):
    """Accepts like anyone, and says something else than the proof."""

    metadata = ()

    async def introduce(self, context):
        await context.send_initial_metadata(self.metadata)


async def test_who_proves_nothing_hears_nothing(make_node, make_secured):
    identity = Identity.generate()
    credentials = Silent(identity)
    b = await make_node("b", identity=identity, credentials=credentials).start()
    a = await make_secured("a", hello_seconds=2).start(b)
    await a.until(lambda: a.refusals)
    assert "does not prove who it is" in str(a.refusals[0])
    others = certificates.prove(identity, certificates.issue(Identity.generate(), time.time()).channel)
    for metadata, words in [
        (((PROOF_KEY, others),), "not about this connection"),
        (((PROOF_KEY, b""),), "not about this connection"),
    ]:
        credentials.metadata = metadata
        before = len(a.refusals)
        await a.until(lambda before=before: len(a.refusals) > before + 1)
        assert words in str(a.refusals[-1])
    assert a.links.totals.faults["proof"] >= 3
    assert b.calls == []


class Middle:
    """Somebody who ends TLS at both sides and passes everything on. It has the public authority, channel keys of its
    own, and an origin's key of its own."""

    def __init__(self, address):
        self._address = address
        self.identity = Identity.generate()
        self.passed: list[bytes] = []
        self.ends: list[str] = []
        self.script: list[bytes] | None = None
        """What it says to the accepting side instead of what the dialler says."""

    async def open(self):
        self._server = grpc.aio.server()
        handlers = {"Link": grpc.stream_stream_rpc_method_handler(self._pass)}
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("seedflood.wire.Flood", handlers),))
        own = certificates.issue(self.identity, time.time())
        configuration = grpc.ssl_server_certificate_configuration(
            [(own.key_pem, own.chain_pem)], certificates.authority()
        )
        secrets = grpc.dynamic_ssl_server_credentials(configuration, lambda: None, True)
        port = self._server.add_secure_port("127.0.0.1:0", secrets)
        await self._server.start()
        return f"127.0.0.1:{port}"

    async def close(self):
        await self._server.stop(0)

    async def _pass(self, _, context):
        own = certificates.issue(self.identity, time.time())
        async with channel_with(self._address, own.key_pem, own.chain_pem) as channel:
            call = channel.stream_stream(LINK_PATH)()
            await context.send_initial_metadata(tuple(await call.initial_metadata()))
            there = asyncio.create_task(self._copy_back(call, context))
            with contextlib.suppress(grpc.aio.BaseError, asyncio.InvalidStateError):
                for frame in self.script or []:
                    await call.write(frame)
                while self.script is None and (frame := await context.read()) is not grpc.aio.EOF:
                    self.passed.append(frame)
                    await call.write(frame)
            if self.script is None:
                call.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await there
            self.ends.append(str(await call.details()))

    async def _copy_back(self, call, context):
        with contextlib.suppress(grpc.aio.AioRpcError, grpc.aio.BaseError, asyncio.InvalidStateError):
            while (frame := await call.read()) is not grpc.aio.EOF:
                self.passed.append(frame)
                await context.write(frame)


async def test_somebody_in_between_is_refused_by_both_ends(make_secured):
    b, a = await make_secured("b").start(), make_secured("a")
    middle = Middle(b.address)
    address = await middle.open()
    try:
        await a.start(address)
        await a.until(lambda: len(a.refusals) > 1)
        assert "somebody may be in between" in str(a.refusals[0])
        assert a.links.totals.faults["proof"] >= 1
        assert middle.passed == []
        middle.script = codec.encode(a.hello())  # as it was said once, on a plain link
        await a.until(lambda: any('"reason": "identity"' in end for end in middle.ends))
        assert b.links.totals.faults["identity"] >= 1
        assert (a.linked, b.linked, middle.passed) == ({}, {}, [])
    finally:
        a.links.dial([])
        await middle.close()
    await linked(a, b)


def served_by(address):
    host, _, port = address.rpartition(":")
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return ssl.get_server_certificate((host, int(port)))


@pytest.mark.parametrize("what", ["in time", "by a signal"])
async def test_a_certificate_is_renewed_while_links_stay(make_secured, what):
    passed = [-16 * 86_400.0]

    def clock():
        return time.time() + passed[0]

    b = await make_secured("b", clock=clock).start()
    a = await make_secured("a", clock=clock).start()
    await linked(a, b)
    before = await asyncio.to_thread(served_by, b.address)
    assert await asyncio.to_thread(served_by, b.address) == before
    if what == "in time":
        passed[0] = 0.0
    else:
        b.credentials.renew()
    assert await asyncio.to_thread(served_by, b.address) != before
    await linked(await make_secured("c", clock=clock).start(), b)
    await linked(b, await make_secured("d", clock=clock).start())
    assert set(a.linked) == {b.origin}
    assert a.origin in b.linked
    assert not any(call[0] == "disconnected" for call in (*a.calls, *b.calls))


async def test_a_dialler_says_why_a_handshake_was_ended(make_secured, make_node, caplog):
    """By something that speaks no TLS, or by one of two hosts whose clocks differ too much."""
    secured, plain = await make_secured("secured").start(), await make_node("plain").start()
    early = await make_secured("early", clock=lambda: time.time() + 3 * 86_400).start()
    said = asyncio.Queue()
    caplog.handler.addFilter(lambda record: said.put_nowait(record.getMessage()) or True)
    for dialler, other, words in [
        (secured, plain, "it answers without TLS, so it is no seedflood of this release"),
        (secured, early, "its certificate is not valid; compare the clocks"),
        (early, secured, "it has ended the TLS handshake; compare the clocks"),
    ]:
        dialler.dial(other)
        assert words in await asyncio.wait_for(said.get(), 20)
        dialler.dial()


async def test_a_refusal_without_a_proof_is_not_believed(make_node, make_secured):
    """Else somebody who answers in another's place could end a host by saying that its run is another one."""
    said, often = [], asyncio.Event()

    class Rude(Credentials):
        async def introduce(self, context):
            said.append(context)
            if len(said) > 3:
                often.set()
            raise PeerError("another run", reason="run")

    identity = Identity.generate()
    b = await make_node("b", identity=identity, credentials=Rude(identity)).start()
    a = await make_secured("a").start(b)
    await asyncio.wait_for(often.wait(), 20)
    assert a.refusals == []


async def test_hosts_of_other_runs_are_still_told_so(make_secured):
    b = await make_secured("b", run="another").start()
    a = await make_secured("a").start(b)
    await a.until(lambda: a.refusals)
    assert "belongs to another run" in str(a.refusals[0])
