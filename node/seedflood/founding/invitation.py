"""How a new host gets onto the roster: the operator's command waits with a code, the host's command uses it.

The code is one line: where the inviting side listens, the digest of its channel key, and a secret that counts once.

    new host                                        operator
    ├── TLS; compares the key with the code         listens, with a key made for this invitation
    ├── secret, own public key, signature ─────────▶ signs a roster with it, writes it down
    ◀──────────────────── settings, the roster ─────┤
    ├── writes its files, says so ─────────────────▶ ends

The new host says nothing before it knows that it has reached the one who made the code. The private key of the host
never leaves it. If the line breaks in the middle, the same host can use the code again; no other can.
"""

import asyncio
import base64
import binascii
import contextlib
import hmac
import json
import secrets
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Self

from seedflood.config import check_address
from seedflood.errors import NotRunningError, PeerError, SeedfloodError, UsageError
from seedflood.identity import Identity, verify
from seedflood.listening import listen_at
from seedflood.transport import certificates
from seedflood.transport.crowd import Crowd

PIN_BYTES = SECRET_BYTES = 16
"""Of the digest of the inviting side's key, and of the secret: nobody finds another key, or guesses."""

LINE_BYTES_MAX = 4 << 20
"""A roster has at most two mebibytes."""

ANSWER_SECONDS = 30.0
CONNECTIONS_MAX = 32
"""The most connections of those who may be strangers at the same time; each has ANSWER_SECONDS. One more takes the
place of the oldest one of whoever holds most."""


@dataclass(frozen=True, slots=True)
class Code:
    """What the operator passes on to whoever sets up the new host, by a way that nobody else can read."""

    address: str
    pin: bytes
    secret: bytes

    @classmethod
    def parse(cls, text: str) -> Self:
        """Raises UsageError."""
        try:
            address, pin, secret = text.strip().split("/")
            code = cls(check_address(address), _unspell(pin), _unspell(secret))
        except ValueError:
            raise UsageError("this is no code of an invitation; copy the whole line that it has printed.") from None
        return code

    def spelled(self) -> str:
        return f"{self.address}/{_spell(self.pin)}/{_spell(self.secret)}"


@dataclass(frozen=True, slots=True)
class Grant:
    """What a new host gets: the texts of its peers.toml and roster.json."""

    settings: str
    roster: str


Enrol = Callable[[bytes, str], Grant]
"""Puts a public key onto the roster, durably; the second argument is where the host will listen, or "". Raises
SeedfloodError."""


