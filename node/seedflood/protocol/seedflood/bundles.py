"""Bundles of updates, and their bytes: what is signed is what is sent, kept and passed on.

A bundle is its bytes. Only its head is read when it comes; its values are read when they are needed, which on a relay
is once. All numbers are big-endian:

    u8   shape: how many updates, minus 1; + 64 if they are payloads; + 128 if steps are skipped
    u32  step
    u32  skipped, if steps are: never 0
    of each update u16 loss and i32 scalar; or u32 the bytes of a payload, and the payloads, all of that size
    64 bytes: the signature

The signature covers a domain, the run, the origin's key and the bytes before it. So a bundle can be replayed neither in
another run nor as anything else. Whose it is stands beside it: in a frame, a row of the journal, or the key of a
record. Steps that an origin never measures are declared by its next bundle as `skipped`, so what a node holds of an
origin stays one number.
"""

import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import repeat
from typing import NamedTuple

from seedflood.errors import check
from seedflood.protocol.frontier import Span
from seedflood.protocol.origin import OriginId
from seedflood.protocol.swarm.messages import AlgorithmMessage

BUNDLE_STEP_MAX = (1 << 32) - 1
"""The last step at which a bundle may begin."""

SCALAR_UNIT_BITS = 20
SCALAR_MAX = (1 << 31) - 1
"""Scalars are integers in units of 2^-20, below 2^31 in size: |alpha| < 2^11."""

LOSS_UNIT_BITS = 11
LOSS_MAX = (1 << 16) - 1
LOSS_BYTES = 2
"""Losses are integers in units of 2^-11, so at most 32. The largest stands for all that is larger, or no number. They
are the last two bytes of a payload, little-endian."""

BUNDLE_UPDATES_MAX = 64
"""The most updates in a bundle. One signature of 64 bytes then costs a byte per update; a larger bundle would save
nothing and only delay its updates."""

BUNDLE_BYTES_MAX = 256 << 10
"""The most bytes of all payloads in a bundle. A relay holds, checks and passes on a bundle as a whole, and live frames
wait behind it."""

BATCH_BYTES = 64 << 10
"""Bundles of payloads that are sent, read or written at once: live frames wait 1 ms behind as much at 500 Mbit/s. A
pair is so small that the count of a batch bounds its bytes."""

SIGNATURE_BYTES = 64
UNSIGNED = bytes(SIGNATURE_BYTES)

UpdateValue = tuple[int, int] | bytes
"""The value of an update: (loss, scalar), or a payload of at least one byte, whose form the rules of the run know
(`payload`). All bundles of a run carry the same kind."""

_DOMAIN = b"seedflood bundle 3\0"
_COUNT, _PAYLOADS, _SKIPS = 63, 64, 128
"""Parts of a shape."""
_HEADS = {0: struct.Struct(">BI"), _SKIPS: struct.Struct(">BII")}
_HEAD_BYTES = {skips: head.size for skips, head in _HEADS.items()}
_PAIR = struct.Struct(">Hi")
_SIZE = struct.Struct(">I")


class Update(NamedTuple):
    """What one origin measured at one step: unique by (origin, step), applied exactly once.

    value: a payload, or (loss, scalar): what the origin lost on its batch, in units of 2^-11, and the projected
    gradient in units of 2^-20. The direction follows from origin and step (`seeds`).
    """

    origin: OriginId
    step: int
    value: UpdateValue

    @property
    def loss(self) -> int:
        """What the origin lost on its batch, in units of 2^-11."""
        return loss_of(self.value)


def loss_of(value: UpdateValue) -> int:
    """The loss in the value of an update, in units of 2^-11."""
    return value[0] if isinstance(value, tuple) else int.from_bytes(value[-LOSS_BYTES:], "little")


