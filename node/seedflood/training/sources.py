"""Where rows come from: a file, a folder, the hub's data sets (offline first), or the package."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from seedflood import embedded
from seedflood.config import divide_data
from seedflood.errors import DataError
from seedflood.training import hub
from seedflood.training.files import KINDS, kind_of, read_file, read_folder, split_of
from seedflood.training.rows import Reader, Splits, Table, choose_splits, rows_in_memory
from seedflood.training.tables import of_dataset


def read_embedded(rows_of: Callable[[embedded.Split], Iterable[Mapping[str, Any]]]) -> Splits:
    """Rows that come with the package. rows_of: makes those of a split (`embedded`)."""
    train, validation = (rows_in_memory(rows_of(split), f"embedded {split}") for split in embedded.SPLITS)
    return Splits(Table(train), Table(validation))


def read_data(data: str) -> Splits:
    """Training and validation rows of `[node] data`: a file, a folder or a data set of the hub, perhaps with the names
    of the splits behind it (`rows.parquet`, `imdb#train,test`). Raises DataError."""
    place, wanted = divide_data(data)
    path = Path(place)
    check_place_of_rows(place)
    if path.is_file():
        split = split_of(Path(path.name)) or "train"
        return choose_splits({split: partial(read_file, path)}, wanted or (split,), place)
    if path.is_dir():
        return choose_splits(read_folder(path), wanted, place)
    return choose_splits(read_hub(place, None), wanted, place)


def check_place_of_rows(place: str) -> None:
    """Raises DataError if this is where a file or folder should be, and none is there."""
    path = Path(place)
    is_name_of_file = path.suffix[1:].isalpha() and path.parent.is_dir()
    if not path.exists() and (place.startswith((".", "/", "~")) or kind_of(path) in KINDS or is_name_of_file):
        raise DataError(f"There is no file or folder {place}: correct `data`.")


def read_hub(name: str, configuration: str | None) -> dict[str, Reader]:
    """What reads the splits of a data set of the hub, from the local cache first. Raises DataError."""
    import datasets  # takes a second to import, and files do not need it

    datasets.disable_progress_bars()  # stderr is for logs
    try:
        with hub.reading("dataset", name), _offline():
            return _read_splits(name, configuration)
    except Exception:  # Libraries that read caches and parse foreign files may raise anything.
        fault = hub.find_fault("dataset", name)
    try:
        if fault is None:
            with hub.reading("dataset", name, fetches=True):
                return _read_splits(name, configuration)
    except Exception as error:
        fault = hub.first_line(error)
    raise DataError(
        f'Data "{name}" is no file, no folder and not in the local cache, and the hub did not give it: set `data` to a '
        f"file or folder of rows, or fetch the data set with network access ({fault}).",
    )


def _read_splits(name: str, configuration: str | None) -> dict[str, Reader]:
    import datasets

    found = datasets.load_dataset(name, configuration)
    if not all(len(rows) for rows in found.values()):  # also of a cache that another process is still writing
        raise ValueError("it has no rows")
    return {str(split): partial(of_dataset, rows, f"{name} {split}") for split, rows in found.items()}


@contextmanager
def _offline() -> Iterator[None]:
    """Within, the network is not used: `datasets` has no argument for that, only these two switches."""
    import datasets
    import huggingface_hub

    places = [datasets.config, huggingface_hub.constants]
    before = [place.HF_HUB_OFFLINE for place in places]
    try:
        for place in places:
            place.HF_HUB_OFFLINE = True
        yield
    finally:
        for place, value in zip(places, before, strict=True):
            place.HF_HUB_OFFLINE = value
