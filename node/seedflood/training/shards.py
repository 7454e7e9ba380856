"""Which training rows belong to which host: disjoint shares that cover the run's rows, by the run seed."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from seedflood.config import NodeSettings
from seedflood.protocol.origin import OriginId
from seedflood.training import randomness


@dataclass(frozen=True, slots=True)
class Shard:
    """Share number `index` (from 0) of `count`."""

    index: int = 0
    count: int = 1


def parse_shard(text: str | None) -> Shard:
    """Reads a share as `[node] shard` has it, which has checked it: "2/16" is the second of sixteen. None: all rows."""
    number, count = map(int, (text or "1/1").split("/"))
    return Shard(number - 1, count)


def choose_rows(rows: int, examples: int | None, run_seed: int) -> list[int]:
    """The indices of the rows that a run trains on: `examples` of all (None: all), in an order by the run seed."""
    order: list[int] = randomness.permutation(randomness.derive_key("training rows", run_seed), rows).tolist()
    return order if examples is None else order[:examples]


class Walk:
    """An origin walks through one permutation of its rows after the other. rows: how many it has."""

    def __init__(self, run_seed: int, rows: int) -> None:
        self._run_seed = run_seed
        self._rows = rows
        self._permutation = lru_cache(maxsize=64)(self._permute)

    def rows_at(self, origin: OriginId, places: Iterable[int]) -> list[int]:
        """The rows at these places of the walk, by their places among its rows."""
        return [self._permutation(origin, place // self._rows)[place % self._rows] for place in places]

    def _permute(self, origin: OriginId, number: int) -> list[int]:
        key = randomness.derive_key("batches", self._run_seed, origin, number)
        order: list[int] = randomness.permutation(key, self._rows).tolist()
        return order


def equal_shares(node: NodeSettings, count: int) -> list[NodeSettings]:
    """`[node]` of so many hosts that are like this one, each with its share of the rows."""
    return [node.model_copy(update={"shard": f"{k + 1}/{count}"}) for k in range(count)]
