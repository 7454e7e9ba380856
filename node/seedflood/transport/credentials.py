"""How channels and ports are secured, and who is at the other end: by mutual TLS (`certificates`), on loopback, too.

An address does not show where it leads: one of loopback may be the end of a tunnel or a published port, and a port at
all addresses is one of loopback, too. So one rule holds for all, and there is no fallback that somebody in between
could ask for.

A certificate holds for 30 days and is renewed after 15, and by SIGHUP; links that are open stay.
"""

import re
import time
from collections.abc import Callable, Iterable
from dataclasses import KW_ONLY, dataclass
from typing import Any, NamedTuple

import grpc
import grpc.aio

from seedflood.errors import PeerError
from seedflood.identity import Identity, verify
from seedflood.protocol.swarm.messages import Hello
from seedflood.transport import certificates
from seedflood.transport.certificates import Certificate

PROOF_KEY = "seedflood-proof-bin"
"""Initial metadata of an accepted Flood.Link: the acceptor's statement about the dialler's channel key."""

PEM_KEY = "x509_pem_cert"

_UNRESOLVED = re.compile(r"os_error: (.+?) syscall: getaddrinfo")
"""What gRPC says of a name that the system's resolver does not know."""

Metadata = Iterable[tuple[str, Any]]


class Way(NamedTuple):
    """A channel to an address. acceptor: returns the public key of whom the dialler has reached, which that one proves
    before it says anything else, by the initial metadata, or raises PeerError; None: the link is plain."""

    channel: grpc.aio.Channel
    acceptor: Callable[[Metadata], bytes] | None


@dataclass(eq=False, repr=False)
class Credentials:
    """Mutual TLS. The certificate renews itself. handshakes: those of TLS that others have begun. is_plain: no TLS, for
    tests and for measurements of what TLS costs; daemons have no setting for it."""

    _signer: Identity
    _: KW_ONLY
    is_plain: bool = False
    proxy_of: Callable[[str], str] = lambda address: ""
    """The HTTP proxy by which this address is dialled; "": none."""
    clock: Callable[[], float] = time.time
    _served: Certificate | None = None
    handshakes: int = 0

    def __post_init__(self) -> None:
        self._certificate = certificates.issue(self._signer, self.clock())

    def renew(self) -> None:
        """Makes a new key and certificate for connections from now on. Connections that are open stay."""
        self._certificate = certificates.issue(self._signer, self.clock())

    @property
    def certificate(self) -> Certificate:
        """The certificate for a new connection: another one, too, if the clock has been set back."""
        if not self._certificate.is_fresh(self.clock()):
            self.renew()
        return self._certificate

    def open(self, address: str, options: list[tuple[str, Any]]) -> Way:
        """A new channel to an address."""
        target = address
        if proxy := self.proxy_of(address):
            target = proxy
            options = [*options, ("grpc.http_connect_server", address)]  # the proxy resolves the name
        if self.is_plain:
            return Way(grpc.aio.insecure_channel(target, options=options), None)
        own = self.certificate
        secrets = grpc.ssl_channel_credentials(certificates.authority(), own.key_pem, own.chain_pem)
        secured = [*options, ("grpc.ssl_target_name_override", certificates.SERVER_NAME)]
        channel = grpc.aio.secure_channel(target, secrets, options=secured)

        def acceptor(metadata: Metadata) -> bytes:
            proof = next((value for key, value in metadata if key == PROOF_KEY), None)
            return certificates.check_proof(proof, own.channel, verify)

        return Way(channel, acceptor)

    def add_port(self, server: grpc.aio.Server, address: str) -> int:
        if self.is_plain:
            return int(server.add_insecure_port(address))
        secrets = grpc.dynamic_ssl_server_credentials(self._serve(), self._serve_again, True)
        return int(server.add_secure_port(address, secrets))

    async def introduce(self, context: grpc.aio.ServicerContext) -> None:
        """Proves to a caller who we are, before anything else is sent. Raises PeerError."""
        if not self.is_plain:
            channel = certificates.channel_of(_shown(context))
            await context.send_initial_metadata(((PROOF_KEY, certificates.prove(self._signer, channel)),))

    def caller(self, context: grpc.aio.ServicerContext) -> bytes | None:
        """The public key of the origin that calls; None in plain text. Raises PeerError."""
        if self.is_plain:
            return None
        return certificates.read(_shown(context), self.clock(), verify)

    def _serve(self) -> Any:
        self._served = own = self.certificate
        return grpc.ssl_server_certificate_configuration([(own.key_pem, own.chain_pem)], certificates.authority())

    def _serve_again(self) -> Any:
        """gRPC asks at each handshake. None: as before."""
        self.handshakes += 1
        return None if self.certificate is self._served else self._serve()


def plain_text() -> Credentials:
    return Credentials(Identity.generate(), is_plain=True)


def advice(details: str) -> str:
    """What may be wrong if a connection failed with these words of gRPC; "" if they say it well enough."""
    if unresolved := _UNRESOLVED.search(details):
        return f"the system cannot resolve this name ({unresolved[1]})"
    if not details.endswith("Socket closed") and "handshake failed" not in details:
        return ""
    if "WRONG_VERSION_NUMBER" in details:
        return "it answers without TLS, so it is no seedflood of this release; compare address and port"
    if "CERTIFICATE_VERIFY_FAILED" in details:
        return "its certificate is not valid; compare the clocks of both hosts"
    return "it has ended the TLS handshake; compare the clocks of both hosts, and whether seedflood listens there"


def check_key(hello: Hello, proven: bytes | None, pin: bytes | None = None) -> None:
    """Raises PeerError unless a hello is of the key that the channel has proven, and of the one that is pinned."""
    if proven is not None and hello.member.public_key != proven:
        raise PeerError("a hello of another origin than the one that made the connection", reason="identity")
    check_pin(hello.member.public_key, pin)


def check_pin(public_key: bytes | None, pin: bytes | None) -> None:
    """Raises PeerError if a key is not the one that `[[peers]] origin` names."""
    if pin is not None and public_key is not None and public_key != pin:
        raise PeerError(f"its public key is {public_key.hex()}, but [[peers]] origin names {pin.hex()}", reason="pin")


def _shown(context: grpc.aio.ServicerContext) -> bytes:
    """The certificate of the caller, which gRPC requires on a secured port."""
    pems = context.auth_context().get(PEM_KEY) or [b""]
    return bytes(pems[0])
