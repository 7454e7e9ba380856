"""What an origin had applied when it measured, as its bundle states it: so an auditor can go back to that.

In strict windows it follows from the step. In the others it depends on what came when, so each bundle states it where
the run asks for that (`Rules.is_auditable`): the beginning of the frontier's digest, then marks and ranges of all
origins in order, as distances from the step. The names of the origins are left out. An auditor knows them, and the
digest shows whether it has put the frontier together as it was. With eight hosts this takes 20 bytes.

A frontier that does not fit is stated by its digest alone. An auditor then finds it only if nothing was late.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from seedflood.protocol.frontier import Frontier, Held, Span, spans, without
from seedflood.protocol.origin import STEP_MAX
from seedflood.protocol.seedflood.messages import Update

APPLIED_BYTES_MAX = 256
"""4,096 bundles with a statement of this size still fit into a frame."""

DIGEST_BYTES = 4
"""By chance another frontier has the same digest once in 2^32. A liar can state any frontier anyway."""

_ORIGIN_BYTES_MIN = 2


class Difference(NamedTuple):
    """Updates of the open epoch: what another host had applied when it measured, and we have not; and what only we
    have."""

    theirs: tuple[Update, ...] = ()
    ours: tuple[Update, ...] = ()


EQUAL = Difference()


def pack_applied(applied: Frontier, step: int) -> bytes:
    """The statement of the bundle of `step`."""
    digest, held = applied.digest()[:DIGEST_BYTES], applied.held()
    if len(held) * _ORIGIN_BYTES_MIN > APPLIED_BYTES_MAX - DIGEST_BYTES:
        return digest
    packed = digest + b"".join(map(_leb128, _distances(held, step)))
    return packed if len(packed) <= APPLIED_BYTES_MAX else digest


def unpack_applied(stated: bytes, step: int, known: Frontier, before: int) -> Frontier | None:
    """The frontier that the bundle of `step` states; None if it cannot be found. known: what is held here. before: the
    steps below it are usually applied."""
    digest, distances = stated[:DIGEST_BYTES], stated[DIGEST_BYTES:]
    if distances:
        found = _from_distances(distances, step, sorted(known.origins))
    else:
        found = known.below(dict.fromkeys(known.origins, before))
    return found if found is not None and found.digest()[:DIGEST_BYTES] == digest else None


def compare_applied(theirs: Frontier, ours: Frontier, first: int, end: int) -> tuple[list[Span], list[Span]] | None:
    """Which of the steps from `first` to before `end` only they have, and only we; None if earlier steps differ,
    too."""
    if theirs.digest(first) != ours.digest(first):
        return None
    they, we = (one.below(dict.fromkeys(one.origins, end)).held() for one in (theirs, ours))
    return list(spans(without(they, spans(we)))), list(spans(without(we, spans(they))))


def _distances(held: Iterable[Held], step: int) -> Iterator[int]:
    for one in held:
        behind = step - one.mark
        yield 2 * behind if behind >= 0 else -2 * behind - 1
        yield len(one.beyond)
        end = one.mark
        for first, last in one.beyond:
            yield first - end
            yield last - first
            end = last + 1


def _from_distances(distances: bytes, step: int, origins: Iterable[int]) -> Frontier | None:
    held, numbers = [], _numbers(distances)
    try:
        for origin in origins:
            half, is_ahead = divmod(next(numbers), 2)
            mark = end = step + half + 1 if is_ahead else step - half
            beyond = []
            for _ in range(next(numbers)):
                first = end + next(numbers)
                beyond.append((first, first + next(numbers)))
                end = beyond[-1][1] + 1
            if mark < 0 or end > STEP_MAX + 1:
                return None
            held.append(Held(origin, mark, tuple(beyond)))
    except StopIteration:
        return None
    return None if any(True for _ in numbers) else Frontier(held)


def _leb128(number: int) -> bytes:
    packed = bytearray()
    while number > 0x7F:
        packed.append(0x80 | number & 0x7F)
        number >>= 7
    packed.append(number)
    return bytes(packed)


def _numbers(packed: bytes) -> Iterator[int]:
    number = bits = 0
    for byte in packed:
        number |= (byte & 0x7F) << bits
        bits += 7
        if byte <= 0x7F:
            yield number
            number = bits = 0