class Bundle(NamedTuple):
    """Consecutive updates of one origin under one signature: the unit that is signed, journalled and flooded. It is a
    tuple because up to a hundred thousand come per second. With `local_steps = 1` it has one update.

    step: the first step measured. length: how many updates it has. skipped: how many steps right before it the origin
    did not measure. data: the bundle as bytes, from which all others but the origin were read.
    """

    origin: OriginId
    step: int
    length: int
    skipped: int
    data: bytes

    @property
    def probes(self) -> tuple[UpdateValue, ...]:
        """The values of step, step + 1, and so on: pairs, or payloads, never both."""
        data = self.data
        shape = data[0]
        at = _HEAD_BYTES[shape & _SKIPS]
        if not shape & _PAYLOADS:
            return tuple(_PAIR.iter_unpack(data[at:-SIGNATURE_BYTES]))
        (size,) = _SIZE.unpack_from(data, at)
        return tuple([data[k : k + size] for k in range(at + _SIZE.size, len(data) - SIGNATURE_BYTES, size)])

    @property
    def body(self) -> bytes:
        """All but the signature."""
        return self.data[:-SIGNATURE_BYTES]

    @property
    def signature(self) -> bytes:
        return self.data[-SIGNATURE_BYTES:]

    def signed_bytes(self, run_id: bytes, public_key: bytes) -> bytes:
        """What the signature covers. run_id and public_key: 32 bytes each."""
        return b"".join((_DOMAIN, run_id, public_key, self.data[:-SIGNATURE_BYTES]))

    def with_signature(self, signature: bytes) -> "Bundle":
        """The same with this signature of 64 bytes."""
        return self._replace(data=self.body + signature)

    @property
    def span(self) -> Span:
        """What it covers, as frontiers take it: `frontier.add(*bundle.span)`."""
        origin, step, length, skipped, _ = self
        return origin, step - skipped, step + length - 1

    @property
    def first_covered(self) -> int:
        return self.step - self.skipped

    @property
    def last(self) -> int:
        return self.step + self.length - 1

    def contradicts(self, other: "Bundle") -> bool:
        """Do both cover one step, though they differ? An honest origin signs no two such bundles."""
        is_apart = self.origin != other.origin or self.last < other.first_covered or other.last < self.first_covered
        return self != other and not is_apart

    def updates(self) -> list[Update]:
        return [Update(self.origin, step, value) for step, value in enumerate(self.probes, self.step)]


def make_bundle(
    origin: OriginId, step: int, probes: Sequence[UpdateValue], skipped: int = 0, signature: bytes = UNSIGNED
) -> Bundle:
    """A bundle of these values, pairs or payloads of one size."""
    shape, values = len(probes) - 1 | (_SKIPS if skipped else 0), []
    for value in probes:
        if isinstance(value, bytes):
            shape |= _PAYLOADS
            values.append(value)
        else:
            values.append(_PAIR.pack(*value))
    head = _HEADS[shape & _SKIPS].pack(shape, step, *([skipped] if skipped else []))
    size = _SIZE.pack(len(values[0])) if shape & _PAYLOADS else b""
    return Bundle(origin, step, len(probes), skipped, b"".join((head, size, *values, signature)))


_bundle_of: Callable[[Iterable[object]], Bundle] = partial(tuple.__new__, Bundle)
"""`Bundle._make` without its check, at a third of its cost."""


