"""Whose turn a round is: with `participants`, a host measures one round of every so many, and only applies the others.

Rounds are cut into *turns* of equally many, and in each turn an origin measures one round, which follows from the run
and the origin by a hash. So whose turn it is needs no list of members, which hosts could see differently: who joins or
leaves changes nothing for the others. A draw among the members of a moment would have needed agreement on them first.
And each origin measures equally often: once all clients have published their part of a turn, nothing more can come for
it.

Who does not measure a round is as one whose empty update everyone has received. Its next bundle declares those rounds
as skipped, like any others that an origin does not measure, so that a frontier stays one number for each origin.
"""

import struct
from functools import lru_cache
from typing import NamedTuple

from xxhash import xxh3_64_intdigest

from seedflood.protocol.origin import OriginId


class Turns(NamedTuple):
    """rounds: how many a turn has; 1: every origin measures every round. local_steps: steps per round. run_id: 32
    bytes; it may be empty where only lengths are asked for."""

    rounds: int = 1
    local_steps: int = 1
    run_id: bytes = b""

    @property
    def steps(self) -> int:
        """How many steps a turn has."""
        return self.rounds * self.local_steps

    @property
    def spread(self) -> int:
        """How many steps at most an origin has none to measure in a row."""
        return 2 * (self.rounds - 1) * self.local_steps

    def last(self, origin: OriginId, end: int) -> int:
        """The last step up to `end` that the origin measures; -1 if there is none."""
        if self.rounds == 1 or end < 0:
            return end
        turn = end // self.steps
        if end < (first := self._first(origin, turn)):
            if not turn:
                return -1
            first = self._first(origin, turn - 1)
        return min(end, first + self.local_steps - 1)

    def has(self, origin: OriginId, step: int) -> bool:
        """Does the origin measure this step?"""
        return self.last(origin, step) == step

    def _first(self, origin: OriginId, turn: int) -> int:
        """The first step that an origin measures in a turn."""
        return (turn * self.rounds + _draw(self.run_id, origin, turn) % self.rounds) * self.local_steps


@lru_cache(maxsize=1 << 13)
def _draw(run_id: bytes, origin: OriginId, turn: int) -> int:
    """In every round all origins are asked for, again and again."""
    return xxh3_64_intdigest(b"seedflood turn 1\0" + run_id + struct.pack(">QQ", origin, turn))


ALL = Turns()
"""Every origin measures every round."""