class Invitation:
    """Waits for one host. `open`, then `wait`."""

    def __init__(self, enrol: Enrol) -> None:
        self._enrol = enrol
        self._own = certificates.issue(Identity.generate(), time.time())
        self._secret = secrets.token_bytes(SECRET_BYTES)
        self._accepted: tuple[bytes, Grant] | None = None
        self._served: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._tls = self._context()
        self._crowd = Crowd(CONNECTIONS_MAX)

    async def wait(self, listen: str, seconds: float, show: Callable[[str], None]) -> bytes:
        """Listens, shows the code, and returns the public key of the host that has used it. Raises SeedfloodError."""
        own = listen_at(listen, "--listen")
        server = await asyncio.start_server(self._serve, sock=own, limit=LINE_BYTES_MAX)
        try:
            address = f"{listen.rpartition(':')[0]}:{own.getsockname()[1]}"
            code = Code(address, self._own.channel[:PIN_BYTES], self._secret)
            show(code.spelled())
            return await asyncio.wait_for(self._served, seconds)
        except TimeoutError:
            raise NotRunningError(f"nobody has used the code in {seconds / 60:g} minutes; invite again.") from None
        finally:
            server.close()

    def _context(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        with TemporaryDirectory(prefix="seedflood-") as folder:  # ssl reads files alone
            chain = Path(folder) / "chain.pem"
            chain.touch(mode=0o600)
            chain.write_bytes(self._own.key_pem + self._own.chain_pem)
            context.load_cert_chain(chain)
        return context

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """TLS begins here, so that also whoever says nothing at all has a place, and may lose it to others."""
        try:
            async with self._crowd.enter(str(writer.get_extra_info("peername")[0]), ANSWER_SECONDS):
                await writer.start_tls(self._tls)
                await self._answer(reader, writer)
        except (TimeoutError, OSError, ValueError, asyncio.IncompleteReadError):
            pass  # whoever it was may try again
        except asyncio.CancelledError:
            pass  # the command ends, and asyncio would print a traceback for whoever is still here
        finally:
            writer.close()
            with contextlib.suppress(OSError, asyncio.CancelledError):
                await writer.wait_closed()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = _read(await reader.readline())
        try:
            key, grant = self._judge(request)
        except PeerError as error:
            await _write(writer, {"error": str(error)})
            return
        except SeedfloodError as error:  # the roster cannot be written: the operator's fault, and the end
            await _write(writer, {"error": "the inviting side could not write its roster"})
            self._end(error)
            return
        await _write(writer, {"settings": grant.settings, "roster": grant.roster})
        if _read(await reader.readline()).get("done") is True:
            self._end(key)

    def _judge(self, request: dict[str, Any]) -> tuple[bytes, Grant]:
        """Raises SeedfloodError. A stranger learns nothing but that the code is wrong."""
        secret, key, signature = (_hex(request.get(name)) for name in ("secret", "public_key", "signature"))
        listen = request.get("listen")
        if not hmac.compare_digest(secret, self._secret):
            raise PeerError("the code is wrong", reason="invitation")
        if not isinstance(listen, str) or not verify(key, _joining_signed(self._own.channel), signature):
            raise PeerError("the request is not signed by the key that it names", reason="invitation")
        if self._accepted is None:
            if listen:
                try:
                    check_address(listen)
                except ValueError as error:
                    raise PeerError(str(error), reason="invitation") from None
            self._accepted = key, self._enrol(key, listen)
        if self._accepted[0] != key:
            raise PeerError("the code was used by another host already", reason="invitation")
        return self._accepted

    def _end(self, outcome: bytes | SeedfloodError) -> None:
        if self._served.done():
            return
        if isinstance(outcome, SeedfloodError):
            self._served.set_exception(outcome)
        else:
            self._served.set_result(outcome)


async def join(code: Code, identity: Identity, listen: str, keep: Callable[[Grant], None]) -> None:
    """Uses a code. keep: writes what we get; called before the inviting side learns that we have it. Raises
    SeedfloodError."""
    host, _, port = code.address.rpartition(":")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # the code says which key it must have
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            reader, writer = await asyncio.open_connection(
                host.strip("[]"), int(port), ssl=context, limit=LINE_BYTES_MAX
            )
            try:
                await _converse(code, identity, listen, keep, reader, writer)
            finally:
                writer.close()
                with contextlib.suppress(OSError):
                    await writer.wait_closed()
    except (TimeoutError, OSError, asyncio.IncompleteReadError):
        raise NotRunningError(
            f"nobody answers at {code.address} as an invitation does; is it still open, and can this host reach it?"
        ) from None


async def _converse(
    code: Code,
    identity: Identity,
    listen: str,
    keep: Callable[[Grant], None],
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
) -> None:
    shown = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    channel = certificates.channel_of(ssl.DER_cert_to_PEM_cert(shown).encode())
    if not hmac.compare_digest(channel[:PIN_BYTES], code.pin):
        raise PeerError(
            f"somebody else than the one who made the code answers at {code.address}; nothing was sent to it",
            reason="pin",
        )
    request = {
        "secret": code.secret.hex(),
        "public_key": identity.public_key.hex(),
        "signature": identity.sign(_joining_signed(channel)).hex(),
        "listen": listen,
    }
    await _write(writer, request)
    try:
        answer = _read(await reader.readline())
    except ValueError:
        raise PeerError(f"{code.address} has ended the conversation; invite again", reason="invitation") from None
    if "error" in answer:
        raise PeerError(f"the invitation was refused: {str(answer['error'])[:200]}", reason="invitation")
    settings, roster = answer.get("settings"), answer.get("roster")
    if not isinstance(settings, str) or not isinstance(roster, str):
        raise PeerError(f"{code.address} does not answer as an invitation does", reason="invitation")
    keep(Grant(settings, roster))
    await _write(writer, {"done": True})


def _joining_signed(channel: bytes) -> bytes:
    return b"seedflood join 1\0" + channel


async def _write(writer: asyncio.StreamWriter, message: dict[str, Any]) -> None:
    writer.write(json.dumps(message).encode() + b"\n")
    await writer.drain()


def _read(line: bytes) -> dict[str, Any]:
    """Raises ValueError."""
    try:
        message = json.loads(line)
    except RecursionError:
        raise ValueError("too deep") from None
    if not isinstance(message, dict):
        raise ValueError("no object")
    return message


def _hex(text: object) -> bytes:
    try:
        return bytes.fromhex(text) if isinstance(text, str) else b""
    except ValueError:
        return b""


def _spell(data: bytes) -> str:
    return base64.b32encode(data).decode().rstrip("=").lower()


def _unspell(text: str) -> bytes:
    """Raises ValueError."""
    try:
        data = base64.b32decode(text.upper() + "=" * (-len(text) % 8))
    except binascii.Error:
        raise ValueError(text) from None
    if len(data) != PIN_BYTES:
        raise ValueError(text)
    return data
