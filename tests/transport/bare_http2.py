"""A client that spells HTTP/2 byte by byte: it says what no library of gRPC would."""

import asyncio
import gzip
import struct

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, _HEADERS, _RESET, _SETTINGS = 0, 1, 3, 4
_END_STREAM, _END_HEADERS = 1, 4

GARBAGE = b"no gzip at all"
BOMB = gzip.compress(bytes(64 << 20))
"""64 MiB of zeros, in 65 kB."""


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def headers(path: str, encoding: str, more: dict[str, bytes]) -> bytes:
    fields = {
        ":method": "POST",
        ":scheme": "http",
        ":path": path,
        ":authority": "seedflood",
        "content-type": "application/grpc",
        "te": "trailers",
        "grpc-encoding": encoding,
    }
    spelled = b""
    for name, value in ({key: text.encode() for key, text in fields.items()} | more).items():
        spelled += b"\0" + bytes([len(name)]) + name.encode() + bytes([len(value)]) + value
    return spelled


def message(content: bytes, *, is_compressed: bool) -> list[bytes]:
    """A message of gRPC as frames of DATA."""
    whole = bytes([is_compressed]) + struct.pack(">I", len(content)) + content
    return [frame(_DATA, 0, 1, whole[k : k + 16_384]) for k in range(0, len(whole), 16_384)]


async def say(
    address: str,
    path: str,
    *,
    content: bytes,
    encoding: str = "gzip",
    stays: bool = True,
    more: dict[str, bytes] | None = None,
) -> None:
    """Opens a stream and says one message that is marked as compressed. stays: until the other side has ended it.
    more: metadata."""
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(_PREFACE + frame(_SETTINGS, 0, 0))
    writer.write(frame(_HEADERS, _END_HEADERS, 1, headers(path, encoding, more or {})))
    writer.writelines(message(content, is_compressed=True))
    if not stays:
        writer.write(frame(_RESET, 0, 1, struct.pack(">I", 8)))
    try:
        await writer.drain()
        async with asyncio.timeout(20):
            while stays:
                head = await reader.readexactly(9)
                body = await reader.readexactly(int.from_bytes(head[:3]))
                kind, flags, stream = head[3], head[4], int.from_bytes(head[5:])
                if kind == _SETTINGS and not flags:
                    writer.write(frame(_SETTINGS, 1, 0))
                if stream == 1 and (kind == _RESET or (kind == _HEADERS and flags & _END_STREAM)):
                    return
                del body
    except (asyncio.IncompleteReadError, ConnectionError):
        return
    finally:
        writer.close()