def read_bundles(origins: Sequence[OriginId], data: bytes) -> list[Bundle]:
    """The bundles that stand in `data` one after the other, each of one of the origins, in order. Raises PeerError for
    bytes that `make_bundle` does not make, and for values beyond their limits but those of a scalar (`payload`)."""
    bundles: list[Bundle] = []
    at = 0
    while at < len(data):
        done = len(bundles)
        check(done < len(origins), "more bundles than origins", "columns")
        shape, size = data[at], _size_at(data, at)
        # Mostly all have one shape. Then a few calls read them all. Payloads are large, and are read one by one.
        shapes = data[at : at + size * (1 if shape & _PAYLOADS else len(origins) - done) : size]
        count = len(shapes) - len(shapes.lstrip(shapes[:1]))
        end = at + count * size
        check(end <= len(data), "a bundle is cut off", "columns")
        steps, *skips = zip(*_head_in(size, shape & _SKIPS).iter_unpack(data[at:end]), strict=True)
        skipped = skips[0] if skips else (0,) * count
        check(not skips or min(skipped) > 0, "a bundle says that it skips 0 steps")
        check(not skips or all(map(int.__le__, skipped, steps)), "a bundle covers steps below 0")
        whose, length = origins[done : done + count], repeat((shape & _COUNT) + 1)
        pieces = [data[k : k + size] for k in range(at, end, size)]
        bundles += map(_bundle_of, zip(whose, steps, length, skipped, pieces, strict=False))
        at = end
    check(len(bundles) == len(origins), "fewer bundles than origins", "columns")
    return bundles


def _size_at(data: bytes, at: int) -> int:
    """The bytes of the bundle that begins there, perhaps more than there are."""
    shape = data[at]
    size, length = _HEAD_BYTES[shape & _SKIPS], (shape & _COUNT) + 1
    if not shape & _PAYLOADS:
        return size + length * _PAIR.size + SIGNATURE_BYTES
    check(at + size + _SIZE.size <= len(data), "a bundle is cut off", "columns")
    each = int(_SIZE.unpack_from(data, at + size)[0])
    check(each > 0, "a payload is empty")
    check(each * length <= BUNDLE_BYTES_MAX, f"more than {BUNDLE_BYTES_MAX} bytes of payloads in a bundle")
    return size + _SIZE.size + each * length + SIGNATURE_BYTES


@lru_cache(256)
def _head_in(size: int, skips: int) -> struct.Struct:
    """Reads the steps, and the skipped ones if there are any, of a bundle of so many bytes."""
    numbers = "II" if skips else "I"
    return struct.Struct(f">x{numbers}{size - _HEAD_BYTES[skips]}x")


def join_bundles(bundles: Iterable[Bundle]) -> bytes:
    """Undoes `read_bundles`."""
    return b"".join([bundle.data for bundle in bundles])


@dataclass(frozen=True, slots=True)
class Updates(AlgorithmMessage):
    """A batch of bundles, in the order in which they were learned."""

    bundles: tuple[Bundle, ...]

    def is_of(self, origin: OriginId) -> bool:
        return any(bundle.origin == origin for bundle in self.bundles)


def have_payloads(bundles: Sequence[Bundle]) -> bool:
    """Do these bundles carry payloads, and not pairs? The first one shows it: all of a run carry the same kind."""
    return bool(bundles) and bool(bundles[0].data[0] & _PAYLOADS)


def payload_bytes(bundles: Sequence[Bundle]) -> int:
    """The bytes of these bundles if they carry payloads; 0 if they carry pairs."""
    return sum([len(bundle.data) for bundle in bundles]) if have_payloads(bundles) else 0


def cut_bundles(
    bundles: Sequence[Bundle], count_max: int, bytes_max: int = BATCH_BYTES
) -> Iterator[tuple[Bundle, ...]]:
    """Cuts bundles into batches, in order: each of at most count_max bundles and, if they carry payloads, bytes_max
    bytes, but of one bundle at least."""
    if not have_payloads(bundles):
        for k in range(0, len(bundles), count_max):
            yield tuple(bundles[k : k + count_max])
        return
    part: list[Bundle] = []
    room = bytes_max
    for bundle in bundles:
        size = len(bundle.data)
        if part and (room < size or len(part) == count_max):
            yield tuple(part)
            part, room = [], bytes_max
        part.append(bundle)
        room -= size
    yield tuple(part)


def count_updates(bundles: Sequence[Bundle]) -> int:
    """How many updates these bundles hold."""
    return sum([bundle.length for bundle in bundles])
