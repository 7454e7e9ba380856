"""This host's part of a script's data, from the step on at which the run stands."""

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any

from torch.utils.data import DataLoader, IterableDataset, Sampler

from seedflood.config import RunSettings
from seedflood.errors import ConfigError
from seedflood.protocol.origin import OriginId
from seedflood.training.shards import Shard, Walk, choose_rows

WORKERS = (
    "a process with open connections cannot be forked: take no workers for loading, or set the multiprocessing context "
    'to "spawn", and put what the script does below `if __name__ == "__main__":`.'
)


def share(data: Any, run: RunSettings, shard: Shard, origin: OriginId, step: Callable[[], int]) -> Iterator[Any]:
    """See `Participant.share`. step: returns the one that is due. Raises ConfigError."""
    if hasattr(data, "__getitem__") and hasattr(data, "__len__") and not isinstance(data, list | tuple):
        data = DataLoader(data, batch_size=run.batch_size)
    if isinstance(data, DataLoader) and not isinstance(data.dataset, IterableDataset):
        return iter(_of_this_host(data, run, shard, origin, step))
    return _every_nth(data, shard, step())


class StepSampler(Sampler[list[int]]):
    """The rows of each step that is due, without end. More batches of one step are those that come next."""

    def __init__(self, rows: list[int], run_seed: int, origin: OriginId, batch_size: int, step: Callable[[], int]):
        """rows: of this host, by their indices in the data set."""
        self._rows = rows
        self._walk = Walk(run_seed, len(rows))
        self._origin = origin
        self._batch_size = batch_size
        self._step = step

    def __iter__(self) -> Iterator[list[int]]:
        place = 0
        while True:
            place = max(place, self._step() * self._batch_size)
            end = place + self._batch_size
            yield [self._rows[row] for row in self._walk.rows_at(self._origin, range(place, end))]
            place = end


def _of_this_host(
    loader: DataLoader[Any], run: RunSettings, shard: Shard, origin: OriginId, step: Callable[[], int]
) -> DataLoader[Any]:
    """The same loader on this host's rows, in its own order."""
    if loader.batch_size is None:
        raise ConfigError("share needs a DataLoader with a batch_size: its batches are drawn anew for each step.")
    if loader.num_workers and loader.multiprocessing_context is None:
        raise ConfigError(WORKERS)
    chosen = choose_rows(len(loader.dataset), run.train_examples, run.seed)  # type: ignore[arg-type]
    rows = chosen[shard.index :: shard.count]
    if not rows:
        raise ConfigError(f"the data ({len(chosen)} rows) cannot be shared by {shard.count} hosts: use more rows.")
    return DataLoader(
        loader.dataset,
        batch_sampler=StepSampler(rows, run.seed, origin, loader.batch_size, step),
        num_workers=loader.num_workers,
        collate_fn=loader.collate_fn,
        pin_memory=loader.pin_memory,
        timeout=loader.timeout,
        worker_init_fn=loader.worker_init_fn,
        multiprocessing_context=loader.multiprocessing_context,
        prefetch_factor=loader.prefetch_factor,
        persistent_workers=loader.persistent_workers,
    )


def _every_nth(batches: Iterable[Any], shard: Shard, first: int) -> Iterator[Any]:
    """Of batches that come one after the other, those of this host's share, without those of earlier steps."""
    return islice(batches, shard.index + first * shard.count, None, shard.count)
